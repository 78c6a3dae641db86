// Bounds that every plan must keep, checked from the outside: on the plans themselves.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "staffel/step.h"
#include "tests/sim/scenario.h"

namespace staffel::sim {

class FairnessOracle {
 public:
  explicit FairnessOracle(const Scenario& scenario);

  void OnSubmit(const GenerateRequest& request);
  // Returns which bound the plan breaks, or nothing.
  std::string OnPlan(const StepPlan& plan);
  void OnEvent(const SeqEvent& event);
  void OnEpoch(int stages, int group);
  // Steps that may be in flight.
  int depth() const {
    if (stages_ > 1) return stages_;
    return group_ > 1 ? std::max(depth_, 2) : depth_;
  }

 private:
  struct SlotView {
    uint64_t request = 0;  // sampling.seed is the request's id in these worlds
    int index = 0, prompt_count = 0;
    bool live = false, generates = false, follows_forced = false;
    uint64_t entered_step = 0, last_step = 0;
    int planned_end = 0;
  };
  struct RequestView {
    uint64_t id = 0;
    int prompt_count = 0, planned = 0;
    bool exempt = false;  // will be cancelled, or has ended
  };
  std::string CheckSizes(const StepPlan& plan) const;
  std::string CheckMicroBatch(const StepPlan& plan) const;
  std::string CheckOldest(const StepPlan& plan);
  std::string CheckStreams(const StepPlan& plan);
  size_t FindRequest(uint64_t id) const;

  const sched::Config config_;
  const int depth_;
  const bool ample_;
  int stages_, group_;  // of the epoch
  bool equal_priorities_ = true;
  std::vector<uint64_t> cancelled_ids_;
  std::map<int, SlotView> slots_;
  std::vector<RequestView> requests_;  // in order of submission
};

}  // namespace staffel::sim
