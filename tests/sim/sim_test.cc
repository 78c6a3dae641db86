// Thousands of seeded worlds. STAFFEL_SEED=n or --seed n runs world n alone, with its trace;
// STAFFEL_WORLDS or --worlds n sets how many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "tests/sim/world.h"

namespace staffel::sim {
namespace {

constexpr uint64_t kWorlds = 10000;

std::optional<uint64_t> Setting(const char* variable, const std::string& flag) {
  const auto arguments = testing::internal::GetArgvs();
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == flag) return std::stoull(arguments[i + 1]);
  }
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::stoull(text);
}

void Explain(uint64_t seed) {
  const WorldResult result = RunWorld(seed, {.trace = true});
  const size_t first = result.trace.size() > 200 ? result.trace.size() - 200 : 0;
  for (size_t i = first; i < result.trace.size(); ++i) std::cout << result.trace[i] << "\n";
  std::cout << (result.failure.empty() ? "no failure" : result.failure) << "\n";
}

TEST(Simulation, EveryWorldIsRight) {
  if (const auto seed = Setting("STAFFEL_SEED", "--seed")) {
    Explain(*seed);
    EXPECT_EQ(RunWorld(*seed).failure, "");
    return;
  }
  const uint64_t worlds = Setting("STAFFEL_WORLDS", "--worlds").value_or(kWorlds);
  Coverage coverage;
  for (uint64_t seed = 1; seed <= worlds; ++seed) {
    const WorldResult result = RunWorld(seed, {.coverage = &coverage});
    if (result.failure.empty()) continue;
    Explain(seed);
    FAIL() << "STAFFEL_SEED=" << seed << " repeats it: " << result.failure;
  }
  for (const auto& [what, count] : coverage) std::cout << what << ": " << count << "\n";
  // What the worlds are meant to show must have happened, often.
  for (const char* what : {"preemptions", "copies", "prefix hits", "losses", "stale outcomes",
                           "cancelled", "pool exhausted", "refused: queue full",
                           "refused: can never run", "stops", "layout changes", "requests given up",
                           "tokens relayed", "tokens forced", "all stages have a step"}) {
    EXPECT_GT(coverage[what], static_cast<int64_t>(worlds / 50)) << what;
  }
}

TEST(Simulation, TheSameSeedIsTheSameWorld) {
  for (uint64_t seed : {3u, 77u, 4242u}) {
    EXPECT_EQ(RunWorld(seed, {.trace = true}).trace, RunWorld(seed, {.trace = true}).trace)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace staffel::sim
