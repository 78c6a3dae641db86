// Numbers and limits of the GGUF container (ggml/docs/gguf.md), versions 2 and 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace staffel {

// Types of metadata values.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct GgufTypeInfo {
  GgufType type;
  const char* name;
  int bytes;  // 0: of variable size
};

// Null for a number that the format does not define.
inline const GgufTypeInfo* FindGgufType(uint32_t number) {
  static constexpr GgufTypeInfo kInfos[] = {
      {GgufType::kU8, "u8", 1},         {GgufType::kI8, "i8", 1},
      {GgufType::kU16, "u16", 2},       {GgufType::kI16, "i16", 2},
      {GgufType::kU32, "u32", 4},       {GgufType::kI32, "i32", 4},
      {GgufType::kF32, "f32", 4},       {GgufType::kBool, "bool", 1},
      {GgufType::kString, "string", 0}, {GgufType::kArray, "array", 0},
      {GgufType::kU64, "u64", 8},       {GgufType::kI64, "i64", 8},
      {GgufType::kF64, "f64", 8}};
  return number < std::size(kInfos) ? &kInfos[number] : nullptr;
}

// The format's own limits.
inline constexpr size_t kGgufKeyBytesMax = 65535;
inline constexpr size_t kGgufTensorNameBytesMax = 64;
inline constexpr int kGgufDimsMax = 4;
inline constexpr uint64_t kGgufDefaultAlignment = 32;

// Limits of this reader, an order of magnitude above any published model. They bound what a hostile
// header can make the reader allocate or page in (together below 100 MB).
inline constexpr uint64_t kGgufKeysMax = 1 << 16;
inline constexpr uint64_t kGgufTensorsMax = 1 << 17;
inline constexpr uint64_t kGgufAlignmentMax = 1 << 20;
// Bytes of string arrays, which must be walked to find their end.
inline constexpr size_t kGgufStringArrayBytesMax = 40 << 20;
inline constexpr uint64_t kGgufTokensMax = 1 << 19;
inline constexpr uint64_t kGgufMergesMax = 1 << 20;
inline constexpr size_t kGgufTokenBytesMax = 1 << 16;
inline constexpr uint64_t kGgufIntArrayMax = 1 << 20;
// Longest string that is handed out whole (chat templates are 1-20 KB).
inline constexpr size_t kGgufStringBytesMax = 16 << 20;

}  // namespace staffel
