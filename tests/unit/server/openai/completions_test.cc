#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "server/api/json_parse.h"
#include "server/api/json_text.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api::openai {
namespace {

using ::testing::ElementsAre;

TEST(Completions, EveryPromptFormIsRead) {
  for (const char* prompt : {R"("ab")", R"(["ab"])", "[97,98]", "[[97,98]]"}) {
    ApiWorld world;
    auto writer = world.Complete(std::string("\"prompt\":") + prompt);
    ASSERT_EQ(world.engine->requests.size(), 1u) << prompt << writer->body;
    EXPECT_THAT(world.engine->requests[0].prompt, ElementsAre('a', 'b'));
    EXPECT_EQ(world.engine->requests[0].max_tokens, 16);
  }
}

TEST(Completions, EmptyPromptsAreRefusedAsAWhole) {
  for (const char* members :
       {R"("prompt":"")", R"("prompt":[""])", R"("prompt":[])", R"("prompt":[[]])",
        R"("prompt":["a",""])", R"("n":1)", R"("prompt":null)", R"("prompt":5)", R"("prompt":[-1])",
        R"("prompt":[258])", R"("prompt":[1.5])", R"("prompt":[true])", R"("prompt":["a",5])"}) {
    ApiWorld world;
    auto writer = world.Complete(members);
    EXPECT_EQ(writer->status, 400) << members;
    EXPECT_EQ(writer->error_param(), "prompt") << members;
    EXPECT_TRUE(world.engine->requests.empty()) << members;
  }
}

TEST(Completions, RawPromptsHoldControlTokens) {
  ApiWorld world;
  world.Complete(R"("prompt":"<|turn|>x")");
  EXPECT_THAT(world.engine->requests[0].prompt, ElementsAre(ByteTokenizer::kTurn, 'x'));
}

TEST(Completions, ChoicesOfSeveralPromptsAreNumberedThrough) {
  ApiWorld world;
  auto writer = world.Complete(R"("prompt":["a","b"],"n":2)");
  world.engine->Say("4", FinishReason::kStop, 1, 1);
  world.engine->Say("1", FinishReason::kStop, 0, 0);
  world.engine->Say("3", FinishReason::kStop, 1, 0);
  world.engine->Say("2", FinishReason::kStop, 0, 1);
  auto json = writer->json();
  for (int i = 0; i < 4; i++) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], std::to_string(i + 1));
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
}

TEST(Completions, EchoPutsPromptAndItsLogprobsInFront) {
  ApiWorld world;
  auto writer = world.Complete(R"("prompt":"ab","echo":true,"logprobs":1,"max_tokens":0)");
  const GenerateRequest& request = world.engine->requests[0];
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_EQ(request.sampling.prompt_logprobs, 1);
  SeqEvent event;
  event.request = request.id;
  event.prompt_logprobs = {{-2.0f, 3, {{'c', -1.0f}}}};
  event.finish = FinishReason::kLength;
  world.engine->Send(event);
  auto choice = writer->json()["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_THAT(choice["logprobs"]["tokens"], ElementsAre("a", "b"));
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_FLOAT_EQ(choice["logprobs"]["token_logprobs"][1], -2.0f);
  EXPECT_FLOAT_EQ(choice["logprobs"]["top_logprobs"][1]["c"], -1.0f);
  EXPECT_FLOAT_EQ(choice["logprobs"]["top_logprobs"][1]["b"], -2.0f);
  EXPECT_THAT(choice["logprobs"]["text_offset"], ElementsAre(0, 1));
}

TEST(Completions, StreamedEchoComesFirstAndTokenIdsAreReturned) {
  ApiWorld world;
  auto writer =
      world.Complete(R"("prompt":"ab","echo":true,"stream":true,"return_token_ids":true)");
  world.engine->Say("cd", FinishReason::kLength);
  EXPECT_EQ(writer->event(0)["choices"][0]["text"], "ab");
  EXPECT_THAT(writer->event(0)["choices"][0]["prompt_token_ids"], ElementsAre('a', 'b'));
  EXPECT_EQ(writer->event(1)["choices"][0]["text"], "cd");
  EXPECT_THAT(writer->event(1)["choices"][0]["token_ids"], ElementsAre('c', 'd'));
  EXPECT_EQ(writer->event(2)["choices"][0]["finish_reason"], "length");
}

TEST(Completions, UnsupportedFieldsAreRefused) {
  ApiWorld world;
  EXPECT_EQ(world.Complete(R"("prompt":"a","suffix":"b")")->error_param(), "suffix");
  EXPECT_EQ(world.Complete(R"("prompt":"a","suffix":"b","echo":true)")->error_param(), "suffix");
  EXPECT_EQ(world.Complete(R"("prompt":"a","best_of":3,"stream":true)")->error_param(), "best_of");
  EXPECT_EQ(world.Complete(R"("prompt":"a","best_of":1,"n":2)")->error_param(), "best_of");
  EXPECT_EQ(world.Complete(R"("prompt":"a","prompt_logprobs":1,"stream":true)")->error_param(),
            "prompt_logprobs");
  EXPECT_EQ(world.Complete(R"("prompt":"a","prompt_logprobs":-1)")->error_param(),
            "prompt_logprobs");
  EXPECT_EQ(world.Complete(R"("prompt":"a","truncate_prompt_tokens":0)")->error_param(),
            "truncate_prompt_tokens");
  EXPECT_EQ(world.Complete(R"("prompt":"a","allowed_token_ids":[])")->error_param(),
            "allowed_token_ids");
  EXPECT_EQ(world.Complete(R"("prompt":"a","allowed_token_ids":[258])")->error_param(),
            "allowed_token_ids");
  EXPECT_EQ(world.Complete(R"("prompt":"a","bad_words":[""])")->error_param(), "bad_words");
  EXPECT_EQ(world.Complete(R"("prompt":"a","bad_words":"x")")->error_param(), "bad_words");
  EXPECT_EQ(world.Complete(R"("prompt":"a","use_beam_search":true)")->error_param(),
            "use_beam_search");
  EXPECT_EQ(world.Complete(R"("prompt":"a","logprobs":true)")->error_param(), "logprobs");
  EXPECT_EQ(world.Complete(R"("prompt":"a","max_tokens":0)")->error_param(), "max_tokens");
  EXPECT_TRUE(world.engine->requests.empty());
}

TEST(Completions, BestOfShowsTheLikeliest) {
  ApiWorld world;
  auto writer = world.Complete(R"("prompt":"a","best_of":3,"n":2,"max_tokens":2)");
  ASSERT_EQ(world.engine->requests.size(), 1u);
  EXPECT_EQ(world.engine->requests[0].n, 3);
  const std::vector<std::vector<float>> logprobs = {{-1, -1}, {-0.5f, -3}, {-0.1f}};
  for (int i = 0; i < 3; i++) {
    SeqEvent event;
    event.request = world.engine->requests[0].id;
    event.index = i;
    for (float logprob : logprobs[i])
      event.tokens.push_back({static_cast<TokenId>('x' + i), logprob, {}});
    event.finish = FinishReason::kLength;
    world.engine->Send(event);
  }
  const auto json = writer->json();
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["text"], "z");
  EXPECT_EQ(json["choices"][1]["text"], "xx");
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null()) << "nobody asked for them";
  EXPECT_EQ(json["usage"]["completion_tokens"], 5) << "all that were drawn";
}

TEST(Completions, PromptLogprobsByTokenId) {
  ApiWorld world;
  auto writer = world.Complete(R"("prompt":"abc","prompt_logprobs":1,"max_tokens":1)");
  EXPECT_EQ(world.engine->requests[0].sampling.prompt_logprobs, 1);
  EXPECT_EQ(world.engine->requests[0].sampling.top_logprobs, -1);
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.prompt_logprobs = {{-2.0f, 3, {{'x', -1.0f}}}, {-0.5f, 1, {{'c', -0.5f}}}};
  event.tokens = {{'d', 0, {}}};
  event.finish = FinishReason::kLength;
  world.engine->Send(event);
  const auto expected = nlohmann::ordered_json::parse(R"([null,
      {"98":{"logprob":-2.0,"rank":3,"decoded_token":"b"},
       "120":{"logprob":-1.0,"rank":1,"decoded_token":"x"}},
      {"99":{"logprob":-0.5,"rank":1,"decoded_token":"c"}}])");
  EXPECT_EQ(writer->json()["choices"][0]["prompt_logprobs"], expected);
  EXPECT_EQ(writer->json()["choices"][0]["text"], "d");
}

TEST(Completions, WordsAndTokensThatAreBannedOrAllowed) {
  ApiWorld world;
  world.Complete(R"("prompt":"a","bad_words":["no"," so"],"allowed_token_ids":[9,7,9])");
  const SamplingParams& sampling = world.engine->requests[0].sampling;
  EXPECT_EQ(sampling.allowed_tokens, (std::vector<TokenId>{7, 9}));
  EXPECT_EQ(sampling.banned_sequences,
            (std::vector<std::vector<TokenId>>{{'n', 'o'}, {' ', 'n', 'o'}, {' ', 's', 'o'}}));
}

TEST(Completions, PromptsAreTruncatedFromTheFront) {
  ApiWorld world;
  world.Complete(R"("prompt":"abcdef","truncate_prompt_tokens":2)");
  EXPECT_EQ(world.engine->requests[0].prompt, (std::vector<TokenId>{'e', 'f'}));
  world.Complete(StrCat(R"("truncate_prompt_tokens":-1,"prompt":")", std::string(500, 'y'), "\""));
  EXPECT_EQ(world.engine->requests[1].prompt.size(), 96u) << "all that the KV cache holds";
}

TEST(Completions, TokensAsIds) {
  ApiWorld world;
  auto writer = world.Complete(R"("prompt":"a","logprobs":1,"return_tokens_as_token_ids":true)");
  world.engine->Say("b", FinishReason::kStop);
  const auto logprobs = writer->json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"][0], "token_id:98");
  EXPECT_TRUE(logprobs["top_logprobs"][0].contains("token_id:122"));
}

TEST(Completions, SuffixFramesThePrompt) {
  ApiWorld world;
  auto tokenizer = std::make_shared<ByteTokenizer>();
  tokenizer->mutable_spec().fim_prefix = 1;
  tokenizer->mutable_spec().fim_suffix = 2;
  tokenizer->mutable_spec().fim_middle = 3;
  tokenizer->mutable_spec().fim_separator = 4;
  world.model->tokenizer = tokenizer;
  world.Complete(R"("prompt":["a",[98]],"suffix":"z<|end|>")");
  ASSERT_EQ(world.engine->requests.size(), 2u);
  std::vector<TokenId> want = {1, 'a', 2, 'z'};
  for (char c : std::string("<|end|>")) want.push_back(c);
  want.push_back(3);
  EXPECT_EQ(world.engine->requests[0].prompt, want);
  want[1] = 'b';
  EXPECT_EQ(world.engine->requests[1].prompt, want);
  EXPECT_THAT(world.engine->requests[0].stop_tokens, ElementsAre(4, ByteTokenizer::kEnd));
}

TEST(Tokenize, RoundTripsAndRefusesBadIds) {
  ApiWorld world;
  EXPECT_THAT(world.Post("/tokenize", R"({"prompt":"hé"})")->json()["tokens"],
              ElementsAre('h', 0xC3, 0xA9));
  EXPECT_EQ(world.Post("/detokenize", R"({"tokens":[104,195,169]})")->json()["prompt"], "hé");
  EXPECT_EQ(world.Post("/detokenize", R"({"tokens":[258]})")->error_param(), "tokens");
  EXPECT_EQ(world.Post("/detokenize", R"({})")->error_param(), "tokens");
  EXPECT_EQ(world.Post("/tokenize", R"({})")->error_param(), "prompt");
}

TEST(Models, ListAndEachByName) {
  ApiWorld world;
  auto list = world.Post("/v1/models", "", "GET")->json();
  EXPECT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(world.Post("/v1/models/tiny", "", "GET")->json(), list["data"][0]);
  EXPECT_EQ(world.Post("/v1/models/%61lias", "", "GET")->json(), list["data"][1]);
  auto unknown = world.Post("/v1/models/org/other", "", "GET");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_EQ(unknown->json()["error"]["code"], "model_not_found");
}

TEST(ParseBody, RefusesWhatIsNotOneObject) {
  for (const char* body : {"", "{", "nul", "[]", "\"x\"", "{\"a\":[}]}", "\xFF\xFE", "{} x",
                           "{\"a\":1,\"a\":2}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":1e999}",
                           "{\"a\":\"\\ud83d\"}", "{\"a\":\"\xC0\xAF\"}", "{\"a\":01}"}) {
    EXPECT_TRUE(std::holds_alternative<ApiError>(ParseBody(body))) << body;
  }
  EXPECT_EQ(std::get<Json>(ParseBody("\xEF\xBB\xBF{\"a\":\"\\ud83d\\ude00\"}"))["a"], "😀");
}

TEST(ParseBody, BoundsDepthSizeAndRepeatedKeysInManyMembers) {
  std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_TRUE(std::holds_alternative<ApiError>(ParseBody(deep)));
  EXPECT_TRUE(std::holds_alternative<ApiError>(ParseBody("{\"a\":[1,2,3]}", {.values_max = 3})));
  std::string many = "{\"k0\":0";
  for (int i = 1; i < 20000; i++) many += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_EQ(std::get<Json>(ParseBody(many + "}")).size(), 20000u);
  EXPECT_TRUE(std::holds_alternative<ApiError>(ParseBody(many + ",\"k7\":1}")));
}

TEST(JsonText, EscapesAndReplacesInvalidBytes) {
  std::string out;
  AppendJsonString(out, std::string("a\"\\\n\t\x01\x7f"
                                    "é\xFF\xE2\x82",
                                    12));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\t\\u0001\\u007fé\xEF\xBF\xBD\xEF\xBF\xBD\"");
  out.clear();
  AppendJsonNumber(out, -0.5f);
  AppendJsonNumber(out, -INFINITY);
  AppendJsonNumber(out, 2);
  EXPECT_EQ(out, "-0.5-9999.02.0");
}

TEST(SeveralModels, AreFoundByTheirNames) {
  ApiWorld world;
  auto other = std::make_shared<ServedModel>();
  other->names = {"other"};
  other->tokenizer = std::make_shared<ByteTokenizer>();
  auto other_engine = std::make_shared<FakeEngine>();
  other->engine = other_engine;
  other->limits = other_engine->limits();
  ModelSet models{.served = {world.model, other},
                  .pending = {{{"later"}, "it waits for 1 more worker"}}};
  world.service.SetModels(std::make_shared<ModelSet>(models));

  auto missing = world.Post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(missing->status, 400);
  EXPECT_EQ(missing->json()["error"]["message"],
            "'model' is missing; this server has 'tiny', 'other', 'later'");
  auto pending = world.Post("/v1/completions", R"({"model":"later","prompt":"x"})");
  EXPECT_EQ(pending->status, 503);
  EXPECT_EQ(pending->json()["error"]["message"],
            "the model 'later' is not being served: it waits for 1 more worker");
  auto unknown = world.Post("/v1/completions", R"({"model":"nope","prompt":"x"})");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_EQ(unknown->json()["error"]["message"],
            "there is no model 'nope' here; this server has 'tiny', 'other', 'later'");
  auto tokens = world.Post("/tokenize", R"({"model":"other","prompt":"x"})");
  EXPECT_EQ(tokens->status, 200);
  auto list = world.Post("/v1/models", "", "GET");
  ASSERT_EQ(list->json()["data"].size(), 3);  // tiny and its alias, other
  EXPECT_EQ(list->json()["data"][2]["id"], "other");
}

}  // namespace
}  // namespace staffel::api::openai
