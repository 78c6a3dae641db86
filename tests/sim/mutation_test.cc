// Does the simulation find bugs? Each planted bug (sched/mutation.h) must be found within a bounded
// number of worlds, by an oracle or by an invariant. A world runs in a process of its own: an
// invariant aborts it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "sched/mutation.h"
#include "tests/sim/world.h"

namespace staffel::sim {
namespace {

using sched::Mutant;

struct PlantedBug {
  Mutant mutant;
  const char* name;
  int weak_hash_bits = -1;
};

constexpr PlantedBug kBugs[] = {
    {Mutant::kFreeBlocksInFlight, "FreeBlocksInFlight"},
    {Mutant::kReuseSlotInFlight, "ReuseSlotInFlight"},
    {Mutant::kSkipCopy, "SkipCopy"},
    {Mutant::kTrustHash, "TrustHash", 4},
    {Mutant::kPublishEarly, "PublishEarly"},
    {Mutant::kComputedOffByOne, "ComputedOffByOne"},
    {Mutant::kDropCancel, "DropCancel"},
    {Mutant::kForgetPreemptedTokens, "ForgetPreemptedTokens"},
    {Mutant::kIgnoreSalt, "IgnoreSalt"},
    {Mutant::kEvictPinned, "EvictPinned"},
    {Mutant::kLeakBlock, "LeakBlock"},
    {Mutant::kDoubleFree, "DoubleFree"},
    {Mutant::kCacheWholePrompt, "CacheWholePrompt"},
    {Mutant::kAcceptOldEpoch, "AcceptOldEpoch"},
    {Mutant::kPoolCachedPrompt, "PoolCachedPrompt"},
    {Mutant::kSkipOwedLogprobs, "SkipOwedLogprobs"},
    {Mutant::kPlanBeyondMaxTokens, "PlanBeyondMaxTokens"},
    {Mutant::kIgnoreStopToken, "IgnoreStopToken"},
    {Mutant::kStarveOldest, "StarveOldest"},
    {Mutant::kPrefillUnbounded, "PrefillUnbounded"},
    {Mutant::kCountHitsAgain, "CountHitsAgain"},
    {Mutant::kKeepCacheOverEpochs, "KeepCacheOverEpochs"},
    {Mutant::kForgetRelay, "ForgetRelay"},
    {Mutant::kRelayTwice, "RelayTwice"},
    {Mutant::kRelayAfterReturn, "RelayAfterReturn"},
    {Mutant::kRelayFirstAgain, "RelayFirstAgain"},
    {Mutant::kPromiseInPipeline, "PromiseInPipeline"},
    {Mutant::kMicroBatchTakesAll, "MicroBatchTakesAll"},
    {Mutant::kKeepLayoutOverEpochs, "KeepLayoutOverEpochs"},
    {Mutant::kKeepDepthOverEpochs, "KeepDepthOverEpochs"},
    {Mutant::kForgetForced, "ForgetForced"},
    {Mutant::kForceInFlight, "ForceInFlight"},
    {Mutant::kForceAfterReturn, "ForceAfterReturn"},
    {Mutant::kForceBeyondMaxTokens, "ForceBeyondMaxTokens"},
};
static_assert(std::size(kBugs) == static_cast<size_t>(Mutant::kEnd) - 1, "every mutant is tried");

constexpr uint64_t kWorldsMax = 3000;

struct Finding {
  uint64_t seed = 0;  // 0: not found
  std::string by;
};

// In the child: runs worlds until one fails, and says which and why through stdout.
[[noreturn]] void HuntInChild(bool invariants, int out) {
  dup2(out, STDERR_FILENO);  // a failed check prints there before it aborts
  for (uint64_t seed = 1; seed <= kWorldsMax; ++seed) {
    dprintf(out, "\n%llu ", static_cast<unsigned long long>(seed));
    const WorldResult result = RunWorld(seed, {.check_invariants = invariants});
    if (!result.failure.empty()) {
      dprintf(out, "oracle: %s", result.failure.c_str());
      _exit(1);
    }
  }
  _exit(0);
}

Finding Hunt(bool invariants) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) HuntInChild(invariants, ends[1]);
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string last = said.substr(said.rfind("\n", said.size() - 2) + 1);
  return {std::stoull(last), last};
}

std::string Describe(const Finding& finding) {
  return finding.seed == 0 ? "not found" : "world " + finding.by;
}

class PlantedBugs : public testing::TestWithParam<PlantedBug> {};

TEST_P(PlantedBugs, IsFound) {
  sched::active_mutant = GetParam().mutant;
  sched::weak_hash_bits = GetParam().weak_hash_bits;
  const Finding finding = Hunt(/*invariants=*/true);
  std::cout << "  with invariants: " << Describe(finding) << "\n"
            << "  by oracles alone: " << Describe(Hunt(/*invariants=*/false)) << "\n";
  sched::active_mutant = Mutant::kNone;
  sched::weak_hash_bits = -1;
  EXPECT_NE(finding.seed, 0u) << "not found in " << kWorldsMax << " worlds";
}

INSTANTIATE_TEST_SUITE_P(Mutants, PlantedBugs, testing::ValuesIn(kBugs),
                         [](const auto& info) { return std::string(info.param.name); });

// The hunt finds nothing where nothing is planted; a hash that collides all the time costs hits,
// not truth.
TEST(NoBug, IsNotFound) {
  EXPECT_EQ(Hunt(/*invariants=*/true).by, "");
  sched::weak_hash_bits = 4;
  EXPECT_EQ(Hunt(/*invariants=*/true).by, "");
  sched::weak_hash_bits = -1;
}

}  // namespace
}  // namespace staffel::sim
