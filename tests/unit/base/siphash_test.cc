#include "base/siphash.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace staffel {
namespace {

std::string Hex(const Hash128& hash) {
  std::string out;
  for (uint64_t word : {hash.low, hash.high}) {
    for (int i = 0; i < 8; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<int>(word >> (8 * i) & 0xff));
      out += digits;
    }
  }
  return out;
}

// From the authors' vectors: key 00..0f, message 00, 01, 02, ... of that many bytes.
TEST(SipHash128, AgreesWithTheAuthorsVectors) {
  const Hash128 key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  const struct {
    int size;
    const char* hash;
  } cases[] = {{0, "a3817f04ba25a8e66df67214c7550293"},
               {1, "da87c1d86b99af44347659119b22fc45"},
               {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
               {64, "1eaf077dc0d4cd3f8cad4d383658a74b"}};
  for (const auto& [size, want] : cases) {
    std::vector<unsigned char> message(size);
    std::iota(message.begin(), message.end(), 0);
    EXPECT_EQ(Hex(SipHash128(key, message.data(), message.size())), want) << size << " bytes";
  }
}

}  // namespace
}  // namespace staffel
