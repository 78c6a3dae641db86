// What a placement costs, as far as shapes tell: the measure by which layouts are chosen. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "staffel/placement.h"

namespace staffel {

// Multiply-adds of a token in one layer, by weights; heads and columns may be fractions.
double HeadGroupMacs(const ModelShape& model, double q_heads, double kv_heads);
double FfnMacs(const ModelShape& model, double columns);

// Seconds, the geometric mean of two decode steps: one stream's (latency), and 16 streams'
// (throughput), so that halving either counts the same. A rank takes the longer of reading its
// weights and multiplying; the slowest member of a tensor group decides; each layer has two
// all-reduces; a pipeline of k stages runs k micro-batches, which cost a single stream nothing but
// the hops and help many. Within a machine collectives are almost free; between machines the link
// decides: with the default of 1 Gbit/s small models do better as stages, large ones as tensor
// groups.
// `devices`, `machines`: by rank.
double PlacementCost(const ModelShape& model, const PlacementPlan& plan,
                     absl::Span<const DeviceShape> devices, absl::Span<const std::string> machines,
                     const LinkShape& link);

}  // namespace staffel
