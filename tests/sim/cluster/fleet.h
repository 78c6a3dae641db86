// The pools and workers of a world, before anything happens.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cluster/config.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/placement.h"

namespace staffel::cluster::sim {

// How a process behaves from one moment to another.
enum class Mood {
  kGood,
  kRefuses,     // Capacity with an error
  kSilent,      // no Capacity
  kLies,        // Capacity of another epoch, then nonsense
  kHangs,       // loading stops half way
  kCannotForm,  // Formed with an error of its own
  kDeaf,        // heartbeats name an old epoch
  kEnd
};

// A place where processes of one worker name run, one after the other.
struct Slot {
  std::string name, host, machine;
  int64_t memory_bytes = 0;  // there is
  int64_t told_bytes = 0;    // in Hello
  bool shares = false;       // memory_bytes are its machine's, for all that share there
  double speed = 1;
  std::map<std::string, std::string> labels;
  bool fresh = false;  // joins when all is calm

  bool alive = false;
  bool connected = false;
  bool leaving = false;
  WorkerId id;
  Mood mood = Mood::kGood;
  Time last_to_worker{}, last_to_master{};
  // The epoch it takes part in.
  ReplicaId replica;
  int epoch = 0, rank = -1;
  PlacementPlan plan;
  bool formed = false;
  Time left_epoch_at{};
  Heartbeat heartbeat;
  std::string held;        // the shard whose weights it has
  int64_t held_bytes = 0;  // that and its KV
  bool brought = false;    // it held them when it joined, and the master has not spoken to it since
};

inline int Pick(std::mt19937_64& random, int min, int max) {
  return std::uniform_int_distribution<int>(min, max)(random);
}
inline bool Chance(std::mt19937_64& random, int percent) { return Pick(random, 1, 100) <= percent; }

std::vector<PoolConfig> MakePools(std::mt19937_64& random);
// Some of any kind, and fresh ones of what every pool asks for, which join when all is calm.
std::vector<Slot> MakeSlots(std::mt19937_64& random, const std::vector<PoolConfig>& pools);

}  // namespace staffel::cluster::sim
