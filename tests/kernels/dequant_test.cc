// The reference dequantisation against the values of the Python package gguf, bit for bit.
#include "kernels/ref/dequant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

namespace staffel {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// tests/kernels/make_dequant_data.py writes: u32 type, u32 blocks, the blocks, the f32 values.
class DequantTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DequantTest, BitsEqualThoseOfGgufPy) {
  const std::string file = ReadFile(std::filesystem::path(STAFFEL_TEST_DATA) / "dequant" /
                                    (std::string(GetParam()) + ".bin"));
  ASSERT_GE(file.size(), 8u);
  uint32_t type_number, block_count;
  std::memcpy(&type_number, file.data(), 4);
  std::memcpy(&block_count, file.data() + 4, 4);
  const DTypeInfo* info = FindDType(type_number);
  ASSERT_NE(info, nullptr);
  EXPECT_STREQ(info->name, GetParam());
  const size_t stored = size_t{block_count} * info->block_bytes;
  const size_t count = size_t{block_count} * info->block_elements;
  ASSERT_EQ(file.size(), 8 + stored + 4 * count);
  std::vector<float> want(count), got(count);
  std::memcpy(want.data(), file.data() + 8 + stored, 4 * count);

  ref::Dequantize(info->type, reinterpret_cast<const uint8_t*>(file.data()) + 8,
                  static_cast<int64_t>(count), got.data());
  for (size_t i = 0; i < count; i++) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "block " << i / info->block_elements << " element " << i % info->block_elements
        << ": got " << got[i] << " want " << want[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantTest,
                         ::testing::Values("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                           "Q8_0", "Q4_K", "Q5_K", "Q6_K"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HalfToFloat, EdgesOfTheFormat) {
  EXPECT_EQ(ref::HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(ref::HalfToFloat(0xC000), -2.0f);
  EXPECT_EQ(ref::HalfToFloat(0x7BFF), 65504.0f);
  EXPECT_EQ(ref::HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(ref::HalfToFloat(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(ref::HalfToFloat(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(ref::HalfToFloat(0x8000)));
  EXPECT_EQ(ref::HalfToFloat(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ref::HalfToFloat(0x7E00)));
}

TEST(Dequantize, AddressesNeedNoAlignment) {
  std::vector<uint8_t> bytes(1 + 34);
  bytes[1] = 0x00, bytes[2] = 0x3C;  // scale 1
  for (int i = 0; i < 32; i++) bytes[3 + i] = static_cast<uint8_t>(i - 16);
  float out[32];
  ref::Dequantize(DType::kQ8_0, bytes.data() + 1, 32, out);
  for (int i = 0; i < 32; i++) EXPECT_EQ(out[i], i - 16);
}

}  // namespace
}  // namespace staffel
