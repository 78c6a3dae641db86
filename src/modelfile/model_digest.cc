#include "modelfile/model_digest.h"

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "base/strings.h"

namespace staffel {
namespace {

constexpr size_t kSampleBytes = 4096;

}  // namespace

Result<std::string> ModelDigest(const ModelFile& file) {
  const std::vector<ModelPart> parts = file.parts();
  if (parts.empty()) {
    return absl::FailedPreconditionError("a model without files has no digest");
  }
  Sha256 hash;
  hash.Add("staffel model 1\n");
  for (const ModelPart& part : parts) {
    hash.Add(StrCat(part.bytes.size(), " ", part.header_bytes, "\n"));
    hash.Add(part.bytes.first(part.header_bytes));
  }
  for (const TensorView& tensor : file.tensors()) {
    const size_t head = std::min(tensor.bytes.size(), kSampleBytes);
    const size_t tail = std::min(tensor.bytes.size() - head, kSampleBytes);
    hash.Add(tensor.bytes.first(head));
    hash.Add(tensor.bytes.last(tail));
  }
  return hash.Hex();
}

Result<ModelRef> MakeModelRef(const ModelFile& file, std::string served_name) {
  ModelRef ref;
  ref.name = std::move(served_name);
  ref.path = file.path();
  STAFFEL_ASSIGN_OR_RETURN(ref.digest, ModelDigest(file));
  for (const ModelPart& part : file.parts()) {
    ref.parts.push_back({static_cast<int64_t>(part.bytes.size()), part.header_bytes});
  }
  return ref;
}

}  // namespace staffel
