// When to dial again.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

#include "staffel/clock.h"

namespace staffel {

// From 50-75 ms doubling up to 330-500 ms, by chance within: workers that lost their master
// together do not come back together.
class ReconnectBackoff {
 public:
  Duration Next() {
    const double share = std::uniform_real_distribution<double>(2.0 / 3, 1)(random_);
    const auto delay = std::chrono::duration_cast<Duration>(next_ * share);
    next_ = std::min(next_ * 2, kMax);
    return delay;
  }
  // After a connection that worked.
  void Reset() { next_ = kMin; }

 private:
  static constexpr std::chrono::milliseconds kMin{75}, kMax{500};
  std::chrono::milliseconds next_ = kMin;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace staffel
