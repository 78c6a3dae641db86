// Thousands of seeded worlds. STAFFEL_SEED=n runs world n alone, with its trace; STAFFEL_WORLDS=n
// sets how many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "tests/sim/cluster/world.h"

namespace staffel::cluster::sim {
namespace {

constexpr uint64_t kWorlds = 1500;

std::optional<uint64_t> Setting(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::stoull(text);
}

void Explain(uint64_t seed) {
  const WorldResult result = RunWorld(seed, {.trace = true});
  const size_t first = result.trace.size() > 400 ? result.trace.size() - 400 : 0;
  for (size_t i = first; i < result.trace.size(); ++i) std::cout << result.trace[i] << "\n";
  std::cout << (result.failure.empty() ? "no failure" : result.failure) << "\n";
}

TEST(ClusterSimulation, EveryWorldIsRight) {
  if (const auto seed = Setting("STAFFEL_SEED")) {
    Explain(*seed);
    EXPECT_EQ(RunWorld(*seed).failure, "");
    return;
  }
  const uint64_t worlds = Setting("STAFFEL_WORLDS").value_or(kWorlds);
  std::map<std::string, int64_t> coverage;
  for (uint64_t seed = 1; seed <= worlds; ++seed) {
    const WorldResult result = RunWorld(seed, {.coverage = &coverage});
    if (result.failure.empty()) continue;
    Explain(seed);
    FAIL() << "STAFFEL_SEED=" << seed << " repeats it: " << result.failure;
  }
  for (const auto& [what, count] : coverage) std::cout << what << ": " << count << "\n";
  for (const char* what :
       {"serving", "losses", "planned changes", "gave up", "disconnects", "leaves", "failed steps",
        "parted", "stalls", "broken links", "long steps", "weights kept", "twins"}) {
    EXPECT_GT(coverage[what], static_cast<int64_t>(worlds / 20)) << what;
  }
}

TEST(ClusterSimulation, TheSameSeedIsTheSameWorld) {
  for (uint64_t seed : {3u, 77u, 1234u}) {
    EXPECT_EQ(RunWorld(seed, {.trace = true}).trace, RunWorld(seed, {.trace = true}).trace)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace staffel::cluster::sim
