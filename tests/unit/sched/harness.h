// A scheduler with a worker that answers every draw at once: the tests say what is drawn and read
// what was planned.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "sched/scheduler.h"

namespace staffel::sched {

inline Config SmallConfig(int block_count = 64, int block_size = 4) {
  Config config;
  config.block_count = block_count;
  config.block_size = block_size;
  config.max_model_len = 1000;
  config.max_sequences = 8;
  config.step_stretch_percent = 0;
  return config;
}

// `count` tokens from `first` on: prompts with different firsts share nothing.
inline std::vector<TokenId> Tokens(int first, int count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class Harness {
 public:
  explicit Harness(const Config& config) : scheduler(config) {}
  ~Harness() { scheduler.CheckInvariants(); }

  // Returns the request's id.
  RequestId Submit(GenerateRequest request) {
    request.id = RequestId(++last_id_);
    const Status status = scheduler.Submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status;
    return RequestId(last_id_);
  }
  void Cancel(RequestId id, int index = -1) {
    scheduler.Cancel(id, index, events);
    scheduler.CheckInvariants();
  }
  // Plans a step and keeps it in flight; whether there was one.
  bool Plan() {
    auto plan = scheduler.Plan(events);
    scheduler.CheckInvariants();
    if (!plan.has_value()) return false;
    for (const NewSequence& s : plan->new_sequences) {
      prompt_counts_[s.slot.value] = s.prompt_count;
      pools_[s.slot.value] = s.pooling != Pooling::kNone;
    }
    for (const Chunk& chunk : plan->chunks) computed_tokens += chunk.count;
    in_flight.push_back(*plan);
    last = *std::move(plan);
    return true;
  }
  StepOutcome Answer(const StepPlan& plan) {
    StepOutcome outcome{.epoch = plan.epoch, .step = plan.step};
    outcome.compute_s = step_seconds ? step_seconds(plan) : 0;
    for (const Chunk& chunk : plan.chunks) {
      if (chunk.samples) {
        outcome.sampled.push_back({.slot = chunk.slot, .token = {.token = draw(chunk)}});
        if (forced) outcome.sampled.back().forced = forced(chunk);
        if (complete) outcome.sampled.back().complete = complete(chunk);
      }
      if (pools_[chunk.slot.value] &&
          chunk.start + chunk.count == prompt_counts_[chunk.slot.value]) {
        outcome.embeddings.push_back({chunk.slot, {1.5f, static_cast<float>(chunk.start)}});
      }
      if (!chunk.prompt_logprobs) continue;
      const int end = std::min(chunk.start + chunk.count, prompt_counts_[chunk.slot.value] - 1);
      PromptLogprobs given{.slot = chunk.slot, .start = chunk.start};
      for (int p = chunk.start; p < end; ++p)
        given.entries.push_back({.logprob = -static_cast<float>(p)});
      if (end > chunk.start) outcome.prompt_logprobs.push_back(given);
    }
    return outcome;
  }
  Status Apply(StepOutcome outcome) {
    const Status status = scheduler.Apply(std::move(outcome), events);
    scheduler.CheckInvariants();
    return status;
  }
  void Finish() {  // the oldest step in flight
    const StepOutcome outcome = Answer(in_flight.front());
    in_flight.pop_front();
    const Status status = Apply(outcome);
    EXPECT_TRUE(status.ok()) << status;
  }
  bool Step() {
    if (!Plan()) return false;
    Finish();
    return true;
  }
  int RunToEnd(int steps_max = 10000) {
    int steps = 0;
    while (Step()) {
      if (++steps == steps_max) {
        ADD_FAILURE() << "no end after " << steps << " steps";
        break;
      }
    }
    return steps;
  }

  std::vector<TokenId> TextOf(RequestId id, int index = 0) const {
    std::vector<TokenId> text;
    for (const SeqEvent& event : events) {
      if (event.request != id || event.index != index) continue;
      for (const GeneratedToken& token : event.tokens) text.push_back(token.token);
    }
    return text;
  }
  // "stop", "length", "cancelled", "error", or "" before the end.
  std::string FinishOf(RequestId id, int index = 0) const {
    static const char* const names[] = {"stop", "length", "cancelled", "error"};
    for (const SeqEvent& event : events) {
      if (event.request == id && event.index == index && event.finish.has_value()) {
        return names[static_cast<int>(*event.finish)];
      }
    }
    return "";
  }
  const SeqEvent& FirstOf(RequestId id, int index = 0) const {
    for (const SeqEvent& event : events) {
      if (event.request == id && event.index == index && event.first) return event;
    }
    ADD_FAILURE() << "no event of request " << id;
    static const SeqEvent none;
    return none;
  }
  int free_blocks() { return scheduler.stats().blocks_free + scheduler.stats().blocks_cached; }

  Scheduler scheduler;
  std::vector<SeqEvent> events;
  std::deque<StepPlan> in_flight;
  StepPlan last;                // the plan made last
  int64_t computed_tokens = 0;  // planned so far
  std::function<TokenId(const Chunk&)> draw = [](const Chunk&) { return 7; };
  std::function<std::vector<TokenId>(const Chunk&)> forced;  // behind what is drawn
  std::function<bool(const Chunk&)> complete;
  std::function<double(const StepPlan&)> step_seconds;

 private:
  uint64_t last_id_ = 0;
  std::map<int, int> prompt_counts_;  // by slot
  std::map<int, bool> pools_;         // likewise
};

}  // namespace staffel::sched
