#include "plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/strings.h"
#include "tests/support/seed.h"
#include "tests/unit/plan/shapes.h"

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterShape Devices(std::vector<double> speeds) {
  ClusterShape cluster;
  for (double speed : speeds) {
    int index = static_cast<int>(cluster.devices.size());
    cluster.devices.push_back({{"cpu", index}, "host", 0, speed});
  }
  return cluster;
}

PlacementPlan Place(const ModelShape& model, std::vector<double> speeds, int tp, int pp) {
  Result<PlacementPlan> plan = MakePlacement(model, Devices(std::move(speeds)), {tp, pp});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : PlacementPlan();
}

TEST(MakePlacement, OneRankHoldsEverything) {
  PlacementPlan plan = Place(SmolLm2(), {1}, 1, 1);
  ASSERT_EQ(plan.ranks.size(), 1u);
  const RankShard& shard = plan.ranks[0];
  EXPECT_EQ(shard.layers, (Range{0, 30}));
  EXPECT_EQ(shard.q_heads, (Range{0, 9}));
  EXPECT_EQ(shard.kv_heads, (Range{0, 3}));
  EXPECT_EQ(shard.ffn, (Range{0, 1536}));
  EXPECT_EQ(shard.vocab, (Range{0, 49152}));
  EXPECT_TRUE(shard.first_stage && shard.last_stage);
  EXPECT_THAT(shard.group, ElementsAre(0));
  EXPECT_EQ(shard.previous_rank, -1);
  EXPECT_EQ(shard.next_rank, -1);
}

// Nine heads do not cut evenly, columns do: all meet between the two, so that columns could not
// make up for heads.
TEST(MakePlacement, HeadsAndColumnsAreCutEachBySpeed) {
  PlacementPlan plan = Place(SmolLm2(), {1, 1}, 2, 1);
  EXPECT_EQ(plan.ranks[0].q_heads, (Range{0, 5}));
  EXPECT_EQ(plan.ranks[1].q_heads, (Range{5, 9}));
  EXPECT_EQ(plan.ranks[0].kv_heads, (Range{0, 2}));
  EXPECT_EQ(plan.ranks[1].kv_heads, (Range{1, 3}));
  EXPECT_EQ(plan.ranks[0].ffn, (Range{0, 24 * 32}));
  EXPECT_EQ(plan.ranks[1].ffn, (Range{24 * 32, 48 * 32}));
}

TEST(MakePlacement, KvHeadsAreReplicatedWhereRanksOutnumberThem) {
  PlacementPlan plan = Place(SmolLm2(), {1, 1, 1, 1}, 4, 1);
  EXPECT_EQ(plan.ranks[1].q_heads, (Range{3, 6}));
  EXPECT_EQ(plan.ranks[2].q_heads, (Range{6, 8}));
  EXPECT_EQ(plan.ranks[3].q_heads, (Range{8, 9}));
  EXPECT_EQ(plan.ranks[2].kv_heads, (Range{2, 3}));
  EXPECT_EQ(plan.ranks[3].kv_heads, (Range{2, 3}));
}

// A KV head more than its share is worth it to a rank that would be much slower otherwise.
TEST(MakePlacement, KvHeadsAreRepeatedOnlyForMuchTime) {
  ModelShape model = SmolLm2();
  model.q_heads = 14;
  model.kv_heads = 2;
  PlacementPlan plan = Place(model, {1, 1, 1}, 3, 1);  // 5 + 1, 4 + 2, 5 + 1; else 7 + 1
  EXPECT_EQ(plan.ranks[1].q_heads, (Range{5, 9}));
  EXPECT_EQ(plan.ranks[1].kv_heads, (Range{0, 2}));
  model.q_heads = 64;
  model.kv_heads = 8;
  plan = Place(model, {1, 1, 1}, 3, 1);  // 27, 27 and 18 rather than 25 with four KV heads
  EXPECT_EQ(plan.ranks[0].q_heads, (Range{0, 24}));
  EXPECT_EQ(plan.ranks[2].kv_heads, (Range{6, 8}));
}

TEST(MakePlacement, FasterRanksGetMore) {
  PlacementPlan plan = Place(SmolLm2(), {3, 1}, 2, 1);
  EXPECT_EQ(plan.ranks[0].q_heads, (Range{0, 7}));
  EXPECT_EQ(plan.ranks[0].ffn.size(), 36 * 32);
  EXPECT_THAT(plan.ranks[0].group_vocab, ElementsAre(36864, 12288));
}

TEST(MakePlacement, StagesAreUnevenAndLinked) {
  PlacementPlan plan = Place(SmolLm2(), {2, 1}, 1, 2);
  // The last stage also projects on the vocabulary, worth eight layers.
  EXPECT_EQ(plan.ranks[0].layers, (Range{0, 26}));
  EXPECT_EQ(plan.ranks[1].layers, (Range{26, 30}));
  EXPECT_EQ(plan.ranks[0].next_rank, 1);
  EXPECT_EQ(plan.ranks[1].previous_rank, 0);
  EXPECT_EQ(plan.ranks[0].vocab.size(), 0);
  EXPECT_EQ(plan.ranks[1].vocab.size(), 49152);
}

TEST(MakePlacement, HeadGranuleKeepsQuantisationBlocksWhole) {
  ModelShape model = SmolLm2();
  model.q_heads = 16;
  model.kv_heads = 8;
  model.head_granule = 4;  // blocks of 256 over heads of 64
  PlacementPlan plan = Place(model, {1, 1, 1}, 3, 1);
  EXPECT_EQ(plan.ranks[0].q_heads, (Range{0, 8}));
  EXPECT_EQ(plan.ranks[1].q_heads, (Range{8, 12}));
  EXPECT_THAT(
      std::string(MakePlacement(model, Devices({1, 1, 1, 1, 1}), {5, 1}).status().message()),
      AllOf(HasSubstr("5"), HasSubstr("16 heads"), HasSubstr("at most 4")));
}

TEST(MakePlacement, RefusalsNameTheClashingNumbers) {
  struct Case {
    int devices, tp, pp;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {16, 16, 1, {"16", "9 heads", "3 KV heads"}},
      {40, 1, 31, {"31", "30 layers"}},
      {4, 3, 2, {"3", "2", "6 devices", "there are 4"}},
      {4, -1, 1, {"-1", "negative"}},
      {4, 100000, 100000, {"100000"}},
  };
  for (const Case& c : cases) {
    Status status =
        MakePlacement(SmolLm2(), Devices(std::vector<double>(c.devices, 1.0)), {c.tp, c.pp})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
  EXPECT_FALSE(MakePlacement(SmolLm2(), {}, {1, 1}).ok());
  EXPECT_FALSE(MakePlacement(SmolLm2(), Devices({0}), {1, 1}).ok());
  EXPECT_FALSE(MakePlacement(ModelShape(), Devices({1}), {1, 1}).ok());
}

TEST(MakePlacement, WeightsBeyondMemoryAreRefusedWithNumbers) {
  ClusterShape cluster = Devices({1, 1});
  for (DeviceShape& device : cluster.devices) device.memory_bytes = 64 << 20;
  Status status = MakePlacement(SmolLm2(), cluster, {1, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("90 MiB"), HasSubstr("64 MiB")));
  EXPECT_TRUE(MakePlacement(SmolLm2(), cluster, {2, 1}).ok());
}

TEST(MakePlacement, ZeroChoosesALayoutOverAllDevices) {
  EXPECT_EQ(Place(SmolLm2(), {1, 1, 1}, 0, 1).tensor_groups[0].size(), 3u);
  EXPECT_EQ(Place(SmolLm2(), {1, 1, 1}, 1, 0).tensor_groups.size(), 3u);
  EXPECT_EQ(Place(SmolLm2(), {1, 1, 1, 1}, 0, 0).ranks.size(), 4u);
}

TEST(MakePlacement, RandomShapesAreCoveredExactlyOnce) {
  std::mt19937_64 random(TestSeed());
  auto pick = [&](int min, int max) {
    return std::uniform_int_distribution<int>(min, max)(random);
  };
  int placed = 0;
  for (int round = 0; round < 4000; ++round) {
    const ModelShape m = RandomShape(random);
    const int tp = pick(1, 12), pp = pick(1, 5);
    std::vector<double> speeds;
    for (int i = 0; i < tp * pp; ++i) speeds.push_back(pick(0, 3) == 0 ? pick(1, 100) / 10.0 : 1.0);
    SCOPED_TRACE(StrCat("round ", round, ": heads ", m.q_heads, "/", m.kv_heads, " granule ",
                        m.head_granule, " ffn ", m.ffn, "/", m.ffn_granule, " tp ", tp, " pp ",
                        pp));
    Result<PlacementPlan> plan = MakePlacement(m, Devices(speeds), {tp, pp});
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
      const std::string message(plan.status().message());
      EXPECT_TRUE(message.find(StrCat(tp)) != message.npos ||
                  message.find(StrCat(pp)) != message.npos)
          << message;
      continue;
    }
    ++placed;
    CheckCover(m, *plan, tp, pp);
    if (HasFailure()) return;
  }
  EXPECT_GT(placed, 1000);
}

}  // namespace
}  // namespace staffel
