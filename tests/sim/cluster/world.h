// A seeded world for the cluster manager: pools, workers of all kinds that come, go, hang, fail and
// lie, and links that break. After a time of chaos everything heals and fresh workers come; then
// every replica must serve as its pool asks. One seed, one world.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace staffel::cluster::sim {

struct WorldOptions {
  bool trace = false;
  bool check_invariants = true;
  std::map<std::string, int64_t>* coverage = nullptr;  // how often things happened, added up
};

struct WorldResult {
  std::string failure;  // empty: all is right
  std::vector<std::string> trace;
};

WorldResult RunWorld(uint64_t seed, const WorldOptions& options = {});

}  // namespace staffel::cluster::sim
