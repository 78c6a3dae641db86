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

  // What a step with that many decode chunks and prefill tokens took. Of a pipeline: in the last
  // stage. Only the ratio of steps with and without prefill counts, and that is the same in all
  // stages, which share one batch; a stream waits for as many steps as there are stages, with
  // prefill and without.
  void Observe(int decodes, int prefill_tokens, double compute_s) {
    if (stretch_percent_ == 0 || !(compute_s > 0) || compute_s > 3600) return;
    const auto step_ns = static_cast<int64_t>(compute_s * 1e9);
    if (decodes > 0 && prefill_tokens == 0) {
      ObserveDecodes(step_ns);
    } else if (prefill_tokens >= min_) {
      // Reading the weights once is the greater part of a step of decodes, and of any other.
      ObservePrefill((step_ns - decode_step_ns_) / prefill_tokens, prefill_tokens);
    }
    if (decode_step_ns_ == 0 || prefill_token_ns_ == 0) return;
    const auto wanted =
        static_cast<int>(std::clamp<int64_t>(SpareNs() / prefill_token_ns_, min_, max_));
    // Only a step that bears it out raises the share, and by a quarter at most.
    const bool tried = decodes > 0 && prefill_tokens >= min_;
    allowed_ = std::min(wanted, tried ? allowed_ + allowed_ / 4 + 1 : allowed_);
  }

 private:
  // Other work on the machine only ever lengthens a step: the mean follows down quickly and up
  // slowly.
  void ObserveDecodes(int64_t step_ns) {
    const int64_t difference = step_ns - decode_step_ns_;
    decode_step_ns_ += decode_step_ns_ == 0 ? step_ns : difference / (difference < 0 ? 4 : 32);
  }

  // Up quickly, since streams wait for what was underestimated, but a single disturbed step is cut
  // off; down as fast as the sample is large.
  void ObservePrefill(int64_t token_ns, int prefill_tokens) {
    token_ns = std::max<int64_t>(token_ns, 1);
    if (prefill_token_ns_ == 0) {
      prefill_token_ns_ = token_ns;
      return;
    }
    const int64_t difference = std::min(token_ns, 3 * prefill_token_ns_) - prefill_token_ns_;
    const int divisor = difference > 0 || prefill_tokens >= kLargeSample ? 2 : 8;
    prefill_token_ns_ = std::max<int64_t>(1, prefill_token_ns_ + difference / divisor);
  }

  // Time that prefill may add to a step of decodes.
  int64_t SpareNs() const { return decode_step_ns_ * std::max(0, stretch_percent_ - 100) / 100; }

  static constexpr int kLargeSample = 256;  // tokens: fixed costs of a step hardly show

  int min_, max_, stretch_percent_;
  int allowed_;
  int64_t decode_step_ns_ = 0;    // of a step of decodes alone
  int64_t prefill_token_ns_ = 0;  // added by a prefill token beside decodes
};

}  // namespace staffel::sched
