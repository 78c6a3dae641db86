#include "base/digest.h"

#include <gtest/gtest.h>

namespace staffel {
namespace {

StepPlan FirstPlan() {
  StepPlan plan;
  plan.new_sequences.push_back({.slot = Slot(0), .tokens = {5, 6, 7}, .prompt_count = 3});
  plan.new_sequences.push_back({.slot = Slot(1), .tokens = {5, 6}, .prompt_count = 2});
  plan.block_appends.push_back({Slot(0), {BlockId(4), BlockId(9)}});
  plan.block_appends.push_back({Slot(1), {BlockId(2)}});
  plan.chunks.push_back({.slot = Slot(0), .start = 0, .count = 3, .samples = true});
  plan.chunks.push_back({.slot = Slot(1), .start = 0, .count = 1});
  return plan;
}

StepPlan DecodePlan() {
  StepPlan plan;
  plan.chunks.push_back({.slot = Slot(0), .start = 3, .count = 1, .samples = true});
  return plan;
}

TEST(MirrorDigest, EqualPlansGiveEqualValues) {
  MirrorDigest a, b;
  EXPECT_EQ(a.Apply(FirstPlan()), b.Apply(FirstPlan()));
  EXPECT_EQ(a.Apply(DecodePlan()), b.Apply(DecodePlan()));
}

TEST(MirrorDigest, EveryFieldOfTheMirrorCounts) {
  MirrorDigest reference;
  const uint64_t want = reference.Apply(FirstPlan());
  const auto changed = [&](auto&& change) {
    StepPlan plan = FirstPlan();
    change(plan);
    MirrorDigest digest;
    return digest.Apply(plan) != want;
  };
  EXPECT_TRUE(changed([](StepPlan& p) { p.new_sequences[0].tokens[1] = 8; }));
  EXPECT_TRUE(changed([](StepPlan& p) { p.new_sequences[0].prompt_count = 2; }));
  EXPECT_TRUE(changed([](StepPlan& p) { p.new_sequences[0].sequence_index = 1; }));
  EXPECT_TRUE(changed(
      [](StepPlan& p) { std::swap(p.block_appends[0].blocks[0], p.block_appends[0].blocks[1]); }));
  EXPECT_TRUE(changed([](StepPlan& p) { p.block_appends[1].blocks[0] = BlockId(3); }));
  EXPECT_TRUE(changed([](StepPlan& p) { p.chunks[0].count = 2; }));
  EXPECT_TRUE(changed([](StepPlan& p) { p.chunks[0].samples = false; }));
  EXPECT_TRUE(changed([](StepPlan& p) { p.block_copies.push_back({BlockId(1), BlockId(2)}); }));
  EXPECT_TRUE(
      changed([](StepPlan& p) { p.released.push_back(Slot(1)), p.new_sequences.pop_back(); }));
}

TEST(MirrorDigest, ALostPlanShowsAtTheNext) {
  MirrorDigest master, worker;
  master.Apply(FirstPlan());
  worker.Apply(FirstPlan());
  master.Apply(DecodePlan());
  StepPlan next;
  next.chunks.push_back({.slot = Slot(1), .start = 1, .count = 1});
  EXPECT_NE(master.Apply(next), worker.Apply(next));
}

TEST(MirrorDigest, ReleasedSlotsLeaveNoTrace) {
  MirrorDigest a, b;
  a.Apply(FirstPlan());
  StepPlan release;
  release.released = {Slot(0), Slot(1)};
  a.Apply(release);
  EXPECT_EQ(a.Apply(FirstPlan()), b.Apply(FirstPlan()));
}

TEST(MirrorDigest, KnownTokensCount) {
  const auto told = [](int position, TokenId token) {
    MirrorDigest digest;
    digest.Apply(FirstPlan());
    StepPlan plan = DecodePlan();
    plan.known_tokens = {{Slot(0), position, token}};
    return digest.Apply(plan);
  };
  EXPECT_EQ(told(3, 9), told(3, 9));
  EXPECT_NE(told(3, 9), told(3, 8));
  EXPECT_NE(told(3, 9), told(4, 9));
}

TEST(MirrorDigest, ForcedTokensCountAndAreNotKnownOnes) {
  const auto digest_with = [](std::vector<ForcedToken> forced, std::vector<KnownToken> known) {
    MirrorDigest digest;
    digest.Apply(FirstPlan());
    StepPlan plan = DecodePlan();
    plan.forced_tokens = std::move(forced);
    plan.known_tokens = std::move(known);
    return digest.Apply(plan);
  };
  EXPECT_EQ(digest_with({{Slot(0), 3, 9}}, {}), digest_with({{Slot(0), 3, 9}}, {}));
  EXPECT_NE(digest_with({{Slot(0), 3, 9}}, {}), digest_with({{Slot(0), 3, 8}}, {}));
  EXPECT_NE(digest_with({{Slot(0), 3, 9}}, {}), digest_with({{Slot(0), 4, 9}}, {}));
  EXPECT_NE(digest_with({{Slot(0), 3, 9}}, {}), digest_with({}, {{Slot(0), 3, 9}}));
}

TEST(MirrorDigest, AbsurdSlotsAreHarmless) {
  StepPlan plan;
  plan.forced_tokens = {{Slot(-1), 0, 5}, {Slot(2000000000), -1, -1}};
  plan.known_tokens = {{Slot(-1), 0, 5}, {Slot(2000000000), -1, -1}};
  plan.released = {Slot(-1), Slot(2000000000)};
  plan.chunks.push_back({.slot = Slot(-7), .start = 0, .count = 1});
  MirrorDigest digest;
  EXPECT_NE(digest.Apply(plan), 0u);
}

}  // namespace
}  // namespace staffel
