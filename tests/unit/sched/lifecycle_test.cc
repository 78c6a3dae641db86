// Cancellation, preemption, steps in flight, forks, epochs.
#include <gtest/gtest.h>

#include <map>

#include "base/strings.h"
#include "tests/unit/sched/harness.h"

namespace staffel::sched {
namespace {

TEST(Cancel, DuringPrefillReturnsBlocks) {
  Config config = SmallConfig();
  config.chunk_tokens_max = 8;
  Harness h(config);
  const RequestId id = h.Submit({.prompt = Tokens(0, 40), .max_tokens = 4});
  h.Step();
  h.Step();
  EXPECT_EQ(h.free_blocks(), 60);
  h.Cancel(id);
  EXPECT_EQ(h.FinishOf(id), "cancelled");
  EXPECT_EQ(h.free_blocks(), 64);
  EXPECT_FALSE(h.Step());
}

TEST(Cancel, WhileInFlightKeepsBlocksUntilTheOutcome) {
  Harness h(SmallConfig());
  const RequestId id = h.Submit({.prompt = Tokens(0, 12), .max_tokens = 4});
  ASSERT_TRUE(h.Plan());
  h.Cancel(id);
  EXPECT_EQ(h.FinishOf(id), "cancelled");
  EXPECT_EQ(h.free_blocks(), 61) << "a plan in flight writes them";
  h.Finish();
  EXPECT_EQ(h.free_blocks(), 64);
  EXPECT_TRUE(h.TextOf(id).empty());
}

TEST(Cancel, TheSlotIsReleasedByTheNextPlan) {
  Harness h(SmallConfig());
  const RequestId id = h.Submit({.prompt = Tokens(0, 4), .max_tokens = 9});
  h.Step();
  h.Cancel(id);
  h.Submit({.prompt = Tokens(50, 4), .max_tokens = 1});
  ASSERT_TRUE(h.Step());
  EXPECT_EQ(h.last.released, std::vector<Slot>{Slot(0)});
}

TEST(Cancel, ARetryFindsOnlyWhatWasComputed) {
  Config config = SmallConfig();
  config.chunk_tokens_max = 8;
  Harness h(config);
  const RequestId first = h.Submit({.prompt = Tokens(0, 40), .max_tokens = 4});
  h.Step();
  ASSERT_TRUE(h.Plan());
  h.Cancel(first);
  const RequestId second = h.Submit({.prompt = Tokens(0, 40), .max_tokens = 4});
  ASSERT_TRUE(h.Plan());  // the second chunk of the first is still in flight
  EXPECT_EQ(h.last.chunks[0].start, 8);
  h.Finish();
  h.Finish();
  h.RunToEnd();
  EXPECT_EQ(h.FinishOf(second), "length");
}

TEST(Cancel, OneOfSeveralLeavesTheOthers) {
  Harness h(SmallConfig());
  const RequestId id = h.Submit({.prompt = Tokens(0, 6), .n = 3, .max_tokens = 5});
  h.Step();
  h.Step();
  h.Cancel(id, 1);
  h.RunToEnd();
  EXPECT_EQ(h.FinishOf(id, 0), "length");
  EXPECT_EQ(h.FinishOf(id, 1), "cancelled");
  EXPECT_EQ(h.FinishOf(id, 2), "length");
  EXPECT_EQ(h.free_blocks(), 64);
}

TEST(Cancel, TheOneThatComputesThePromptHandsItOver) {
  Config config = SmallConfig();
  config.chunk_tokens_max = 8;
  Harness h(config);
  const RequestId id = h.Submit({.prompt = Tokens(0, 20), .n = 2, .max_tokens = 2});
  h.Step();
  h.Cancel(id, 0);
  h.RunToEnd();
  EXPECT_EQ(h.FinishOf(id, 0), "cancelled");
  EXPECT_EQ(h.FinishOf(id, 1), "length");
  EXPECT_EQ(h.TextOf(id, 1).size(), 2u);
  EXPECT_EQ(h.FirstOf(id, 1).cached_tokens, 8) << "what the first had computed";
}

TEST(Cancel, UnknownIsIgnored) {
  Harness h(SmallConfig());
  h.Cancel(RequestId(77));
  EXPECT_TRUE(h.events.empty());
}

TEST(Fork, SharesFullBlocksAndCopiesThePartialOne) {
  Harness h(SmallConfig());
  const RequestId id = h.Submit({.prompt = Tokens(0, 10), .n = 3, .max_tokens = 3});
  ASSERT_TRUE(h.Step());
  ASSERT_EQ(h.last.chunks.size(), 1u) << "the prompt is computed once";
  ASSERT_TRUE(h.Step());
  // Blocks 0 and 1 are full; block 2 holds tokens 8 and 9.
  ASSERT_EQ(h.last.block_copies.size(), 2u);
  EXPECT_EQ(h.last.block_copies[0].source, BlockId(2));
  ASSERT_EQ(h.last.new_sequences.size(), 2u);
  EXPECT_EQ(h.last.new_sequences[0].sequence_index, 1);
  ASSERT_EQ(h.last.block_appends.size(), 2u);
  EXPECT_EQ(h.last.block_appends[0].blocks,
            (std::vector<BlockId>{BlockId(0), BlockId(1), h.last.block_copies[0].target}));
  ASSERT_EQ(h.last.chunks.size(), 3u);
  EXPECT_EQ(h.last.chunks[1].start, 9)
      << "each draws its first token from its own last prompt token";
  EXPECT_TRUE(h.last.chunks[1].samples);
  h.RunToEnd();
  for (int i : {0, 1, 2}) EXPECT_EQ(h.TextOf(id, i).size(), 3u);
  EXPECT_EQ(h.computed_tokens, 10 + 2 + 3 * 2);
  EXPECT_EQ(h.free_blocks(), 64);
}

TEST(Fork, AtABlockBoundaryNothingIsCopied) {
  Harness h(SmallConfig());
  h.Submit({.prompt = Tokens(0, 9), .n = 2, .max_tokens = 3});
  h.Step();
  h.Step();
  EXPECT_TRUE(h.last.block_copies.empty());
  EXPECT_EQ(h.last.block_appends[0].blocks.size(), 3u);
  h.RunToEnd();
}

TEST(Fork, MoreSequencesThanSlotsRunInTurn) {
  Config config = SmallConfig();
  config.max_sequences = 2;
  Harness h(config);
  const RequestId id = h.Submit({.prompt = Tokens(0, 6), .n = 7, .max_tokens = 4});
  h.RunToEnd();
  for (int i = 0; i < 7; ++i) EXPECT_EQ(h.TextOf(id, i).size(), 4u);
  EXPECT_EQ(h.free_blocks(), 64);
}

TEST(Preemption, TakesTheLastAndKeepsItsTokens) {
  // 8 blocks of 4: three sequences of 4 + 12 tokens want 3 * 4.
  Harness h(SmallConfig(/*block_count=*/8));
  h.draw = [](const Chunk& chunk) { return 100 + chunk.start + chunk.count - 1; };
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i)
    ids.push_back(h.Submit({.prompt = Tokens(10 * i, 4), .max_tokens = 12}));
  NewSequence again;
  while (h.Step()) {
    if (h.scheduler.stats().preemptions > 0 && !h.last.new_sequences.empty()) {
      again = h.last.new_sequences[0];
      break;
    }
  }
  EXPECT_EQ(std::vector<TokenId>(again.tokens.begin(), again.tokens.begin() + 4), Tokens(20, 4));
  EXPECT_GT(again.tokens.size(), 4u) << "it comes back with what it has generated";
  EXPECT_EQ(again.prompt_count, 4);
  h.RunToEnd();
  for (RequestId id : ids) {
    EXPECT_EQ(h.TextOf(id), Tokens(103, 12)) << "no token twice, none missing";
    EXPECT_EQ(h.FinishOf(id), "length");
  }
}

TEST(Preemption, TakesTheLowerPriorityFirst) {
  Harness h(SmallConfig(/*block_count=*/8));
  const RequestId low = h.Submit({.prompt = Tokens(0, 4), .max_tokens = 20, .priority = 1});
  h.Step();
  const RequestId high = h.Submit({.prompt = Tokens(20, 4), .max_tokens = 20, .priority = 0});
  while (h.Step() && h.scheduler.stats().preemptions == 0) {
  }
  EXPECT_EQ(h.scheduler.running_count(), 1);
  h.RunToEnd();
  int finished_first = 0;
  for (const SeqEvent& event : h.events) {
    if (event.finish.has_value() && finished_first == 0)
      finished_first = static_cast<int>(event.request.value);
  }
  EXPECT_EQ(finished_first, static_cast<int>(high.value));
  EXPECT_EQ(h.TextOf(low).size(), 20u);
}

TEST(Preemption, WhileInFlightWaitsForTheOutcomeAndKeepsItsToken) {
  Config config = SmallConfig(/*block_count=*/4);
  config.promised_tokens_max = 2;
  Harness h(config);
  h.draw = [](const Chunk& chunk) { return 100 + chunk.start + chunk.count - 1; };
  const RequestId a = h.Submit({.prompt = Tokens(0, 4), .max_tokens = 8});
  const RequestId b = h.Submit({.prompt = Tokens(20, 4), .max_tokens = 8});
  int steps = 0;
  while (steps++ < 200 && h.scheduler.HasWork()) {
    while (h.in_flight.size() < 2 && h.Plan()) {
    }
    if (!h.in_flight.empty()) h.Finish();
  }
  EXPECT_GT(h.scheduler.stats().preemptions, 0u);
  EXPECT_EQ(h.TextOf(a), Tokens(103, 8));
  EXPECT_EQ(h.TextOf(b), Tokens(103, 8));
}

TEST(Depth, PlansAheadOfTheOutcome) {
  Config config = SmallConfig();
  config.promised_tokens_max = 2;
  Harness h(config);
  const RequestId id = h.Submit({.prompt = Tokens(0, 4), .max_tokens = 3});
  ASSERT_TRUE(h.Plan());
  ASSERT_TRUE(h.Plan());
  EXPECT_EQ(h.last.chunks[0].start, 4) << "the token that the first step draws";
  EXPECT_TRUE(h.last.chunks[0].samples);
  EXPECT_FALSE(h.Plan()) << "two tokens are promised";
  h.Finish();
  ASSERT_TRUE(h.Plan());
  h.Finish();
  EXPECT_FALSE(h.Plan()) << "max_tokens is known in advance: nothing is planned beyond it";
  h.Finish();
  EXPECT_EQ(h.TextOf(id).size(), 3u);
  EXPECT_EQ(h.FinishOf(id), "length");
}

TEST(Depth, WhatWasPlannedBeyondAStopIsDropped) {
  Config config = SmallConfig();
  config.promised_tokens_max = 3;
  Harness h(config);
  const RequestId id = h.Submit({.prompt = Tokens(0, 4), .max_tokens = 9, .stop_tokens = {7}});
  ASSERT_TRUE(h.Plan() && h.Plan() && h.Plan());
  h.Finish();
  EXPECT_EQ(h.FinishOf(id), "stop");
  EXPECT_LT(h.free_blocks(), 64) << "steps in flight still write";
  h.Finish();
  h.Finish();
  EXPECT_EQ(h.TextOf(id).size(), 1u);
  EXPECT_EQ(h.free_blocks(), 64);
  EXPECT_FALSE(h.Plan());
}

std::string Told(const StepPlan& plan) {
  std::string text;
  for (const KnownToken& known : plan.known_tokens) {
    StrAppend(text, known.slot.value, "@", known.position, "=", known.token, " ");
  }
  return text;
}

TEST(Relay, TellsEachDrawnTokenOnceWithTheChunkThatComputesIt) {
  Config config = SmallConfig(/*block_count=*/8);
  config.relay_tokens = true;
  Harness h(config);
  h.draw = [](const Chunk& chunk) { return 100 + chunk.start + chunk.count - 1; };
  h.Submit({.prompt = Tokens(0, 4), .max_tokens = 3});
  h.Submit({.prompt = Tokens(20, 5), .max_tokens = 3});
  h.Step();
  EXPECT_EQ(Told(h.last), "") << "prompts come whole";
  h.Step();
  EXPECT_EQ(Told(h.last), "0@4=103 1@5=104 ");
  h.Step();
  EXPECT_EQ(Told(h.last), "0@5=104 1@6=105 ");
  EXPECT_FALSE(h.Step()) << "the last token is of no use to workers";
}

TEST(Relay, WithoutRanksThatNeedItNothingIsTold) {
  Harness h(SmallConfig());
  h.Submit({.prompt = Tokens(0, 4), .max_tokens = 3});
  while (h.Step()) EXPECT_EQ(Told(h.last), "");
}

TEST(Relay, WhatCameBackFromAPreemptionIsNotToldAgain) {
  Config config = SmallConfig(/*block_count=*/8);
  config.relay_tokens = true;
  Harness h(config);
  h.draw = [](const Chunk& chunk) { return 100 + chunk.start + chunk.count - 1; };
  for (int i = 0; i < 3; ++i) h.Submit({.prompt = Tokens(10 * i, 4), .max_tokens = 12});
  std::map<int, int> known;  // tokens that a rank without logits has of each slot
  int given = 0;
  while (h.Step()) {
    for (const KnownToken& told : h.last.known_tokens) {
      EXPECT_EQ(told.position, known[told.slot.value]++);
    }
    for (const NewSequence& s : h.last.new_sequences) {
      known[s.slot.value] = static_cast<int>(s.tokens.size());
      given += known[s.slot.value] - s.prompt_count;
    }
    for (const Chunk& chunk : h.last.chunks) {
      EXPECT_LE(chunk.start + chunk.count, known[chunk.slot.value]);
    }
  }
  EXPECT_GT(given, 0) << "a preemption";
}

std::string Forced(const StepPlan& plan) {
  std::string text;
  for (const ForcedToken& forced : plan.forced_tokens) {
    StrAppend(text, forced.slot.value, "@", forced.position, "=", forced.token, " ");
  }
  return text;
}

// The answer is 0, 1, 2, ...; 2 to 6 are forced.
void ForceTwoToSix(Harness& h, int prompt_count) {
  h.draw = [=](const Chunk& chunk) { return chunk.start + chunk.count - prompt_count; };
  h.forced = [=](const Chunk& chunk) {
    const int drawn = chunk.start + chunk.count - prompt_count;
    return drawn >= 2 && drawn < 6 ? Tokens(drawn + 1, 6 - drawn) : std::vector<TokenId>();
  };
}

TEST(Forced, TokensAreKnownWithTheFirstAndComputedInOneChunk) {
  Harness h(SmallConfig());
  ForceTwoToSix(h, 4);
  const RequestId id = h.Submit({.prompt = Tokens(90, 4), .max_tokens = 9});
  for (int i = 0; i < 3; ++i) h.Step();
  EXPECT_EQ(h.TextOf(id), Tokens(0, 7));
  ASSERT_TRUE(h.Step());
  EXPECT_EQ(Forced(h.last), "0@7=3 0@8=4 0@9=5 0@10=6 ");
  ASSERT_EQ(h.last.chunks.size(), 1u);
  EXPECT_EQ(h.last.chunks[0].start, 6);
  EXPECT_EQ(h.last.chunks[0].count, 5);
  h.Step();
  EXPECT_EQ(Forced(h.last), "");
  EXPECT_EQ(h.TextOf(id), Tokens(0, 9));
  EXPECT_EQ(h.FinishOf(id), "length");
  EXPECT_EQ(h.scheduler.stats().forced_tokens, 4u);
  EXPECT_EQ(h.scheduler.stats().generation_tokens, 9u);
}

TEST(Forced, MaxTokensAndStopTokensEndThem) {
  Harness h(SmallConfig());
  ForceTwoToSix(h, 4);
  const RequestId length = h.Submit({.prompt = Tokens(90, 4), .max_tokens = 5});
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(length), Tokens(0, 5));
  EXPECT_EQ(h.FinishOf(length), "length");
  const RequestId stop = h.Submit({.prompt = Tokens(80, 4), .max_tokens = 20, .stop_tokens = {4}});
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(stop), Tokens(0, 5));
  EXPECT_EQ(h.FinishOf(stop), "stop");
  EXPECT_EQ(h.free_blocks(), 64);
}

TEST(Forced, ACompleteAnswerEndsBeforeMinTokens) {
  Harness h(SmallConfig());
  h.draw = [](const Chunk& chunk) { return chunk.start + chunk.count == 6 ? 7 : 1; };
  h.complete = [](const Chunk& chunk) { return chunk.start + chunk.count == 6; };
  const RequestId id =
      h.Submit({.prompt = Tokens(90, 4), .max_tokens = 9, .min_tokens = 8, .stop_tokens = {7}});
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(id).size(), 3u);
  EXPECT_EQ(h.FinishOf(id), "stop");
}

// Two draws are in flight: the second brings the first forced token, and waits for no third.
TEST(Forced, DrawsInFlightBringTheFirst) {
  Config config = SmallConfig();
  config.promised_tokens_max = 2;
  Harness h(config);
  ForceTwoToSix(h, 4);
  const RequestId id = h.Submit({.prompt = Tokens(90, 4), .max_tokens = 9});
  h.Plan();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(h.Plan());
    h.Finish();
  }
  ASSERT_TRUE(h.Plan());
  h.Finish();  // draws 2; the step that draws 3 is in flight
  EXPECT_FALSE(h.Plan()) << "4, 5 and 6 are about to be known";
  h.Finish();
  EXPECT_EQ(h.TextOf(id), Tokens(0, 7));
  ASSERT_TRUE(h.Plan());
  EXPECT_EQ(Forced(h.last), "0@8=4 0@9=5 0@10=6 ");
  h.Finish();
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(id), Tokens(0, 9));
}

TEST(Forced, WhatCameBackFromAPreemptionIsNotToldAgain) {
  for (bool relay : {false, true}) {
    Config config = SmallConfig(/*block_count=*/8);
    config.relay_tokens = relay;
    Harness h(config);
    ForceTwoToSix(h, 4);
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i) {
      ids.push_back(h.Submit({.prompt = Tokens(60 + 10 * i, 4), .max_tokens = 12}));
    }
    std::map<int, int> known;  // tokens that a rank has of each slot
    int given = 0, forced = 0;
    while (h.Step()) {
      for (const KnownToken& told : h.last.known_tokens) {
        EXPECT_EQ(told.position, known[told.slot.value]++);
      }
      for (const ForcedToken& told : h.last.forced_tokens) {
        EXPECT_EQ(told.position, known[told.slot.value]++);
        ++forced;
      }
      for (const NewSequence& s : h.last.new_sequences) {
        known[s.slot.value] = static_cast<int>(s.tokens.size());
        given += known[s.slot.value] - s.prompt_count;
      }
      for (const Chunk& chunk : h.last.chunks) {
        EXPECT_LE(chunk.start + chunk.count, known[chunk.slot.value]);
        if (!relay && chunk.samples) ++known[chunk.slot.value];
      }
    }
    EXPECT_GT(given, 0) << "a preemption";
    EXPECT_GT(forced, 0);
    for (RequestId id : ids) EXPECT_EQ(h.TextOf(id), Tokens(0, 12));
  }
}

TEST(Epoch, SequencesComeBackWithTheirTokens) {
  Harness h(SmallConfig());
  h.draw = [](const Chunk& chunk) { return 100 + chunk.start + chunk.count - 1; };
  const RequestId id = h.Submit({.prompt = Tokens(0, 6), .n = 2, .max_tokens = 8});
  for (int i = 0; i < 4; ++i) h.Step();
  ASSERT_TRUE(h.Plan());
  const StepOutcome late = h.Answer(h.in_flight.front());
  h.in_flight.clear();
  h.scheduler.BeginEpoch({.epoch = 2, .block_count = 64}, h.events);
  h.scheduler.CheckInvariants();
  EXPECT_FALSE(h.scheduler.IsCurrent(late));
  EXPECT_EQ(h.free_blocks(), 64);
  ASSERT_TRUE(h.Step());
  EXPECT_EQ(h.last.epoch, 2);
  EXPECT_EQ(h.last.chunks[0].start, 0) << "new workers hold no KV";
  EXPECT_EQ(h.last.new_sequences[0].tokens.size(), 6u + 4);
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(id, 0), Tokens(105, 8));
  EXPECT_EQ(h.TextOf(id, 1), Tokens(105, 8));
}

TEST(Epoch, ASmallerPoolEndsWhatItCannotHold) {
  Harness h(SmallConfig());
  const RequestId running = h.Submit({.prompt = Tokens(0, 30), .max_tokens = 8});
  h.Step();
  const RequestId waiting = h.Submit({.prompt = Tokens(40, 30), .max_tokens = 8});
  const RequestId small = h.Submit({.prompt = Tokens(80, 3), .max_tokens = 2});
  h.scheduler.BeginEpoch({.epoch = 2, .block_count = 4}, h.events);
  EXPECT_EQ(h.FinishOf(running), "length");
  EXPECT_EQ(h.FinishOf(waiting), "error");
  h.RunToEnd();
  EXPECT_EQ(h.FinishOf(small), "length");
  EXPECT_EQ(h.free_blocks(), 4);
}

TEST(Fail, EndsEverythingOnce) {
  Harness h(SmallConfig());
  const RequestId a = h.Submit({.prompt = Tokens(0, 6), .n = 2, .max_tokens = 8});
  h.Step();
  const RequestId b = h.Submit({.prompt = Tokens(0, 6), .max_tokens = 8});
  ASSERT_TRUE(h.Plan());
  h.scheduler.Fail(absl::UnavailableError("gone"), h.events);
  EXPECT_EQ(h.FinishOf(a, 0), "error");
  EXPECT_EQ(h.FinishOf(a, 1), "error");
  EXPECT_EQ(h.FinishOf(b), "error");
  EXPECT_FALSE(h.scheduler.HasWork());
  h.Finish();
  EXPECT_EQ(h.free_blocks(), 64);
  EXPECT_EQ(h.scheduler.stats().finished_error, 3u);
}

}  // namespace
}  // namespace staffel::sched
