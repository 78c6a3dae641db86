// How the cluster stands, for /health, /v1/cluster and the metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "staffel/cluster.h"
#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel::cluster {

enum class ReplicaState {
  kWaiting,      // for workers, or for the next attempt; has never served, or requests have ended
  kConfiguring,  // workers work out what they can hold
  kLoading,      // workers load weights and connect
  kServing,
  kLost,  // as kWaiting, and requests are open from before the loss
};
const char* Name(ReplicaState state);

enum class WorkerState { kSpare, kConfiguring, kForming, kServing, kLeaving, kSetAside };
const char* Name(WorkerState state);

struct WorkerStatus {
  WorkerId worker;
  std::string name, host, machine, address, build;
  std::map<std::string, std::string> labels;
  WorkerState state = WorkerState::kSpare;
  ReplicaId replica;  // that it is a rank of
  int rank = -1;
  int64_t memory_bytes = 0;
  double speed = 1;
  // Set aside: why, and for how long still.
  Status reason;
  double set_aside_s = 0;
};

struct RankStatus {
  WorkerId worker;
  std::string name, host, machine, address;
  std::string data_address;  // by which other ranks reach it; empty before Capacity
  RankShard shard;
  // From Capacity; 0 before.
  int64_t weight_bytes = 0, kv_bytes_per_block = 0;
  double load_share = 0;  // [0, 1]
  // From Formed; 0 before.
  int64_t bytes_read = 0, bytes_fetched = 0;
  double load_s = 0, form_s = 0;
  bool weights_kept = false;
  Heartbeat heartbeat;          // the last of this epoch
  double heartbeat_age_s = -1;  // -1: none yet
  double busy_share = -1;       // of the last seconds, spent computing; -1: not known
};

struct ReplicaStatus {
  ReplicaId replica;
  ReplicaState state = ReplicaState::kWaiting;
  int epoch = 0;       // of the last attempt
  std::string reason;  // one sentence: why it does not serve; serving: what could be better, or ""
  double state_age_s = 0;
  double load_share = 0;                           // of the slowest rank
  int tensor_parallel = 0, pipeline_parallel = 0;  // of the epoch; 0: none
  bool degraded = false;  // another layout than the policy's, for want of workers
  int block_count = 0;
  int64_t losses = 0;           // of serving epochs, planned ones apart
  int64_t planned_changes = 0;  // of serving epochs
  std::vector<RankStatus> ranks;
};

struct PoolStatus {
  std::string name;
  // Of PoolConfig; 0: chosen.
  int tensor_parallel = 0, pipeline_parallel = 0;
  std::map<std::string, std::string> labels;
  std::vector<ReplicaStatus> replicas;
};

// A link between two workers' places that has failed while both lived.
struct LinkStatus {
  std::pair<std::string, std::string> workers, hosts;
  std::string reason;    // of the last failure
  double age_s = 0;      // since then
  double avoided_s = 0;  // for how long still the two are not placed together where others can do
  int64_t failures = 0;
};

struct Snapshot {
  std::vector<PoolStatus> pools;
  std::vector<WorkerStatus> workers;  // in the order they joined
  // Workers that are not connected and would not be used if they came back now.
  std::vector<WorkerStatus> absent;
  std::vector<LinkStatus> links;
};

}  // namespace staffel::cluster
