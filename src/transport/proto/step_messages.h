// StepPlan, StepOutcome and Status as protobuf messages, for messages that carry them. Rules as in
// step_codec.h.
#pragma once

#include "staffel/status.h"
#include "staffel/step.h"
#include "worker.pb.h"

namespace staffel {

void Write(const StepPlan& plan, proto::StepPlan& out);
void Write(const StepOutcome& outcome, proto::StepOutcome& out);
void WriteStatus(const Status& status, proto::Status& out);

Result<StepPlan> Read(const proto::StepPlan& in);
Result<StepOutcome> Read(const proto::StepOutcome& in);
// A code that this version does not know becomes kUnknown.
Status ReadStatus(const proto::Status& in);

}  // namespace staffel
