// Time as an argument: pure code takes a Time, the shell reads a Clock, tests own it.
#pragma once

#include <chrono>

namespace staffel {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  Time Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace staffel
