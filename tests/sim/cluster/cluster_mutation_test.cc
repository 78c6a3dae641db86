// Does the simulation of clusters find bugs? Each planted bug (cluster/mutation.h) must be found
// within a bounded number of worlds, by the referee or by a check that aborts: worlds run in a
// process of their own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "cluster/mutation.h"
#include "tests/sim/cluster/world.h"

namespace staffel::cluster {

Mutant active_mutant = Mutant::kNone;

namespace sim {
namespace {

constexpr uint64_t kWorldsMax = 300;

struct PlantedBug {
  Mutant mutant;
  const char* name;
};

constexpr PlantedBug kBugs[] = {
    {Mutant::kFormEarly, "FormEarly"},
    {Mutant::kKeepEpoch, "KeepEpoch"},
    {Mutant::kAcceptOldEpoch, "AcceptOldEpoch"},
    {Mutant::kServeEarly, "ServeEarly"},
    {Mutant::kForgetAbort, "ForgetAbort"},
    {Mutant::kForgetRelease, "ForgetRelease"},
    {Mutant::kKeepLeavers, "KeepLeavers"},
    {Mutant::kUseLeavers, "UseLeavers"},
    {Mutant::kWaitForAll, "WaitForAll"},
    {Mutant::kIgnoreLabels, "IgnoreLabels"},
    {Mutant::kNoBackoff, "NoBackoff"},
    {Mutant::kOverlookLoss, "OverlookLoss"},
    {Mutant::kOverlookTimeout, "OverlookTimeout"},
    {Mutant::kOverlookStall, "OverlookStall"},
    {Mutant::kOverlookHang, "OverlookHang"},
    {Mutant::kOverlookLink, "OverlookLink"},
    {Mutant::kHastyLink, "HastyLink"},
    {Mutant::kStayDegraded, "StayDegraded"},
    {Mutant::kHoard, "Hoard"},
    {Mutant::kLargestPool, "LargestPool"},
    {Mutant::kPromiseTwice, "PromiseTwice"},
    {Mutant::kGiveUpTwice, "GiveUpTwice"},
    {Mutant::kNeverGiveUp, "NeverGiveUp"},
    {Mutant::kRestless, "Restless"},
    {Mutant::kForgetBlame, "ForgetBlame"},
};
static_assert(std::size(kBugs) == static_cast<size_t>(Mutant::kEnd) - 1, "every mutant is tried");

// What the worlds up to the first failure said; empty: none fails.
std::string Hunt() {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);  // a failed check prints there before it aborts
    uint64_t seed = 1;
    std::string failure;
    try {
      for (; seed <= kWorldsMax && failure.empty(); ++seed) failure = RunWorld(seed).failure;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (failure.empty()) _exit(0);
    dprintf(ends[1], "world %d: %s", static_cast<int>(seed - 1), failure.c_str());
    _exit(1);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return said.empty() ? "it died" : said;
}

class PlantedBugs : public testing::TestWithParam<PlantedBug> {};

TEST_P(PlantedBugs, IsFound) {
  active_mutant = GetParam().mutant;
  const std::string found = Hunt();
  active_mutant = Mutant::kNone;
  std::cout << "  " << found << "\n";
  EXPECT_NE(found, "") << "not found in " << kWorldsMax << " worlds";
}

INSTANTIATE_TEST_SUITE_P(Mutants, PlantedBugs, testing::ValuesIn(kBugs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(NoBug, IsNotFound) { EXPECT_EQ(Hunt(), ""); }

}  // namespace
}  // namespace sim
}  // namespace staffel::cluster
