// The mesh does what comm/local does, bit for bit, over shared memory and TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "comm/local/local_communicator.h"
#include "tests/support/seed.h"
#include "tests/unit/comm/mesh_world.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;

class MeshCommunicator : public ::testing::TestWithParam<MeshWay> {};
INSTANTIATE_TEST_SUITE_P(Ways, MeshCommunicator, ::testing::ValuesIn(kMeshWays),
                         [](const auto& info) { return info.param.name; });

// Values whose sum depends on its order, zeros of both signs among them.
std::vector<float> RandomFloats(std::mt19937_64& random, size_t count) {
  std::vector<float> values(count);
  for (float& x : values) {
    const uint64_t bits = random();
    x = static_cast<float>(static_cast<int32_t>(bits >> 32)) * ((bits & 7) ? 1e-3f : 1e4f);
    if ((bits >> 3 & 15) == 0) x = bits & 1 ? 0.0f : -0.0f;
  }
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
         });
}

// A schedule of calls that all ranks of all groups take part in.
struct Round {
  size_t reduced;           // floats
  std::vector<int> counts;  // sent by the members to the first
  size_t passed;            // floats that go from stage to stage
};

// Runs the schedule and returns, by rank, all values that came out, one after another.
std::vector<std::vector<float>> RunSchedule(Communicators& communicators, const Groups& groups,
                                            const std::vector<Round>& schedule, uint64_t seed) {
  std::vector<std::vector<float>> results(communicators.size());
  OnThreads(static_cast<int>(communicators.size()), [&](int rank) {
    int stage = 0;
    while (std::count(groups[stage].begin(), groups[stage].end(), rank) == 0) ++stage;
    Communicator& comm = *communicators[rank];
    std::mt19937_64 random(seed + rank);
    std::vector<float>& all = results[rank];
    const auto keep = [&](const std::vector<float>& values) {
      all.insert(all.end(), values.begin(), values.end());
    };
    for (const Round& round : schedule) {
      std::vector<float> passed(round.passed);
      if (stage > 0) {
        const Status status = comm.Recv(groups[stage - 1][comm.rank()], absl::MakeSpan(passed));
        ASSERT_TRUE(status.ok()) << status;
      }
      keep(passed);
      std::vector<float> reduced = RandomFloats(random, round.reduced);
      Status status = comm.AllReduceSum(absl::MakeSpan(reduced));
      ASSERT_TRUE(status.ok()) << status;
      keep(reduced);
      // Members send parts of uneven size to the first.
      const std::vector<int>& group = groups[stage];
      const std::vector<float> part = RandomFloats(random, round.counts[comm.rank()]);
      if (comm.rank() > 0) {
        status = comm.Send(group[0], part);
        ASSERT_TRUE(status.ok()) << status;
      }
      for (size_t member = 1; comm.rank() == 0 && member < group.size(); ++member) {
        std::vector<float> gathered(round.counts[member]);
        status = comm.Recv(group[member], absl::MakeSpan(gathered));
        ASSERT_TRUE(status.ok()) << status;
        keep(gathered);
      }
      if (stage + 1 < static_cast<int>(groups.size())) {
        status = comm.Send(groups[stage + 1][comm.rank()], RandomFloats(random, round.passed));
        ASSERT_TRUE(status.ok()) << status;
      }
    }
  });
  return results;
}

TEST_P(MeshCommunicator, GivesTheBitsOfOneProcess) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const Groups layouts[] = {{{0, 1}},        {{0, 1, 2}},      {{0, 1, 2, 3}},
                            {{0}, {1}, {2}}, {{0, 1}, {2, 3}}, {{2, 0}, {1, 3}}};
  for (const Groups& groups : layouts) {
    std::vector<Round> schedule;
    // Around the size from which slices are sent, nothing, one, and large ones.
    for (size_t size : {0, 1, 7, 16383, 16384, 16385, 16389, 300001}) {
      schedule.push_back({.reduced = size, .counts = {}, .passed = size});
    }
    for (int i = 0; i < 8; ++i) {
      const size_t limit = size_t{1} << random() % 17;
      schedule.push_back({random() % limit, {}, random() % limit});
    }
    for (Round& round : schedule) {
      for (size_t m = 0; m < groups[0].size(); ++m) {
        round.counts.push_back(static_cast<int>(random() % (round.reduced + 3)));
      }
    }
    Communicators local = MakeLocalCommunicators(groups);
    const Endpoints endpoints = MakeEndpoints(RankCount(groups), OptionsFor(GetParam()));
    Communicators mesh = FormAll(endpoints, groups);
    const auto expected = RunSchedule(local, groups, schedule, seed);
    const auto results = RunSchedule(mesh, groups, schedule, seed);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_TRUE(SameBits(results[rank], expected[rank]))
          << groups.size() << " stages, rank " << rank;
    }
  }
}

}  // namespace
}  // namespace staffel
