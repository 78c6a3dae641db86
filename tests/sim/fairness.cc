#include "tests/sim/fairness.h"

#include <algorithm>

#include "base/check.h"
#include "base/strings.h"

namespace staffel::sim {

FairnessOracle::FairnessOracle(const Scenario& scenario)
    : config_(scenario.options.scheduler),
      depth_(scenario.options.depth),
      ample_(scenario.ample && !scenario.drain_tick.has_value()),
      stages_(scenario.options.stages),
      group_(scenario.group) {
  for (const ClientScript& client : scenario.clients) {
    equal_priorities_ &= client.request.priority == 0;
    if (client.cancel_tick.has_value() || client.cancel_after_tokens.has_value()) {
      cancelled_ids_.push_back(client.request.id.value);
    }
  }
}

void FairnessOracle::OnSubmit(const GenerateRequest& request) {
  const bool cancelled =
      std::count(cancelled_ids_.begin(), cancelled_ids_.end(), request.id.value) > 0;
  requests_.push_back({.id = request.id.value,
                       .prompt_count = static_cast<int>(request.prompt.size()),
                       .exempt = cancelled});
}

size_t FairnessOracle::FindRequest(uint64_t id) const {
  const auto it = std::find_if(requests_.begin(), requests_.end(),
                               [&](const RequestView& request) { return request.id == id; });
  STAFFEL_CHECK(it != requests_.end());
  return it - requests_.begin();
}

std::string FairnessOracle::OnPlan(const StepPlan& plan) {
  for (Slot slot : plan.released) slots_.erase(slot.value);
  for (const NewSequence& sequence : plan.new_sequences) {
    slots_[sequence.slot.value] = {.request = sequence.sampling.seed,
                                   .index = sequence.sequence_index,
                                   .prompt_count = sequence.prompt_count,
                                   .live = true,
                                   .entered_step = plan.step,
                                   .last_step = plan.step};
  }
  for (const ForcedToken& forced : plan.forced_tokens) {
    slots_[forced.slot.value].follows_forced = true;
  }
  if (std::string wrong = CheckSizes(plan); !wrong.empty()) return wrong;
  if (std::string wrong = CheckMicroBatch(plan); !wrong.empty()) return wrong;
  if (std::string wrong = CheckOldest(plan); !wrong.empty()) return wrong;
  return CheckStreams(plan);
}

std::string FairnessOracle::CheckSizes(const StepPlan& plan) const {
  int tokens = 0, prefill = 0, logit_rows = 0;
  bool decodes = false;
  for (const Chunk& chunk : plan.chunks) {
    const auto it = slots_.find(chunk.slot.value);
    if (it == slots_.end()) return "a chunk of an unknown slot";
    tokens += chunk.count;
    if (chunk.count > config_.chunk_tokens_max)
      return StrCat("a chunk of ", chunk.count, " tokens");
    // Forced tokens ride on the one that their sequence computes in any case.
    if (chunk.count > 1) prefill += chunk.count - it->second.follows_forced;
    logit_rows += chunk.samples;
    const int owed = std::min(chunk.count, it->second.prompt_count - 1 - chunk.start);
    if (chunk.prompt_logprobs) logit_rows += std::max(0, owed);
    const bool enters = it->second.last_step == plan.step;  // back from a preemption
    decodes |=
        chunk.count == 1 && chunk.samples && chunk.start >= it->second.prompt_count && !enters;
  }
  if (tokens > config_.tokens_per_step_max) return StrCat("a step of ", tokens, " tokens");
  if (logit_rows > config_.LogitRowsMax()) return StrCat("a step of ", logit_rows, " logit rows");
  if (static_cast<int>(slots_.size()) > config_.max_sequences) return "more sequences than slots";
  if (decodes && config_.step_stretch_percent == 0 && prefill > config_.prefill_beside_decodes) {
    return StrCat(prefill, " tokens of prefill beside decodes");
  }
  return "";
}

// A step leaves the other stages their share of the sequences that decode.
std::string FairnessOracle::CheckMicroBatch(const StepPlan& plan) const {
  if (stages_ == 1) return "";
  int sequences = 0, decodes = 0;
  for (const auto& [index, slot] : slots_) sequences += slot.live && slot.entered_step < plan.step;
  for (const Chunk& chunk : plan.chunks) {
    const SlotView& slot = slots_.at(chunk.slot.value);
    // Not what a sequence that comes back computes behind a found prefix.
    decodes += chunk.count == 1 && chunk.samples && chunk.start >= slot.prompt_count &&
               chunk.start == slot.planned_end && slot.entered_step < plan.step;
  }
  if (decodes <= (sequences + stages_ - 1) / stages_) return "";
  return StrCat("a step takes ", decodes, " of ", sequences, " sequences, but there are ", stages_,
                " stages");
}

// Where everything fits at once, the oldest request whose prompt is not computed has its share of
// every step.
std::string FairnessOracle::CheckOldest(const StepPlan& plan) {
  std::vector<int> given(requests_.size(), 0);
  size_t first_fork = requests_.size();  // a sibling's last prompt token takes its elder's turn
  size_t known = 0;  // once one has been taken up, the engine knows those submitted before it
  for (const Chunk& chunk : plan.chunks) {
    const SlotView& slot = slots_.at(chunk.slot.value);
    const size_t request = FindRequest(slot.request);
    if (slot.index == 0) {
      given[request] = chunk.count;
    } else if (chunk.start < slot.prompt_count) {
      first_fork = std::min(first_fork, request);
    }
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].planned > 0 || given[i] > 0) known = i + 1;
  }
  const int prefill_min =
      std::min(config_.prefill_reserve_tokens, config_.prefill_beside_decodes_min);
  const int share = std::min({config_.chunk_tokens_max, config_.prompt_logprob_rows_max,
                              std::max(1, prefill_min * config_.oldest_share_percent / 100)});
  std::string wrong;
  const bool applies = ample_ && equal_priorities_ && !config_.prefix_caching;
  for (size_t i = 0; applies && i < std::min(known, first_fork); ++i) {
    const RequestView& request = requests_[i];
    const int left = request.prompt_count - request.planned;
    if (left <= 0 || (request.exempt && given[i] == 0)) continue;
    // In a pipeline the last token of a prompt waits for its turn as those of decodes do.
    const bool in_turn = stages_ > 1 && left == 1;
    if (!request.exempt && !in_turn && given[i] < std::min(left, share)) {
      wrong = StrCat("the oldest request ", request.id, " gets ", given[i],
                     " tokens of a step, its share is ", share);
    }
    break;
  }
  for (const Chunk& chunk : plan.chunks) {
    const SlotView& slot = slots_.at(chunk.slot.value);
    if (slot.index == 0) requests_[FindRequest(slot.request)].planned = chunk.start + chunk.count;
  }
  return wrong;
}

// Where everything fits, a generating sequence is in every step but those that must wait for its
// last token.
std::string FairnessOracle::CheckStreams(const StepPlan& plan) {
  for (const Chunk& chunk : plan.chunks) {
    SlotView& slot = slots_.at(chunk.slot.value);
    slot.last_step = plan.step;
    slot.planned_end = chunk.start + chunk.count;
    slot.generates |= chunk.samples;
    slot.follows_forced &= !chunk.samples;
  }
  if (!ample_) return "";
  for (const auto& [index, slot] : slots_) {
    if (slot.live && slot.generates &&
        plan.step - slot.last_step > 2 * static_cast<uint64_t>(depth())) {
      return StrCat("slot ", index, " generates, but is left out since step ", slot.last_step);
    }
  }
  return "";
}

void FairnessOracle::OnEvent(const SeqEvent& event) {
  if (!event.finish.has_value()) return;
  for (auto& [index, slot] : slots_) {
    if (slot.request == event.request.value && slot.index == event.index) slot.live = false;
  }
  if (event.index == 0) requests_[FindRequest(event.request.value)].exempt = true;
}

void FairnessOracle::OnEpoch(int stages, int group) {
  stages_ = stages;
  group_ = group;
  slots_.clear();
  for (RequestView& request : requests_) request.planned = 0;
}

}  // namespace staffel::sim
