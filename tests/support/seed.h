// Seed of the random tests: STAFFEL_SEED, or 1. Printed, so that a failure can be repeated.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace staffel {

inline uint64_t TestSeed() {
  const char* text = std::getenv("STAFFEL_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  std::cout << "STAFFEL_SEED=" << seed << "\n";
  return seed;
}

}  // namespace staffel
