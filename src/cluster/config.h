// What the cluster manager is told once: which models to serve on which workers, and how patient to
// be.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/siphash.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/placement.h"
#include "staffel/status.h"

namespace staffel::cluster {

// The replicas of one model.
struct PoolConfig {
  std::string name;  // served model name
  ModelShape shape;
  ModelRef model;
  RankOptions options;
  int tensor_parallel = 0, pipeline_parallel = 0;  // 0: choose
  int data_parallel = 0;                           // replicas; 0: one
  // While the workers of a given layout are missing, others may serve in another one.
  bool allow_degraded = true;
  std::map<std::string, std::string> labels;   // that its workers must carry
  int64_t kv_blocks = 0, kv_memory_bytes = 0;  // as in KvPoolRequest, for each rank
  int max_model_len = 0;                       // tokens of prompt + answer
  int max_sequences = 1;                       // that run together in a replica
};

struct Options {
  // Between workers of different machines; what the choice of a layout reckons with.
  LinkShape link;
  // Secrets of the epochs are derived from it: random bits, never shown.
  Hash128 secret_key;

  // A first placement that may use any number of workers waits for this long after a join, so that
  // workers that start together are placed together.
  Duration settle = std::chrono::milliseconds(500);
  // From Configure to Capacity.
  Duration capacity_timeout = std::chrono::seconds(30);
  // From Form to Formed without progress of any rank.
  Duration load_stall = std::chrono::seconds(60);
  // After the first failed rank of an epoch, for the others to say what they saw.
  Duration blame_wait = std::chrono::milliseconds(100);
  // While serving: no rank finishes a collective or a step although one is in a step.
  Duration step_stall = std::chrono::seconds(60);
  // While serving: a rank waits for another that has sent all or waits as well, and nothing moves.
  Duration link_stall = std::chrono::milliseconds(1500);
  // Doubling time for which the two are not placed together, if others can do.
  Duration link_avoid_min = std::chrono::seconds(30), link_avoid_max = std::chrono::minutes(10);
  // While serving: a worker's heartbeats speak of another epoch.
  Duration wrong_epoch_wait = std::chrono::seconds(5);
  // After a loss, for workers that can carry on; then open requests end. Before the first
  // placement, from the first worker on, for all that the wanted layout needs; then fewer serve.
  Duration worker_wait = std::chrono::seconds(60);
  // A better layout is taken when the replica is idle, or after this long.
  Duration improve_patience = std::chrono::seconds(30);
  // An epoch that served for this long has shown that it works: its failures are forgotten.
  Duration proven_after = std::chrono::seconds(10);
  // Doubling delays: of a replica's next attempt, of a worker that failed, of a layout that was
  // tried for being better and failed.
  Duration retry_min = std::chrono::milliseconds(250), retry_max = std::chrono::seconds(30);
  Duration set_aside_min = std::chrono::seconds(1), set_aside_max = std::chrono::seconds(60);
  Duration improve_retry_min = std::chrono::seconds(10);
  Duration improve_retry_max = std::chrono::seconds(600);
  // A worker may be lost this often within the window before it is set aside.
  int losses_free = 3;
  Duration losses_window = std::chrono::seconds(60);
};

}  // namespace staffel::cluster
