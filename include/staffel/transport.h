// Carries StepPlans to all ranks of a replica and their outcome back. The in-process one hands
// values to a worker thread; the gRPC one serialises. Plans arrive in order; more than one may be
// in flight.
#pragma once

#include <functional>

#include "staffel/status.h"
#include "staffel/step.h"

namespace staffel {

class Transport {
 public:
  virtual ~Transport() = default;
  // Called on a transport thread for every outcome, in step order. Set once before the first
  // Submit; must not block.
  virtual void SetOutcomeHandler(std::function<void(StepOutcome)> handler) = 0;
  // Hands a plan to all ranks; returns at once. Unavailable: a rank is lost.
  virtual Status Submit(StepPlan plan) = 0;
};

}  // namespace staffel
