// From the shapes of a model and a cluster to the ranges each rank holds. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel {

struct Placement {
  PlacementPlan plan;
  std::vector<int> devices;  // by rank: index into ClusterShape::devices
  double cost_s = 0;         // PlacementCost of plan/cost.h
};

// tensor_parallel × pipeline_parallel ranks, stage by stage over the first devices in their order.
// Layers are cut between stages, and heads, FFN columns and vocabulary rows between the members of
// a stage's group, in shares of the devices' speeds; if the memory of a device does not suffice for
// that, in shares that lean on memory. Heads are cut at KV groups (inside one, with the KV head on
// several ranks, where members outnumber KV heads), FFN columns at granules. One rank is a plan
// with full ranges. InvalidArgument: the model cannot be cut so; names both numbers.
// ResourceExhausted: a rank's weights (and KV of policy.context_tokens) exceed its device's memory.
Result<Placement> PlaceInOrder(const ModelShape& model, const ClusterShape& cluster,
                               const PlacementPolicy& policy);

// The cheapest of what `policy` leaves open: the layout, the devices and their order. Tensor groups
// lie within a machine where devices suffice. A device is left out if the cost without it is lower,
// or higher by less than 2 %. For up to 256 different selections of devices the search is complete;
// beyond, each machine alone, and of every number the fastest devices and those with most memory
// are tried.
// Errors as above.
Result<Placement> ChoosePlacement(const ModelShape& model, const ClusterShape& cluster,
                                  const PlacementPolicy& policy);

// The smallest number of devices that ChoosePlacement succeeds with. Errors as above.
Result<int> DevicesNeeded(const ModelShape& model, const ClusterShape& cluster,
                          const PlacementPolicy& policy);

// PlaceInOrder where the policy gives both sizes, else ChoosePlacement; for callers with one kind
// of device.
Result<PlacementPlan> MakePlacement(const ModelShape& model, const ClusterShape& cluster,
                                    const PlacementPolicy& policy);

// InvalidArgument: the model cannot be cut so on any devices. 0: any size.
Status CheckLayout(const ModelShape& model, int tensor_parallel, int pipeline_parallel);

// Weight bytes that a shard holds, as far as the shape tells.
int64_t WeightBytes(const ModelShape& model, const RankShard& shard);
// KV bytes of a shard for that many tokens, with elements of 2 bytes.
int64_t KvBytes(const ModelShape& model, const RankShard& shard, int64_t tokens);

}  // namespace staffel
