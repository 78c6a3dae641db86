#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<RecordingWriter> Ask(ApiWorld& world,
                                     const std::string& members = R"("prompt":"hi")",
                                     const std::string& path = "/completion") {
  return world.Post(path, "{" + members + "}");
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

std::string ErrorOfBody(const RecordingWriter& writer) { return writer.json()["error"]["message"]; }

TEST(LlamaCompletion, AWholeAnswer) {
  ApiWorld world;
  world.engine->cached_tokens = 1;
  auto writer = Ask(world, R"("prompt":"hi","n_predict":3,"return_tokens":true)");
  EXPECT_EQ(world.engine->requests[0].max_tokens, 3);
  world.engine->Say("a\nb", FinishReason::kLength);
  const auto json = writer->json();
  EXPECT_EQ(json["content"], "a\nb");
  EXPECT_THAT(json["tokens"], ElementsAre('a', '\n', 'b'));
  EXPECT_EQ(json["stop"], true);
  EXPECT_EQ(json["stop_type"], "limit");
  EXPECT_EQ(json["stopping_word"], "");
  EXPECT_EQ(json["has_new_line"], true);
  EXPECT_EQ(json["truncated"], false);
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["prompt"], "hi");
  EXPECT_EQ(json["tokens_predicted"], 3);
  EXPECT_EQ(json["tokens_evaluated"], 2);
  EXPECT_EQ(json["tokens_cached"], 1);
  EXPECT_EQ(json["generation_settings"]["n_predict"], 3);
  EXPECT_EQ(json["timings"]["cache_n"], 1);
  EXPECT_EQ(json["timings"]["prompt_n"], 1);
  EXPECT_EQ(json["timings"]["predicted_n"], 3);
  EXPECT_GE(json["timings"]["predicted_ms"], 0.0);
  EXPECT_FALSE(json.contains("completion_probabilities"));
}

TEST(LlamaCompletion, DefaultsAreLlamaServers) {
  ApiWorld world;
  Ask(world);
  const GenerateRequest& request = world.engine->requests[0];
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.8f);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.95f);
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.05f);
  EXPECT_EQ(request.max_tokens, 128 - 2) << "the rest of the context";
  EXPECT_EQ(request.cache_salt, "");
}

TEST(LlamaCompletion, ReasonsToStop) {
  ApiWorld world;
  auto word = Ask(world, R"("prompt":"hi","stop":["no","END"])");
  world.engine->Say("abEND");
  EXPECT_EQ(word->json()["stop_type"], "word");
  EXPECT_EQ(word->json()["stopping_word"], "END");
  EXPECT_EQ(word->json()["content"], "ab");
  auto end = Ask(world);
  world.engine->Say("ab", FinishReason::kStop, 1);
  EXPECT_EQ(end->json()["stop_type"], "eos");
  auto full = Ask(world);
  world.engine->Say(std::string(126, 'a'), FinishReason::kLength, 2);
  EXPECT_EQ(full->json()["stop_type"], "limit");
  EXPECT_EQ(full->json()["truncated"], true) << "the context is full";
  Ask(world, R"("prompt":"hi","n_predict":0)");
  EXPECT_EQ(world.engine->requests[3].max_tokens, 0);
}

TEST(LlamaCompletion, EventsOfAStream) {
  ApiWorld world;
  auto writer = Ask(world, R"("prompt":"hi","stream":true)");
  EXPECT_TRUE(writer->events.empty());
  world.engine->Say("h");
  world.engine->Say("\xc3");  // half a character
  world.engine->Say("\xa9 y", FinishReason::kStop);
  ASSERT_EQ(writer->events.size(), 3u);
  EXPECT_EQ(writer->event(0)["content"], "h");
  EXPECT_EQ(writer->event(0)["stop"], false);
  EXPECT_THAT(writer->event(0)["tokens"], ElementsAre('h'));
  EXPECT_EQ(writer->event(0)["tokens_evaluated"], 2);
  EXPECT_FALSE(writer->event(0).contains("timings"));
  EXPECT_EQ(writer->event(1)["content"], "é y");
  EXPECT_THAT(writer->event(1)["tokens"], ElementsAre(0xc3, 0xa9, ' ', 'y'));
  EXPECT_EQ(writer->event(1)["tokens_predicted"], 5);
  EXPECT_EQ(writer->event(2)["content"], "");
  EXPECT_EQ(writer->event(2)["stop"], true);
  EXPECT_EQ(writer->event(2)["stop_type"], "eos");
  EXPECT_EQ(writer->event(2)["timings"]["predicted_n"], 5);
  EXPECT_TRUE(writer->ended);
  EXPECT_EQ(writer->answers, 1);
}

TEST(LlamaCompletion, TokensWithoutTextComeWithTheEnd) {
  ApiWorld world;
  auto writer = Ask(world, R"("prompt":"hi","stream":true,"n_probs":1)");
  world.engine->Say("a");
  world.engine->Say("\xc3", FinishReason::kLength);
  // The half character is shown as U+FFFD, so that there is text; a control token is not.
  SeqEvent event;
  ASSERT_EQ(writer->events.size(), 3u);
  for (const std::string& data : writer->events) {
    const Json json = Json::parse(data);
    EXPECT_TRUE(json["content"] != "" || json["stop"] == true) << data;
  }
  auto control = Ask(world, R"("prompt":"hi","stream":true,"ignore_eos":true)");
  event.request = world.engine->requests[1].id;
  event.tokens = {{ByteTokenizer::kTurn}};
  event.finish = FinishReason::kLength;
  world.engine->Send(event);
  ASSERT_EQ(control->events.size(), 1u);
  EXPECT_THAT(control->event(0)["tokens"], ElementsAre(ByteTokenizer::kTurn));
  EXPECT_EQ(control->event(0)["stop"], true);
}

TEST(LlamaCompletion, TimingsAndProgressAreToldWhereAskedFor) {
  ApiWorld world;
  world.engine->cached_tokens = 1;
  auto writer =
      Ask(world, R"("prompt":"hi","stream":true,"timings_per_token":true,"return_progress":true)");
  world.engine->Say("a");
  world.engine->Say("bc");
  world.engine->Say("d", FinishReason::kStop);
  EXPECT_EQ(writer->event(0)["timings"]["predicted_n"], 1);
  EXPECT_EQ(writer->event(1)["timings"]["predicted_n"], 3);
  EXPECT_EQ(writer->event(0)["prompt_progress"]["total"], 2);
  EXPECT_EQ(writer->event(0)["prompt_progress"]["cache"], 1);
  EXPECT_EQ(writer->event(0)["prompt_progress"]["processed"], 2);
  EXPECT_FALSE(writer->event(1).contains("prompt_progress"));
}

TEST(LlamaCompletion, Probabilities) {
  ApiWorld world;
  auto writer = Ask(world, R"("prompt":"hi","n_probs":2)");
  EXPECT_EQ(world.engine->requests[0].sampling.top_logprobs, 2);
  world.engine->Say("a\xff", FinishReason::kStop);
  const auto all = writer->json()["completion_probabilities"];
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["id"], 'a');
  EXPECT_EQ(all[0]["token"], "a");
  EXPECT_THAT(all[0]["bytes"], ElementsAre('a'));
  EXPECT_FLOAT_EQ(all[0]["logprob"], -0.5f);
  EXPECT_EQ(all[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(all[0]["top_logprobs"][1]["token"], "z");
  EXPECT_EQ(all[1]["token"], "\xef\xbf\xbd");
  auto stream = Ask(world, R"("prompt":"hi","n_probs":2,"stream":true)");
  world.engine->Say("ab", FinishReason::kStop, 1);
  EXPECT_EQ(stream->event(0)["completion_probabilities"].size(), 2u);
  EXPECT_FALSE(stream->event(1).contains("completion_probabilities")) << "each token once";
}

TEST(LlamaCompletion, FormsOfPrompts) {
  ApiWorld world;
  for (const char* one :
       {R"("ab")", "[97,98]", R"([97,"b"])", R"(["a",98])", R"({"prompt_string":"ab"})",
        R"({"prompt_string":"ab","multimodal_data":[]})"}) {
    Ask(world, std::string(R"("prompt":)") + one);
    ASSERT_FALSE(world.engine->requests.empty()) << one;
    EXPECT_EQ(world.engine->requests.back().prompt, Bytes("ab")) << one;
  }
  const size_t before = world.engine->requests.size();
  auto writer = Ask(world, R"("prompt":["a",[98,"c"],[100],{"prompt_string":"e"}])");
  ASSERT_EQ(world.engine->requests.size(), before + 4);
  EXPECT_EQ(world.engine->requests[before + 1].prompt, Bytes("bc"));
  for (int i = 0; i < 4; i++)
    world.engine->Say("x", FinishReason::kStop, static_cast<int>(before) + i);
  ASSERT_TRUE(writer->json().is_array());
  EXPECT_EQ(writer->json()[3]["index"], 3);
  EXPECT_EQ(writer->json()[3]["prompt"], "e");
  for (const char* wrong :
       {"3", "{}", R"([{"a":1}])", R"({"prompt_string":"a","multimodal_data":["x"]})",
        R"([97,"b",null])", "[[1.5]]", "[]", R"("")"}) {
    EXPECT_EQ(Ask(world, std::string(R"("prompt":)") + wrong)->status, 400) << wrong;
  }
  EXPECT_THAT(ErrorOfBody(*Ask(world, R"("n_predict":1)")), HasSubstr("'prompt'"));
}

TEST(LlamaCompletion, SeveralAnswers) {
  ApiWorld world;
  auto writer = Ask(world, R"("prompt":"a","n_cmpl":2,"stream":true)");
  EXPECT_EQ(world.engine->requests[0].n, 2);
  world.engine->Say("x", FinishReason::kStop, 0, 1);
  EXPECT_EQ(writer->event(-1)["stop"], true) << "each choice ends when it does";
  EXPECT_EQ(writer->event(-1)["index"], 1);
  EXPECT_FALSE(writer->ended);
  world.engine->Say("y", FinishReason::kStop, 0, 0);
  EXPECT_TRUE(writer->ended);
}

TEST(LlamaCompletion, BiasAndBans) {
  ApiWorld world;
  Ask(world, R"("prompt":"a","logit_bias":[[97,1.5],["bc",-2],[100,false]])");
  const SamplingParams& sampling = world.engine->requests[0].sampling;
  ASSERT_EQ(sampling.logit_bias.size(), 3u);
  EXPECT_EQ(sampling.logit_bias[2].token, 'c');
  EXPECT_FLOAT_EQ(sampling.logit_bias[2].bias, -2);
  EXPECT_THAT(sampling.banned_sequences, ElementsAre(ElementsAre(100)));
  Ask(world, R"("prompt":"a","logit_bias":{"97":1,"bc":false})");
  EXPECT_EQ(world.engine->requests[1].sampling.logit_bias.size(), 1u);
  EXPECT_THAT(world.engine->requests[1].sampling.banned_sequences,
              ElementsAre(ElementsAre('b'), ElementsAre('c')));
  for (const char* wrong : {"3", "[3]", "[[1]]", "[[-1,2]]", "[[999,2]]", "[[999,false]]",
                            R"([[1,"x"]])", "[[1,500]]"}) {
    EXPECT_THAT(ErrorOfBody(*Ask(world, std::string(R"("prompt":"a","logit_bias":)") + wrong)),
                HasSubstr("'logit_bias'"))
        << wrong;
  }
}

TEST(LlamaCompletion, SamplersThatAreNotNamedAreOff) {
  ApiWorld world;
  Ask(world, R"("prompt":"a","repeat_penalty":1.5,"samplers":["top_k","temperature","dry"])");
  const SamplingParams& sampling = world.engine->requests[0].sampling;
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.8f);
  EXPECT_FLOAT_EQ(sampling.top_p, 1);
  EXPECT_FLOAT_EQ(sampling.min_p, 0);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1);
  EXPECT_EQ(Ask(world, R"("prompt":"a","samplers":["magic"])")->status, 400);
  Ask(world, R"("prompt":"a","repeat_penalty":1.5,"repeat_last_n":0,"temperature":-1,"seed":-1)");
  EXPECT_FLOAT_EQ(world.engine->requests[1].sampling.repetition_penalty, 1);
  EXPECT_FLOAT_EQ(world.engine->requests[1].sampling.temperature, 0);
}

TEST(LlamaCompletion, WithoutCacheNothingIsShared) {
  ApiWorld world;
  Ask(world, R"("prompt":"a","cache_prompt":false)");
  Ask(world, R"("prompt":"a","cache_prompt":false)");
  EXPECT_NE(world.engine->requests[0].cache_salt, "");
  EXPECT_NE(world.engine->requests[0].cache_salt, world.engine->requests[1].cache_salt);
}

TEST(LlamaCompletion, OnlyTheFieldsThatAreAskedFor) {
  ApiWorld world;
  auto writer = Ask(
      world,
      R"("prompt":"a","response_fields":["content","generation_settings/top_k","timings/no","x"])");
  world.engine->Say("b", FinishReason::kStop);
  EXPECT_EQ(writer->body, R"({"content":"b","generation_settings/top_k":40})");
}

TEST(LlamaCompletion, ErrorsHaveLlamaServersShape) {
  ApiWorld world;
  auto writer = Ask(world, R"("prompt":"a","repeat_penalty":1000)");
  EXPECT_EQ(writer->status, 400);
  EXPECT_EQ(writer->json()["error"]["code"], 400);
  EXPECT_EQ(writer->json()["error"]["type"], "invalid_request_error");
  EXPECT_THAT(ErrorOfBody(*writer), HasSubstr("'repeat_penalty'"));
  EXPECT_THAT(ErrorOfBody(*Ask(world, R"("prompt":"a","mirostat":2)")), HasSubstr("'mirostat'"));
  EXPECT_EQ(Ask(world, R"("prompt":"a","mirostat":0,"typical_p":1,"lora":[],"xtc_threshold":0.3)")
                ->status,
            0);
  EXPECT_EQ(Ask(world, R"("prompt":"a","model":"other")")->json()["error"]["type"],
            "not_found_error");
  world.engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  EXPECT_EQ(Ask(world)->json()["error"]["type"], "unavailable_error");
  const HttpError error{.status = 401, .message = "key"};
  EXPECT_THAT(world.router.Find("GET", "/completion").error_shape(error),
              HasSubstr("authentication_error"));
}

TEST(LlamaCompletion, AFailureWithinAStreamIsAnEvent) {
  ApiWorld world;
  auto writer = Ask(world, R"("prompt":"a","stream":true)");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.finish = FinishReason::kError;
  event.error = absl::InternalError("broken");
  world.engine->Send(event);
  EXPECT_EQ(writer->event(-1)["error"]["type"], "server_error");
  EXPECT_TRUE(writer->ended);
}

TEST(LlamaInfill, PrefixSuffixOtherFilesAndABeginning) {
  ApiWorld world;
  EXPECT_EQ(Ask(world, R"("input_prefix":"a","input_suffix":"b")", "/infill")->status, 400)
      << "no tokens for it";
  auto tokenizer = std::make_shared<ByteTokenizer>();
  tokenizer->mutable_spec().fim_prefix = 1;
  tokenizer->mutable_spec().fim_suffix = 2;
  tokenizer->mutable_spec().fim_middle = 3;
  tokenizer->mutable_spec().fim_separator = 4;
  world.model->tokenizer = tokenizer;
  Ask(world, R"("input_prefix":"a","input_suffix":"b","prompt":"c","n_predict":5)", "/infill");
  EXPECT_THAT(world.engine->requests[0].prompt, ElementsAre(1, 'a', 2, 'b', 3, 'c'));
  EXPECT_THAT(world.engine->requests[0].stop_tokens, ElementsAre(4, ByteTokenizer::kEnd));
  Ask(world, R"("input_prefix":"a","input_suffix":"","input_extra":[{"filename":"f","text":"g"}])",
      "/infill");
  EXPECT_THAT(world.engine->requests[1].prompt,
              ElementsAre(4, 'f', '\n', 'g', '\n', 4, 'f', 'i', 'l', 'e', '\n', 1, 'a', 2, 3));
  for (const char* wrong : {R"("input_prefix":"a")", R"("input_suffix":"a")",
                            R"("input_prefix":"a","input_suffix":"b","input_extra":[3])"}) {
    EXPECT_EQ(Ask(world, wrong, "/infill")->status, 400) << wrong;
  }
}

}  // namespace
}  // namespace staffel::api
