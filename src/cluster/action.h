// What the cluster manager wants done, in order. The caller carries it out and decides nothing.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "staffel/cluster.h"
#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel::cluster {

struct SendTo {
  WorkerId worker;
  MasterMessage message;  // Configure, Form, Abort or Release
};

// The manager has forgotten the worker already; OnGone for it is ignored.
struct Disconnect {
  WorkerId worker;
  Status reason;
};

// The epoch's ranks are ready, with empty KV pools. The first one of a replica starts its engine,
// later ones resume it.
struct ReplicaServing {
  ReplicaId replica;
  int epoch = 0;
  PlacementPlan plan;
  std::vector<WorkerId> workers;  // by rank
  int block_count = 0;
};

// Ends the epoch that ReplicaServing named: send no more steps. Another ReplicaServing follows when
// workers allow.
struct ReplicaLost {
  ReplicaId replica;
  int epoch = 0;
  Status reason;
  bool planned = false;  // nothing broke: a better layout, or a worker that leaves
};

// No workers could be found for the replica since its loss: its open requests must end with this
// error. At most once for each ReplicaLost.
struct ReplicaGaveUp {
  ReplicaId replica;
  Status reason;
};

struct Log {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

using Action = std::variant<SendTo, Disconnect, ReplicaServing, ReplicaLost, ReplicaGaveUp, Log>;
using Actions = std::vector<Action>;

}  // namespace staffel::cluster
