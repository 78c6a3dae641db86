// StepPlan and StepOutcome as bytes (proto/worker.proto), and back. Pure.
#pragma once

#include <string>
#include <string_view>

#include "staffel/status.h"
#include "staffel/step.h"

namespace staffel {

// Every id and count of a plan or outcome is >= 0 but for the -1 of "no log-probabilities", which
// the master and the worker guarantee. The same value gives the same bytes.
std::string SerializePlan(const StepPlan& plan);
std::string SerializeOutcome(const StepOutcome& outcome);

// InvalidArgument: the bytes are no such message, or a number is outside its type. Whether the plan
// makes sense is for the worker's mirror to check.
Result<StepPlan> ParsePlan(std::string_view bytes);
Result<StepOutcome> ParseOutcome(std::string_view bytes);

}  // namespace staffel
