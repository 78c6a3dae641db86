#include "worker/sequence_mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr MirrorLimits kLimits = {.vocab = 100,
                                  .block_size = 4,
                                  .block_count = 16,
                                  .max_rows = 20,
                                  .max_sampled_rows = 8,
                                  .max_positions = 32};

NewSequence Sequence(int slot, std::vector<TokenId> tokens) {
  NewSequence added;
  added.slot = Slot(slot);
  added.prompt_count = static_cast<int>(tokens.size());
  added.tokens = std::move(tokens);
  return added;
}

// A plan that brings a sequence of five tokens into slot 0 and computes it.
StepPlan FirstPlan() {
  StepPlan plan;
  plan.step = 1;
  plan.new_sequences = {Sequence(0, {10, 11, 12, 13, 14})};
  plan.block_appends = {{Slot(0), {BlockId(3), BlockId(7)}}};
  plan.chunks = {{Slot(0), 0, 5, true}};
  return plan;
}

TEST(SequenceMirror, FollowsASequenceFromPromptToRelease) {
  SequenceMirror mirror;
  mirror.Reset(kLimits);
  MirrorDigest master;
  StepPlan plan = FirstPlan();
  plan.digest = master.Apply(plan);
  ASSERT_TRUE(mirror.Apply(plan).ok());
  EXPECT_THAT(mirror.sequence(Slot(0)).blocks, ElementsAre(BlockId(3), BlockId(7)));
  mirror.Append(Slot(0), 55);
  EXPECT_THAT(mirror.sequence(Slot(0)).tokens, ElementsAre(10, 11, 12, 13, 14, 55));
  EXPECT_EQ(mirror.sequence(Slot(0)).generated_count(), 1);

  StepPlan decode;
  decode.step = 2;
  decode.chunks = {{Slot(0), 5, 1, true}};
  decode.digest = master.Apply(decode);
  ASSERT_TRUE(mirror.Apply(decode).ok());
  mirror.Append(Slot(0), 56);

  StepPlan release;
  release.step = 3;
  release.released = {Slot(0)};
  release.new_sequences = {Sequence(0, {1})};  // a slot is free again in the same plan
  release.digest = master.Apply(release);
  ASSERT_TRUE(mirror.Apply(release).ok());
  EXPECT_THAT(mirror.sequence(Slot(0)).tokens, ElementsAre(1));
  EXPECT_TRUE(mirror.sequence(Slot(0)).blocks.empty());
}

TEST(SequenceMirror, CountsTokensOnlyForPenalties) {
  SequenceMirror mirror;
  mirror.Reset(kLimits);
  StepPlan plan;
  plan.step = 1;
  plan.new_sequences = {Sequence(0, {5, 5, 6, 7, 7}), Sequence(1, {5})};
  plan.new_sequences[0].prompt_count = 3;  // 7, 7 were generated before a preemption
  plan.new_sequences[0].sampling.presence_penalty = 1;
  ASSERT_TRUE(mirror.Apply(plan).ok());
  auto entries = mirror.sequence(Slot(0)).counts.entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].token, 5);
  EXPECT_EQ(entries[0].generated, 0);
  EXPECT_EQ(entries[2].token, 7);
  EXPECT_EQ(entries[2].generated, 2);
  EXPECT_TRUE(mirror.sequence(Slot(1)).counts.entries().empty());
}

struct BadPlan {
  const char* name;
  std::function<void(StepPlan&)> spoil;  // of FirstPlan()
  const char* word;
};

class SequenceMirrorRefuses : public ::testing::TestWithParam<BadPlan> {};

TEST_P(SequenceMirrorRefuses, WithAReason) {
  SequenceMirror mirror;
  mirror.Reset(kLimits);
  StepPlan plan = FirstPlan();
  GetParam().spoil(plan);
  Status status = mirror.Apply(plan);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().word));
}

const BadPlan kBadPlans[] = {
    {"ReleaseOfNothing", [](StepPlan& p) { p.released = {Slot(5)}; }, "slot 5"},
    {"ReleaseOfNegative", [](StepPlan& p) { p.released = {Slot(-1)}; }, "slot -1"},
    {"NewInHugeSlot", [](StepPlan& p) { p.new_sequences[0].slot = Slot(1 << 30); }, "slot"},
    {"NewInNegativeSlot", [](StepPlan& p) { p.new_sequences[0].slot = Slot(-1); }, "slot -1"},
    {"NewInTakenSlot", [](StepPlan& p) { p.new_sequences.push_back(Sequence(0, {1})); }, "slot 0"},
    {"NoTokens", [](StepPlan& p) { p.new_sequences[0].tokens.clear(); }, "0 tokens"},
    {"TooManyTokens", [](StepPlan& p) { p.new_sequences[0].tokens.assign(33, 1); }, "33 tokens"},
    {"PromptBeyondTokens", [](StepPlan& p) { p.new_sequences[0].prompt_count = 6; }, "prompt"},
    {"EmptyPrompt", [](StepPlan& p) { p.new_sequences[0].prompt_count = 0; }, "prompt"},
    {"TokenBeyondVocabulary", [](StepPlan& p) { p.new_sequences[0].tokens[2] = 100; }, "100"},
    {"NegativeToken", [](StepPlan& p) { p.new_sequences[0].tokens[2] = -1; }, "-1"},
    {"StopTokenBeyondVocabulary", [](StepPlan& p) { p.new_sequences[0].stop_tokens = {100}; },
     "stop tokens"},
    {"BiasBeyondVocabulary",
     [](StepPlan& p) {
       p.new_sequences[0].sampling.logit_bias = {{4000, 1}};
     },
     "logit bias"},
    {"AllowedTokenBeyondVocabulary",
     [](StepPlan& p) {
       p.new_sequences[0].sampling.allowed_tokens = {1, 100};
     },
     "allowed tokens"},
    {"AllowedTokensInDisorder",
     [](StepPlan& p) {
       p.new_sequences[0].sampling.allowed_tokens = {2, 2};
     },
     "ascend"},
    {"BannedSequenceBeyondVocabulary",
     [](StepPlan& p) {
       p.new_sequences[0].sampling.banned_sequences = {{1}, {2, 100}};
     },
     "banned sequence"},
    {"EmptyBannedSequence",
     [](StepPlan& p) { p.new_sequences[0].sampling.banned_sequences = {{}}; }, "no tokens"},
    {"BlocksForNobody", [](StepPlan& p) { p.block_appends[0].slot = Slot(1); }, "slot 1"},
    {"BlockBeyondPool", [](StepPlan& p) { p.block_appends[0].blocks[1] = BlockId(16); }, "16"},
    {"NegativeBlock", [](StepPlan& p) { p.block_appends[0].blocks[1] = BlockId(-1); }, "-1"},
    {"TooManyBlocks", [](StepPlan& p) { p.block_appends[0].blocks.assign(9, BlockId(1)); },
     "9 blocks"},
    {"CopyBeyondPool",
     [](StepPlan& p) {
       p.block_copies = {{BlockId(1), BlockId(99)}};
     },
     "99"},
    {"ChunkOfNobody", [](StepPlan& p) { p.chunks[0].slot = Slot(2); }, "slot 2"},
    {"EmptyChunk", [](StepPlan& p) { p.chunks[0].count = 0; }, "empty"},
    {"NegativeStart", [](StepPlan& p) { p.chunks[0].start = -1; }, "before 0"},
    {"ChunkBeyondTokens", [](StepPlan& p) { p.chunks[0].count = 6; }, "5 known"},
    {"OverflowingChunk", [](StepPlan& p) { p.chunks[0].count = 2147483647; }, "known"},
    {"SamplesInTheMiddle", [](StepPlan& p) { p.chunks[0].count = 4; }, "samples before the end"},
    {"UncoveredChunk", [](StepPlan& p) { p.block_appends[0].blocks.pop_back(); }, "not covered"},
    {"ChunkAfterSampling",
     [](StepPlan& p) {
       p.chunks.push_back({Slot(0), 0, 1, false});
     },
     "samples"},
    {"GapBetweenChunks",
     [](StepPlan& p) {
       p.chunks = {{Slot(0), 0, 2, false}, {Slot(0), 3, 1, false}};
     },
     "gap"},
    {"TooManyRows",
     [](StepPlan& p) {
       for (int slot = 1; slot < 5; ++slot) {
         p.new_sequences.push_back(Sequence(slot, {1, 2, 3, 4}));
         p.block_appends.push_back({Slot(slot), {BlockId(slot)}});
         p.chunks.push_back({Slot(slot), 0, 4, false});
       }
     },
     "21 rows"},
    {"OtherDigest", [](StepPlan& p) { p.digest = 12345; }, "12345"},
};

INSTANTIATE_TEST_SUITE_P(Table, SequenceMirrorRefuses, ::testing::ValuesIn(kBadPlans),
                         [](const auto& info) { return std::string(info.param.name); });

// Of a rank without logits: FirstPlan, then `told`, then a chunk that computes it.
Status TellFirstStage(std::vector<KnownToken> told) {
  SequenceMirror mirror;
  MirrorLimits limits = kLimits;
  limits.draws_known = false;
  mirror.Reset(limits);
  EXPECT_TRUE(mirror.Apply(FirstPlan()).ok());
  StepPlan plan;
  plan.step = 2;
  plan.known_tokens = std::move(told);
  plan.chunks = {{Slot(0), 5, 1, true}};
  return mirror.Apply(plan);
}

TEST(SequenceMirror, ARankThatDoesNotSampleIsToldTokens) {
  EXPECT_TRUE(TellFirstStage({{Slot(0), 5, 55}}).ok());
  const struct {
    std::vector<KnownToken> told;
    const char* word;
  } refused[] = {
      {{}, "beyond the 5 known tokens"},
      {{{Slot(0), 5, 55}, {Slot(0), 5, 55}}, "told before"},
      {{{Slot(0), 5, 55}, {Slot(0), 6, 56}}, "no chunk has drawn it"},
      {{{Slot(0), 6, 55}}, "not the one before it"},
      {{{Slot(0), 4, 55}}, "prompt's"},
      {{{Slot(0), -1, 55}}, "prompt's"},
      {{{Slot(0), 5, 100}}, "100"},
      {{{Slot(0), 5, -1}}, "-1"},
      {{{Slot(1), 5, 55}}, "slot 1"},
      {{{Slot(-1), 5, 55}}, "slot -1"},
  };
  for (const auto& [told, word] : refused) {
    EXPECT_THAT(std::string(TellFirstStage(told).message()), HasSubstr(word));
  }
}

TEST(SequenceMirror, ARankThatSamplesComparesWhatIsTold) {
  const auto tell = [](KnownToken known) {
    SequenceMirror mirror;
    mirror.Reset(kLimits);
    EXPECT_TRUE(mirror.Apply(FirstPlan()).ok());
    mirror.Append(Slot(0), 55);
    StepPlan plan;
    plan.step = 2;
    plan.known_tokens = {known};
    Status status = mirror.Apply(plan);
    EXPECT_EQ(mirror.sequence(Slot(0)).tokens.size(), 6u);
    return status;
  };
  EXPECT_TRUE(tell({Slot(0), 5, 55}).ok());
  EXPECT_EQ(tell({Slot(0), 6, 55}).code(), absl::StatusCode::kInvalidArgument);
  const Status diverged = tell({Slot(0), 5, 54});
  EXPECT_EQ(diverged.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(diverged.message(),
            "this rank has diverged: at position 5 of slot 0 it knows token 55, the others 54");
}

TEST(SequenceMirror, ForcedTokensAreAppendedBehindAllThatIsDrawn) {
  const auto force = [](bool draws_known, std::vector<KnownToken> told,
                        std::vector<ForcedToken> forced) {
    SequenceMirror mirror;
    MirrorLimits limits = kLimits;
    limits.draws_known = draws_known;
    mirror.Reset(limits);
    EXPECT_TRUE(mirror.Apply(FirstPlan()).ok());
    if (draws_known) mirror.Append(Slot(0), 55);
    StepPlan plan;
    plan.step = 2;
    plan.known_tokens = std::move(told);
    plan.forced_tokens = std::move(forced);
    plan.chunks = {{Slot(0), 5, 3, true}};
    const Status status = mirror.Apply(plan);
    if (status.ok()) {
      const std::vector<TokenId>& tokens = mirror.sequence(Slot(0)).tokens;
      EXPECT_EQ(std::vector<TokenId>(tokens.end() - 3, tokens.end()),
                (std::vector<TokenId>{55, 56, 57}));
    }
    return status;
  };
  EXPECT_TRUE(force(true, {}, {{Slot(0), 6, 56}, {Slot(0), 7, 57}}).ok());
  EXPECT_TRUE(force(false, {{Slot(0), 5, 55}}, {{Slot(0), 6, 56}, {Slot(0), 7, 57}}).ok());
  const struct {
    bool draws_known;
    std::vector<ForcedToken> forced;
    const char* word;
  } refused[] = {
      {false, {{Slot(0), 6, 56}}, "being drawn"},   {true, {{Slot(0), 7, 56}}, "knows 6 tokens"},
      {true, {{Slot(0), 5, 56}}, "knows 6 tokens"}, {true, {{Slot(0), -1, 56}}, "knows 6 tokens"},
      {true, {{Slot(0), 6, 100}}, "100"},           {true, {{Slot(0), 6, -1}}, "-1"},
      {true, {{Slot(1), 6, 56}}, "slot 1"},         {true, {{Slot(-1), 6, 56}}, "slot -1"},
  };
  for (const auto& [draws_known, forced, word] : refused) {
    EXPECT_THAT(std::string(force(draws_known, {}, forced).message()), HasSubstr(word));
  }
}

// Blocks that another sequence has computed meanwhile are appended and passed over.
TEST(SequenceMirror, WholeBlocksMayBePassedOver) {
  SequenceMirror mirror;
  mirror.Reset(kLimits);
  StepPlan plan;
  plan.step = 1;
  plan.new_sequences = {Sequence(0, std::vector<TokenId>(3 * kLimits.block_size, 1))};
  plan.block_appends = {{Slot(0), {BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, kLimits.block_size, false}};
  ASSERT_TRUE(mirror.Apply(plan).ok());
  StepPlan next;
  next.step = 2;
  next.block_appends = {{Slot(0), {BlockId(2), BlockId(3)}}};
  next.chunks = {{Slot(0), 2 * kLimits.block_size, 2, false}};
  EXPECT_TRUE(mirror.Apply(next).ok());
}

TEST(SequenceMirror, LostAndDoubledPlansAreNoticed) {
  for (uint64_t next : {1, 3}) {
    SequenceMirror mirror;
    mirror.Reset(kLimits);
    ASSERT_TRUE(mirror.Apply(FirstPlan()).ok());
    mirror.Append(Slot(0), 1);
    StepPlan plan;
    plan.step = next;
    EXPECT_EQ(mirror.Apply(plan).code(), absl::StatusCode::kDataLoss);
  }
}

TEST(SequenceMirror, StepsOfANewEpochMayContinueTheCount) {
  SequenceMirror mirror;
  mirror.Reset(kLimits);
  StepPlan plan = FirstPlan();
  plan.step = 1000;
  EXPECT_TRUE(mirror.Apply(plan).ok());
}

// Plans made of random numbers never lead outside: refused, or applied, but no crash (with the
// sanitizers on, no bad access).
TEST(SequenceMirror, RandomPlansAreSafe) {
  std::mt19937_64 random(TestSeed());
  auto pick = [&]() -> int {
    switch (random() % 30) {
      case 0:
        return static_cast<int>(random());
      case 1:
        return -1;
      default:
        return static_cast<int>(random() % 4);
    }
  };
  int applied = 0;
  for (int round = 0; round < 20000; ++round) {
    SequenceMirror mirror;
    MirrorLimits limits = kLimits;
    limits.draws_known = round % 2 == 0;
    mirror.Reset(limits);
    for (int step = 1; step < 4; ++step) {
      StepPlan plan;
      plan.step = step;
      if (random() % 3 == 0) plan.known_tokens.push_back({Slot(pick()), pick() + 2, pick()});
      if (random() % 8 == 0) plan.forced_tokens.push_back({Slot(pick()), pick() + 2, pick()});
      if (random() % 8 == 0) plan.released.push_back(Slot(pick()));
      for (size_t i = random() % 3; i > 0; --i) {
        plan.new_sequences.push_back(
            Sequence(pick() % 8, std::vector<TokenId>(random() % 8, pick())));
      }
      for (size_t i = random() % 3; i > 0; --i) {
        plan.block_appends.push_back(
            {Slot(pick()), std::vector<BlockId>(random() % 4, BlockId(pick()))});
      }
      if (random() % 4 == 0) {
        plan.block_copies.push_back({BlockId(pick()), BlockId(pick())});
      }
      for (size_t i = random() % 3; i > 0; --i) {
        plan.chunks.push_back({Slot(pick()), pick(), pick(), random() % 2 == 0});
      }
      if (!mirror.Apply(plan).ok()) break;
      ++applied;
      for (const Chunk& chunk : plan.chunks) {
        if (chunk.samples && limits.draws_known) mirror.Append(chunk.slot, 1);
      }
    }
  }
  EXPECT_GT(applied, 1000);
}

}  // namespace
}  // namespace staffel
