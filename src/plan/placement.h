// From the shapes of a model and a cluster to the ranges each rank holds. Pure.
#pragma once

#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel {

// Ranks are numbered stage by stage over cluster.devices in their order. Layers are cut between
// stages, and heads, FFN columns and vocabulary rows between the members of a stage's group, in
// shares of the devices' speeds: heads at KV groups (inside one, with the KV head on several ranks,
// where members outnumber KV heads), FFN columns at granules, where the FFN evens out what heads
// could not. One rank is a plan with full ranges.
// InvalidArgument: the model cannot be cut so; names both numbers. ResourceExhausted: a rank's
// weights exceed its device's memory.
Result<PlacementPlan> MakePlacement(const ModelShape& model, const ClusterShape& cluster,
                                    const PlacementPolicy& policy);

// Weight bytes that a shard holds, as far as the shape tells.
int64_t WeightBytes(const ModelShape& model, const RankShard& shard);

}  // namespace staffel
