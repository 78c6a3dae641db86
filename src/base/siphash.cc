#include "base/siphash.h"

#include <bit>
#include <cstring>

namespace staffel {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie in memory");

struct State {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
  uint64_t Finish() {
    for (int i = 0; i < 4; ++i) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

Hash128 SipHash128(Hash128 key, const void* data, size_t size_bytes) {
  State s{key.low ^ 0x736f6d6570736575u, key.high ^ 0x646f72616e646f6du ^ 0xee,
          key.low ^ 0x6c7967656e657261u, key.high ^ 0x7465646279746573u};
  const auto* bytes = static_cast<const unsigned char*>(data);
  const size_t whole = size_bytes / 8;
  for (size_t i = 0; i < whole; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + 8 * i, 8);
    s.Absorb(word);
  }
  uint64_t tail = static_cast<uint64_t>(size_bytes) << 56;
  for (size_t i = 8 * whole; i < size_bytes; ++i) {
    tail |= static_cast<uint64_t>(bytes[i]) << (8 * (i - 8 * whole));
  }
  s.Absorb(tail);
  s.v2 ^= 0xee;
  Hash128 hash;
  hash.low = s.Finish();
  s.v1 ^= 0xdd;
  hash.high = s.Finish();
  return hash;
}

}  // namespace staffel
