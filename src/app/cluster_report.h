// How a cluster stands, in the forms that people and their tools read.
#pragma once

#include <string>
#include <vector>

#include "cluster/snapshot.h"
#include "server/metrics.h"

namespace staffel {

// Body of GET /v1/cluster: pools, their replicas, each with its placement, and all workers.
std::string ClusterJson(const cluster::Snapshot& snapshot);

// Per replica: state, epoch, losses; per rank: seconds of compute, waiting and wire, bytes, step.
std::vector<MetricSamples> ClusterMetrics(const cluster::Snapshot& snapshot);

}  // namespace staffel
