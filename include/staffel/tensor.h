// Element types of stored tensors and read-only views of their bytes.
// Block layouts follow the GGUF specification (ggml/docs/gguf.md) and the block structs it names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace staffel {

// Values are the GGUF type numbers.
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct DTypeInfo {
  DType type;
  const char* name;
  int block_elements;  // elements that share a block (1 for plain floats)
  int block_bytes;
};

// Null for a type number that this build does not know.
inline const DTypeInfo* FindDType(uint32_t number) {
  static constexpr DTypeInfo kInfos[] = {
      {DType::kF32, "F32", 1, 4},       {DType::kF16, "F16", 1, 2},
      {DType::kBF16, "BF16", 1, 2},     {DType::kQ4_0, "Q4_0", 32, 18},
      {DType::kQ4_1, "Q4_1", 32, 20},   {DType::kQ5_0, "Q5_0", 32, 22},
      {DType::kQ5_1, "Q5_1", 32, 24},   {DType::kQ8_0, "Q8_0", 32, 34},
      {DType::kQ4_K, "Q4_K", 256, 144}, {DType::kQ5_K, "Q5_K", 256, 176},
      {DType::kQ6_K, "Q6_K", 256, 210}};
  for (const DTypeInfo& info : kInfos) {
    if (static_cast<uint32_t>(info.type) == number) return &info;
  }
  return nullptr;
}
inline const DTypeInfo& InfoOf(DType type) { return *FindDType(static_cast<uint32_t>(type)); }

// A stored matrix or vector: `rows` rows of `cols` elements, row-major, each row a whole number of
// blocks. (GGUF dims are innermost first: cols = dims[0], rows = product of the others.) Bytes stay
// valid while the file is open.
struct TensorView {
  std::string name;
  DType type = DType::kF32;
  int64_t rows = 0, cols = 0;
  absl::Span<const uint8_t> bytes;  // rows * row_bytes()

  int64_t row_bytes() const {
    return cols / InfoOf(type).block_elements * InfoOf(type).block_bytes;
  }
};

// Gives a loader its tensors. Implementations: a GGUF file (mmap), a safetensors folder, generated
// tensors in tests.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Null if there is no tensor of that name.
  virtual const TensorView* Find(const std::string& name) const = 0;
  // The bytes of this tensor have been copied and are not needed for now: the source may drop them
  // from memory.
  virtual void Release(const TensorView& tensor) const = 0;
};

}  // namespace staffel
