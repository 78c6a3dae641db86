// Which workers take which ranks of one replica. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/placement.h"
#include "staffel/cluster.h"
#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel::cluster {

// A worker as far as placing is concerned.
struct Candidate {
  WorkerId worker;
  std::string name;
  std::string machine;
  DeviceShape device;
};

// Who had which rank in the last epoch of a layout that served: they may hold these shards still,
// in memory or in a cache on disk.
struct Seats {
  PlacementPlan plan;
  std::vector<std::string> names;    // by rank
  std::vector<DeviceShape> devices;  // by rank
  int block_count = 0;
};

// Whether ranks hold the same parts of the model in both.
bool SameShards(const PlacementPlan& a, const PlacementPlan& b);

struct Choice {
  std::vector<WorkerId> workers;  // by rank
  std::vector<std::string> names;
  std::vector<DeviceShape> devices;
  Placement placement;    // placement.devices: indices of the candidates
  bool degraded = false;  // another layout than the policy's
  std::string why;        // degraded: what the policy's lacks
};

// The best placement over `candidates` (in their order), or the one of `seats` (null: no
// layout of this size has served) where its workers keep their shards at little more cost.
Result<Choice> Choose(const ModelShape& model, const LinkShape& link, const PlacementPolicy& policy,
                      const std::vector<Candidate>& candidates,
                      const std::map<std::pair<int, int>, Seats>& seats);

int TensorParallel(const PlacementPlan& plan);
int PipelineParallel(const PlacementPlan& plan);

}  // namespace staffel::cluster
