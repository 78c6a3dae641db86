#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/server/inference/world.h"

namespace staffel::api::inference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Generate, StreamsPiecesAndEndsWithUsage) {
  InferenceWorld world;
  world.engine->cached_tokens = 2;
  v1::GenerateRequest request = Prompt("abc");
  request.set_model("alias");
  request.mutable_sampling()->set_max_tokens(9);
  auto call = world.Generate(request);
  EXPECT_TRUE(call->begun);
  EXPECT_THAT(call->messages, IsEmpty());
  ASSERT_THAT(world.engine->requests, SizeIs(1));
  EXPECT_THAT(world.engine->requests[0].prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(world.engine->requests[0].max_tokens, 9);
  world.engine->Say("x");
  world.engine->Say("yz", FinishReason::kLength);
  ASSERT_THAT(call->messages, SizeIs(3));
  EXPECT_EQ(call->messages[0].choices(0).text(), "x");
  EXPECT_EQ(call->messages[0].choices(0).finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_FALSE(call->messages[0].has_usage());
  EXPECT_EQ(call->messages[0].model(), "tiny");
  EXPECT_THAT(call->messages[0].id(), ::testing::StartsWith("r1-"));
  EXPECT_EQ(call->messages[1].id(), call->messages[0].id());
  EXPECT_EQ(call->messages[1].choices(0).text(), "yz");
  EXPECT_EQ(call->messages[1].choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(call->messages[2].choices_size(), 0);
  EXPECT_EQ(call->messages[2].usage().prompt_tokens(), 3);
  EXPECT_EQ(call->messages[2].usage().completion_tokens(), 3);
  EXPECT_EQ(call->messages[2].usage().total_tokens(), 6);
  EXPECT_EQ(call->messages[2].usage().cached_tokens(), 2);
  EXPECT_EQ(call->ends, 1);
  EXPECT_FALSE(call->error);
}

TEST(Generate, WholeAnswersAreOneMessage) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("abc");
  request.set_stream(false);
  request.set_echo(true);
  request.mutable_sampling()->set_n(2);
  request.mutable_sampling()->set_logprobs(2);
  request.mutable_sampling()->set_return_token_ids(true);
  auto call = world.Generate(request);
  EXPECT_FALSE(call->begun);
  EXPECT_EQ(world.engine->requests[0].sampling.prompt_logprobs, 2);
  SeqEvent first;
  first.request = world.engine->requests[0].id;
  first.index = 1;
  first.tokens = {{'u', -0.25f, {{'u', -0.25f}, {'v', -2.0f}}}};
  first.prompt_logprobs = {{-1.0f, 1, {{'b', -1.0f}}}, {-3.0f, 7, {{'q', -0.5f}}}};
  world.engine->Send(first);
  world.engine->Say("w", FinishReason::kStop, 0, 1);
  world.engine->Say("k", FinishReason::kLength, 0, 0);
  ASSERT_THAT(call->messages, SizeIs(1));
  const v1::GenerateResponse& response = call->messages[0];
  ASSERT_EQ(response.choices_size(), 2);
  EXPECT_EQ(response.choices(0).text(), "abck");
  const v1::GenerateChoice& choice = response.choices(1);
  EXPECT_EQ(choice.index(), 1u);
  EXPECT_EQ(choice.text(), "abcuw");
  EXPECT_EQ(choice.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_THAT(choice.token_ids(), ElementsAre('u', 'w'));
  EXPECT_THAT(response.prompt_token_ids(), ElementsAre('a', 'b', 'c'));
  ASSERT_EQ(choice.logprobs_size(), 2);
  EXPECT_EQ(choice.logprobs(0).token(), "u");
  EXPECT_EQ(choice.logprobs(0).token_id(), static_cast<uint32_t>('u'));
  EXPECT_EQ(choice.logprobs(0).logprob(), -0.25f);
  ASSERT_EQ(choice.logprobs(0).top_size(), 2);
  EXPECT_EQ(choice.logprobs(0).top(1).token(), "v");
  ASSERT_EQ(choice.prompt_logprobs_size(), 2);
  EXPECT_EQ(choice.prompt_logprobs(1).token(), "c");
  EXPECT_EQ(choice.prompt_logprobs(1).logprob(), -3.0f);
  EXPECT_EQ(choice.prompt_logprobs(1).top(0).token(), "q");
  EXPECT_EQ(response.usage().completion_tokens(), 3);
}

TEST(Generate, AStreamBeginsWithTheEchoAndThePromptsTokens) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("ab");
  request.set_echo(true);
  request.mutable_sampling()->set_n(2);
  request.mutable_sampling()->set_return_token_ids(true);
  auto call = world.Generate(request);
  ASSERT_THAT(call->messages, SizeIs(2));
  EXPECT_THAT(call->messages[0].prompt_token_ids(), ElementsAre('a', 'b'));
  EXPECT_THAT(call->messages[1].prompt_token_ids(), IsEmpty());
  for (int i : {0, 1}) {
    EXPECT_EQ(call->messages[i].choices(0).index(), static_cast<uint32_t>(i));
    EXPECT_EQ(call->messages[i].choices(0).text(), "ab");
  }
  world.engine->Say("c", FinishReason::kStop, 0, 0);
  world.engine->Say("d", FinishReason::kCancelled, 0, 1);
  EXPECT_THAT(call->messages[2].choices(0).token_ids(), ElementsAre('c'));
  EXPECT_EQ(call->messages[3].choices(0).finish_reason(), v1::FINISH_REASON_ABORT);
}

TEST(Generate, EveryParameterReachesTheEngine) {
  InferenceWorld world;
  v1::GenerateRequest request;
  for (uint32_t id : {7, 8}) request.mutable_token_ids()->add_ids(id);
  v1::SamplingParams& s = *request.mutable_sampling();
  s.set_temperature(0.7f);
  s.set_top_p(0.9f);
  s.set_top_k(40);
  s.set_min_p(0.05f);
  s.set_presence_penalty(0.1f);
  s.set_frequency_penalty(-0.2f);
  s.set_repetition_penalty(0.01f);  // the least: must not become 0.0099999998
  s.set_seed(-5);
  s.set_max_tokens(20);
  s.set_min_tokens(3);
  s.add_stop("END");
  s.add_stop_token_ids(33);
  s.set_ignore_eos(true);
  (*s.mutable_logit_bias())[11] = -100.0f;
  s.set_n(3);
  s.set_logprobs(4);
  s.set_priority(-2);
  s.set_cache_salt("salt");
  s.add_bad_words("no");
  s.add_allowed_token_ids(40);
  s.add_allowed_token_ids(41);
  auto call = world.Generate(request);
  ASSERT_FALSE(call->error) << call->message();
  const GenerateRequest& got = world.engine->requests.at(0);
  EXPECT_THAT(got.prompt, ElementsAre(7, 8));
  EXPECT_EQ(got.sampling.temperature, 0.7f);
  EXPECT_EQ(got.sampling.top_p, 0.9f);
  EXPECT_EQ(got.sampling.top_k, 40);
  EXPECT_EQ(got.sampling.min_p, 0.05f);
  EXPECT_EQ(got.sampling.presence_penalty, 0.1f);
  EXPECT_EQ(got.sampling.frequency_penalty, -0.2f);
  EXPECT_EQ(got.sampling.repetition_penalty, 0.01f);
  EXPECT_EQ(got.sampling.seed, static_cast<uint64_t>(-5));
  EXPECT_EQ(got.max_tokens, 20);
  EXPECT_EQ(got.min_tokens, 3);
  EXPECT_THAT(got.stop_tokens, ElementsAre(33));
  ASSERT_THAT(got.sampling.logit_bias, SizeIs(1));
  EXPECT_EQ(got.sampling.logit_bias[0].token, 11);
  EXPECT_EQ(got.sampling.logit_bias[0].bias, -100.0f);
  EXPECT_EQ(got.n, 3);
  EXPECT_EQ(got.sampling.top_logprobs, 4);
  EXPECT_EQ(got.priority, -2);
  EXPECT_EQ(got.cache_salt, "salt");
  EXPECT_THAT(got.sampling.banned_sequences, SizeIs(2));
  EXPECT_THAT(got.sampling.allowed_tokens, ElementsAre(40, 41));
}

TEST(Generate, AStopTextEndsTheAnswer) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("a");
  request.mutable_sampling()->add_stop("ND");
  auto call = world.Generate(request);
  world.engine->Say("xyEND more");
  EXPECT_EQ(call->messages.at(0).choices(0).text(), "xyE");
  EXPECT_EQ(call->messages.at(0).choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(call->ends, 1);
  EXPECT_THAT(world.engine->cancelled, SizeIs(1));
}

TEST(Generate, TheLikeliestOfManyAnswers) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("a");
  request.set_best_of(3);
  EXPECT_EQ(world.Generate(request)->param(), "best_of");  // streamed
  request.set_stream(false);
  auto call = world.Generate(request);
  ASSERT_FALSE(call->error) << call->message();
  EXPECT_EQ(world.engine->requests.at(0).n, 3);
}

TEST(Generate, WrongFieldsAreNamed) {
  struct Case {
    const char* param;
    std::function<void(v1::GenerateRequest&)> spoil;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case cases[] = {
      {"text", [](auto& r) { r.clear_prompt(); }},
      {"text", [](auto& r) { r.set_text(""); }},
      {"token_ids", [](auto& r) { r.mutable_token_ids(); }},
      {"token_ids", [](auto& r) { r.mutable_token_ids()->add_ids(258); }},
      {"token_ids", [](auto& r) { r.mutable_token_ids()->add_ids(UINT32_MAX); }},
      {"text", [](auto& r) { r.set_text(std::string(200, 'x')); }},
      {"token_ids",
       [](auto& r) {
         for (int i = 0; i < 200; i++) r.mutable_token_ids()->add_ids(1);
       }},
      {"suffix", [](auto& r) { r.set_suffix("tail"); }},
      {"sampling.max_tokens", [](auto& r) { r.mutable_sampling()->set_max_tokens(0); }},
      {"sampling.temperature", [](auto& r) { r.mutable_sampling()->set_temperature(2.5f); }},
      {"sampling.temperature", [=](auto& r) { r.mutable_sampling()->set_temperature(nan); }},
      {"sampling.top_p", [](auto& r) { r.mutable_sampling()->set_top_p(-0.1f); }},
      {"sampling.top_k", [](auto& r) { r.mutable_sampling()->set_top_k(-2); }},
      {"sampling.repetition_penalty",
       [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0.0f); }},
      {"sampling.stop", [](auto& r) { r.mutable_sampling()->add_stop(""); }},
      {"sampling.stop",
       [](auto& r) {
         for (int i = 0; i < 17; i++) r.mutable_sampling()->add_stop("x");
       }},
      {"sampling.stop_token_ids", [](auto& r) { r.mutable_sampling()->add_stop_token_ids(258); }},
      {"sampling.logit_bias",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[258] = 1; }},
      {"sampling.logit_bias",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = 101; }},
      {"sampling.logit_bias",
       [=](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = nan; }},
      {"sampling.n", [](auto& r) { r.mutable_sampling()->set_n(129); }},
      {"sampling.logprobs", [](auto& r) { r.mutable_sampling()->set_logprobs(21); }},
      {"sampling.min_tokens", [](auto& r) { r.mutable_sampling()->set_min_tokens(-1); }},
      {"sampling.cache_salt",
       [](auto& r) { r.mutable_sampling()->set_cache_salt(std::string(257, 's')); }},
      {"sampling.truncate_prompt_tokens",
       [](auto& r) { r.mutable_sampling()->set_truncate_prompt_tokens(0); }},
      {"sampling.structured_outputs.choice",
       [](auto& r) { r.mutable_sampling()->mutable_structured_outputs()->mutable_choice(); }},
      // The fake has no grammars.
      {"sampling.structured_outputs.regex",
       [](auto& r) { r.mutable_sampling()->mutable_structured_outputs()->set_regex("a+"); }},
  };
  for (const Case& wrong : cases) {
    InferenceWorld world;
    v1::GenerateRequest request = Prompt("hi");
    wrong.spoil(request);
    auto call = world.Generate(request);
    EXPECT_EQ(call->status(), 400) << wrong.param;
    EXPECT_EQ(call->param(), wrong.param) << call->message();
    EXPECT_EQ(call->ends, 1);
    EXPECT_THAT(call->messages, IsEmpty());
    EXPECT_THAT(world.engine->requests, IsEmpty());
  }
}

TEST(Generate, MessagesQuoteTheFieldsOfTheMessage) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("hi");
  request.mutable_sampling()->set_temperature(2.1f);
  EXPECT_EQ(world.Generate(request)->message(),
            "'sampling.temperature' must be between 0 and 2, it is 2.1");
}

TEST(Generate, ALongPromptIsCutWhereTheClientWantsThat) {
  InferenceWorld world;
  v1::GenerateRequest request;
  for (int i = 0; i < 200; i++) request.mutable_token_ids()->add_ids(i);
  request.mutable_sampling()->set_truncate_prompt_tokens(2);
  ASSERT_FALSE(world.Generate(request)->error);
  EXPECT_THAT(world.engine->requests.at(0).prompt, ElementsAre(198, 199));
}

TEST(Generate, ModelsThatThereAreNot) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("hi");
  request.set_model("huge");
  auto call = world.Generate(request);
  EXPECT_EQ(call->status(), 404);
  EXPECT_EQ(call->param(), "model");
  EXPECT_THAT(call->message(), HasSubstr("this server has 'tiny'"));

  world.service.SetModels(std::make_shared<ModelSet>(
      ModelSet{.served = {world.model}, .pending = {{{"big"}, "waits for 1 more worker"}}}));
  request.set_model("big");
  call = world.Generate(request);
  EXPECT_EQ(call->status(), 503);
  EXPECT_THAT(call->message(), HasSubstr("waits for 1 more worker"));
  request.clear_model();  // there are two now
  EXPECT_EQ(world.Generate(request)->status(), 400);
}

TEST(Generate, AFullQueueIsTooMany) {
  InferenceWorld world;
  world.engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  auto call = world.Generate(Prompt("hi"));
  EXPECT_EQ(call->status(), 429);
  EXPECT_EQ(call->ends, 1);
}

TEST(Generate, AnErrorWithinAStreamIsItsEnd) {
  InferenceWorld world;
  auto call = world.Generate(Prompt("hi"));
  world.engine->Say("a");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.finish = FinishReason::kError;
  event.error = absl::UnavailableError("no worker is left");
  world.engine->Send(event);
  EXPECT_THAT(call->messages, SizeIs(1));
  EXPECT_EQ(call->status(), 503);
  EXPECT_EQ(call->message(), "no worker is left");
  EXPECT_EQ(call->ends, 1);
}

TEST(Generate, AClientThatLeavesOrIsSlowCancels) {
  InferenceWorld world;
  v1::GenerateRequest request = Prompt("hi");
  auto left = world.Generate(request);
  left->disconnect();
  EXPECT_THAT(world.engine->cancelled, SizeIs(1));
  auto slow = world.Generate(request);
  slow->slow_after = 1;
  world.engine->Say("a", std::nullopt, 1);
  EXPECT_THAT(world.engine->cancelled, SizeIs(2));
  world.engine->Say("", FinishReason::kCancelled, 1);
  EXPECT_EQ(slow->ends, 1);
}

TEST(Generate, BytesThatAreNoMessage) {
  InferenceWorld world;
  auto call = std::make_shared<RecordingCall<v1::GenerateResponse>>();
  for (const GrpcMethod& method : Methods(world.service)) method.handle("\xFF\xFF", call);
  EXPECT_EQ(call->status(), 400);
  EXPECT_EQ(call->ends, 6);  // every method
}

}  // namespace
}  // namespace staffel::api::inference
