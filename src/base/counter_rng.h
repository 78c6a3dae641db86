// Random numbers as a pure function of a key and a counter: Philox4x32-10 (Salmon et al. 2011,
// "Parallel random numbers: as easy as 1, 2, 3"). There is no state to share, carry on or lose.
#pragma once

#include <array>
#include <cstdint>

namespace staffel {

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kM0 * counter[0], p1 = kM1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kW0, key[1] + kW1};
  }
  return counter;
}

// Uniform in [0, 1), 53 bits. `trial`: for algorithms that may need more than one.
constexpr double UniformAt(uint64_t seed, uint32_t stream, uint32_t position, uint32_t trial = 0) {
  const std::array<uint32_t, 4> bits =
      Philox4x32({position, stream, trial, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = (uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(word) * 0x1p-53;
}

}  // namespace staffel
