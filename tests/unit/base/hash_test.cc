// Published values of the two hashes.
#include <gtest/gtest.h>

#include <string_view>

#include "base/sha256.h"
#include "base/xxhash.h"

namespace staffel {
namespace {

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// FIPS 180-4, appendix B.
TEST(Sha256, PublishedValues) {
  Sha256 hash;
  EXPECT_EQ(hash.Hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  hash.Add("ab");
  hash.Add("c");
  EXPECT_EQ(hash.Hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  hash.Add("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
  EXPECT_EQ(hash.Hex(), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

// Known answers of XXH64 with seed 0: short input, and more than the 32 bytes of its four lanes.
TEST(Xxh64, PublishedValues) {
  EXPECT_EQ(Xxh64({}), 0xef46db3751d8e999u);
  EXPECT_EQ(Xxh64(Bytes("a")), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(Xxh64(Bytes("abc")), 0x44bc2cf5ad770999u);
  EXPECT_EQ(Xxh64(Bytes("Nobody inspects the spammish repetition")), 0xfbcea83c8a378bf1u);
}

}  // namespace
}  // namespace staffel
