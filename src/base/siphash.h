// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// 2012, and the reference code's 128-bit variant): a keyed hash that someone without the key cannot
// make collide. Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace staffel {

struct Hash128 {
  uint64_t low = 0, high = 0;  // low: the first eight bytes of the output, little endian
  constexpr auto operator<=>(const Hash128&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const Hash128& hash) {
    return H::combine(std::move(h), hash.low, hash.high);
  }
};

// `key`: low and high are its first and last eight bytes.
Hash128 SipHash128(Hash128 key, const void* data, size_t size_bytes);

}  // namespace staffel
