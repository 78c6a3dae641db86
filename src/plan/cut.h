// Cuts a model for devices in a given order. Internal to plan.
#pragma once

#include "absl/types/span.h"
#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel {

// InvalidArgument: numbers that no placement can work with.
Status CheckShapes(const ModelShape& model, const ClusterShape& cluster);

// The largest tensor group that the model can be cut for.
int TensorParallelMax(const ModelShape& model);

// tensor_parallel × pipeline_parallel == devices.size(), and CheckLayout holds. ResourceExhausted:
// memory does not suffice, however the shares lean.
Result<PlacementPlan> Cut(const ModelShape& model, absl::Span<const DeviceShape> devices,
                          int tensor_parallel, int pipeline_parallel, int context_tokens);

}  // namespace staffel
