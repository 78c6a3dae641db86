// The workers of one epoch: stages of tensor groups. Every rank gets every plan; a stage runs it
// when the one before has.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "staffel/step.h"
#include "tests/sim/fake_worker.h"

namespace staffel::sim {

class FakeReplica {
 public:
  explicit FakeReplica(const FakeShape& shape);

  void Submit(StepPlan plan);
  // Whether a plan waits for the stage.
  bool Ready(int stage) const;
  // Runs it. The last stage gives the outcome.
  std::optional<StepOutcome> Run(int stage);

  int stages() const { return static_cast<int>(groups_.size()); }
  int in_flight() const { return static_cast<int>(steps_.size()); }
  // The plan whose outcome comes next. in_flight() > 0.
  const StepPlan& oldest() const { return steps_.front().plan; }
  const std::string& violation() const { return violation_; }

 private:
  struct Step {
    StepPlan plan;
    int stage = 0;  // that runs it next
    Activations activations;
  };
  std::vector<std::vector<FakeWorker>> groups_;  // by stage
  std::deque<Step> steps_;
  std::string violation_;
};

}  // namespace staffel::sim
