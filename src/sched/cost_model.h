// How many prefill tokens fit beside decodes before running streams feel it: from measured step
// times, in integers, so that equal outcomes give equal plans. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sched/config.h"

namespace staffel::sched {

class CostModel {
 public:
  explicit CostModel(const Config& config)
      : min_(config.prefill_beside_decodes_min),
        max_(config.tokens_per_step_max),
        stretch_percent_(config.step_stretch_percent),
        allowed_(config.prefill_beside_decodes) {}

  int PrefillBesideDecodes() const { return allowed_; }

  // What a step with that many decode chunks and prefill tokens took.
  void Observe(int decodes, int prefill_tokens, double compute_s) {
    if (stretch_percent_ == 0 || !(compute_s > 0) || compute_s > 3600) return;
    const auto step_ns = static_cast<int64_t>(compute_s * 1e9);
    if (prefill_tokens == 0) {
      Blend(decode_step_ns_, step_ns);
      // What the configured share assumes, until measured.
      if (prefill_token_ns_ == 0) prefill_token_ns_ = std::max<int64_t>(1, SpareNs() / allowed_);
    } else if (decodes > 0 && prefill_tokens >= min_ && decode_step_ns_ > 0) {
      Blend(prefill_token_ns_, std::max<int64_t>(1, (step_ns - decode_step_ns_) / prefill_tokens));
    } else {
      return;
    }
    // At most doubled by one measurement.
    const int64_t wanted = std::min<int64_t>(SpareNs() / prefill_token_ns_, int64_t{allowed_} * 2);
    allowed_ = static_cast<int>(std::clamp<int64_t>(wanted, min_, max_));
  }

 private:
  // Time that prefill may add to a step of decodes.
  int64_t SpareNs() const { return decode_step_ns_ * std::max(0, stretch_percent_ - 100) / 100; }

  // A moving average over about 8 steps: long enough for noise, short enough to follow a growing
  // context.
  static void Blend(int64_t& mean, int64_t value) {
    mean = mean == 0 ? value : mean + (value - mean) / 8;
  }

  int min_, max_, stretch_percent_;
  int allowed_;
  int64_t decode_step_ns_ = 0;    // of a step of decodes alone
  int64_t prefill_token_ns_ = 0;  // added by a prefill token beside decodes
};

}  // namespace staffel::sched
