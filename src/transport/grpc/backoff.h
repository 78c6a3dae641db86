// When to dial again.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

#include "staffel/clock.h"

namespace staffel {

// From 50-75 ms doubling up to 330-500 ms by default, by chance within: workers that lost their
// master together do not come back together.
class ReconnectBackoff {
 public:
  explicit ReconnectBackoff(std::chrono::milliseconds min = std::chrono::milliseconds(75),
                            std::chrono::milliseconds max = std::chrono::milliseconds(500))
      : min_(min), max_(max) {}

  Duration Next() {
    const double share = std::uniform_real_distribution<double>(2.0 / 3, 1)(random_);
    const auto delay = std::chrono::duration_cast<Duration>(next_ * share);
    next_ = std::min(next_ * 2, max_);
    return delay;
  }
  // After a connection that worked.
  void Reset() { next_ = min_; }

 private:
  const std::chrono::milliseconds min_, max_;
  std::chrono::milliseconds next_ = min_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace staffel
