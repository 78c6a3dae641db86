// One simulated world: the real engine and scheduler, fake clients, transport, workers and clock,
// all from one seed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace staffel::sim {

// What worlds have seen, to show that a run of the simulation was not an empty one.
using Coverage = std::map<std::string, int64_t>;

struct WorldResult {
  std::string failure;  // empty: every oracle is content
  std::vector<std::string> trace;
};

struct WorldOptions {
  bool trace = false;            // keep a line for every event
  bool check_invariants = true;  // of the scheduler, after every event
  Coverage* coverage = nullptr;  // counts what happened
};

WorldResult RunWorld(uint64_t seed, const WorldOptions& options = {});

}  // namespace staffel::sim
