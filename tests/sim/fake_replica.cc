#include "tests/sim/fake_replica.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace staffel::sim {
namespace {

bool SameDraws(const StepOutcome& a, const StepOutcome& b) {
  return std::equal(a.sampled.begin(), a.sampled.end(), b.sampled.begin(), b.sampled.end(),
                    [](const SampledToken& x, const SampledToken& y) {
                      return x.slot == y.slot && x.token.token == y.token.token;
                    });
}

}  // namespace

FakeReplica::FakeReplica(const FakeShape& shape) {
  for (int stage = 0; stage < shape.stages; ++stage) {
    std::vector<FakeWorker>& group = groups_.emplace_back();
    for (int i = 0; i < shape.group; ++i) group.emplace_back(shape, stage + 1 == shape.stages);
  }
}

void FakeReplica::Submit(StepPlan plan) { steps_.push_back({.plan = std::move(plan)}); }

bool FakeReplica::Ready(int stage) const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [&](const Step& step) { return step.stage == stage; });
}

std::optional<StepOutcome> FakeReplica::Run(int stage) {
  const auto step =
      std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.stage == stage; });
  STAFFEL_CHECK(step != steps_.end());
  const Activations* in = stage == 0 ? nullptr : &step->activations;
  StepOutcome outcome;
  Activations out;
  std::vector<FakeWorker>& group = groups_[stage];
  for (size_t member = 0; member < group.size(); ++member) {
    Activations own;
    StepOutcome said = group[member].Execute(step->plan, in, own);
    if (violation_.empty() && !group[member].violation().empty()) {
      violation_ = StrCat("stage ", stage, ": ", group[member].violation());
    }
    if (member == 0) {
      outcome = std::move(said);
      out = std::move(own);
    } else if (violation_.empty() && (own != out || !SameDraws(said, outcome))) {
      violation_ = StrCat("stage ", stage, ": the ranks disagree");
    }
  }
  step->activations = std::move(out);
  ++step->stage;
  if (stage + 1 < stages()) return std::nullopt;
  STAFFEL_CHECK(step == steps_.begin());
  steps_.pop_front();
  return outcome;
}

}  // namespace staffel::sim
