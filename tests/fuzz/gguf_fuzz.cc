// A model file of any bytes is read or refused: no crash, no undefined behaviour, no allocation out
// of proportion.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/utf8.h"
#include "modelfile/gguf_file.h"

namespace staffel {
namespace {

void ReadEveryKey(const Metadata& metadata) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const std::string& key : metadata.Keys()) {
    STAFFEL_CHECK(metadata.Has(key));
    (void)metadata.Int(key, kMin, kMax);
    (void)metadata.Float(key);
    (void)metadata.Bool(key);
    (void)metadata.IntArray(key);
    if (const auto text = metadata.String(key); text.ok()) STAFFEL_CHECK(IsValidUtf8(*text));
  }
}

// Every byte of every tensor lies in the file.
uint64_t TouchTensors(const ModelFile& file, const uint8_t* data, size_t size) {
  uint64_t sum = 0;
  for (const TensorView& tensor : file.tensors()) {
    STAFFEL_CHECK(file.weights().Find(tensor.name) == &tensor);
    STAFFEL_CHECK(tensor.rows > 0 && tensor.cols > 0);
    STAFFEL_CHECK_EQ(static_cast<int64_t>(tensor.bytes.size()), tensor.rows * tensor.row_bytes());
    STAFFEL_CHECK(tensor.bytes.data() >= data && tensor.bytes.end() <= data + size);
    sum += tensor.bytes.front() + tensor.bytes.back();
    file.weights().Release(tensor);
  }
  return sum;
}

void CheckTokenizer(const ModelFile& file) {
  const Result<TokenizerSpec> spec = file.ReadTokenizer();
  if (!spec.ok()) return;
  const auto count = static_cast<TokenId>(spec->tokens.size());
  STAFFEL_CHECK(count > 0);
  STAFFEL_CHECK_EQ(spec->types.size(), spec->tokens.size());
  for (const TokenId id : {spec->bos, spec->eos, spec->eot, spec->eom, spec->unknown}) {
    STAFFEL_CHECK(id >= -1 && id < count);
  }
  for (const TokenId id : spec->end_of_generation) STAFFEL_CHECK(id >= 0 && id < count);
}

}  // namespace
}  // namespace staffel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = staffel::ReadGguf({data, size}, "fuzz.gguf");
  if (!file.ok()) {
    STAFFEL_CHECK(!file.status().message().empty());
    return 0;
  }
  staffel::ReadEveryKey((*file)->metadata());
  volatile uint64_t sum = staffel::TouchTensors(**file, data, size);
  (void)sum;
  staffel::CheckTokenizer(**file);
  return 0;
}
