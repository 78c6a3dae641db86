#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr char kHi[] = "<|turn|>user:hi<|end|><|turn|>";

TEST(Chat, AnswersWithTextFinishAndUsage) {
  ApiWorld world;
  world.engine->cached_tokens = 3;
  auto writer = world.Chat(R"("model":"tiny","max_tokens":5,"temperature":0)");
  ASSERT_EQ(world.engine->requests.size(), 1u);
  const GenerateRequest& request = world.engine->requests[0];
  EXPECT_EQ(request.prompt, ByteTokenizer().Encode(kHi, true, true));
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.sampling.temperature, 0.0f);
  EXPECT_THAT(request.stop_tokens, ElementsAre(ByteTokenizer::kEnd));
  EXPECT_EQ(writer->answers, 0);
  world.engine->Say("Hel");
  world.engine->Say("lo", FinishReason::kLength);
  EXPECT_EQ(writer->answers, 1);
  EXPECT_EQ(writer->status, 200);
  auto json = writer->json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"]["prompt_tokens"], request.prompt.size());
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], request.prompt.size() + 5);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST(Chat, StopTokenIsCountedAndNotShown) {
  ApiWorld world;
  auto writer = world.Chat(R"("logprobs":true)");
  world.engine->Say("ok");
  SeqEvent end;
  end.request = world.engine->requests[0].id;
  end.tokens = {{ByteTokenizer::kEnd, -0.1f, {}}};
  end.finish = FinishReason::kStop;
  world.engine->Send(end);
  auto json = writer->json();
  EXPECT_EQ(json["choices"][0]["message"]["content"], "ok");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"].size(), 2u);
}

TEST(Chat, StreamBeginsWithRoleEndsWithUsageAndDone) {
  ApiWorld world;
  auto writer = world.Chat(R"("stream":true,"stream_options":{"include_usage":true},"n":2)");
  EXPECT_TRUE(writer->streaming);
  ASSERT_EQ(writer->events.size(), 2u);
  for (int i : {0, 1}) {
    EXPECT_EQ(writer->event(i)["choices"][0]["index"], i);
    EXPECT_EQ(writer->event(i)["choices"][0]["delta"],
              (nlohmann::ordered_json{{"role", "assistant"}, {"content", ""}}));
  }
  world.engine->Say("a", std::nullopt, 0, 1);
  world.engine->Say("b", FinishReason::kLength, 0, 0);
  world.engine->Say("c", FinishReason::kStop, 0, 1);
  ASSERT_EQ(writer->events.size(), 9u);
  EXPECT_EQ(writer->event(2)["choices"][0]["delta"]["content"], "a");
  EXPECT_FALSE(writer->event(2)["choices"][0]["delta"].contains("role"));
  EXPECT_TRUE(writer->event(2)["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(writer->event(4)["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(writer->event(6)["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(writer->event(2)["usage"].is_null());
  EXPECT_THAT(writer->event(7)["choices"], IsEmpty());
  EXPECT_EQ(writer->event(7)["usage"]["completion_tokens"], 3);
  EXPECT_EQ(writer->events[8], "[DONE]");
  EXPECT_TRUE(writer->ended);
  EXPECT_EQ(writer->answers, 1);
}

TEST(Chat, UsageChunkOnlyWhenAskedFor) {
  for (const char* options :
       {R"({})", R"({"include_usage":false})", R"({"include_usage":null})", "null"}) {
    ApiWorld world;
    auto writer = world.Chat(std::string(R"("stream":true,"stream_options":)") + options);
    world.engine->Say("x", FinishReason::kStop);
    for (size_t i = 0; i + 1 < writer->events.size(); i++) {
      EXPECT_FALSE(writer->event(i).contains("usage")) << options;
      EXPECT_EQ(writer->event(i)["choices"].size(), 1u) << options;
    }
  }
}

TEST(Chat, StopStringCutsTextAndCancelsTheSequence) {
  for (bool stream : {false, true}) {
    ApiWorld world;
    auto writer =
        world.Chat(stream ? R"("stop":["lo w","zz"],"stream":true)" : R"("stop":["lo w","zz"])");
    world.engine->Say("Hello");
    world.engine->Say(" world and more");
    EXPECT_THAT(world.engine->cancelled, ElementsAre(Pair(world.engine->requests[0].id, 0)));
    EXPECT_EQ(writer->answers, 1);
    world.engine->Say("late", FinishReason::kCancelled);
    EXPECT_EQ(writer->answers, 1);
    if (stream) {
      std::string text;
      for (size_t i = 0; i + 1 < writer->events.size(); i++) {
        text += writer->event(i)["choices"][0]["delta"].value("content", "");
      }
      EXPECT_EQ(text, "Hel");
      EXPECT_EQ(writer->event(-2)["choices"][0]["finish_reason"], "stop");
    } else {
      EXPECT_EQ(writer->json()["choices"][0]["message"]["content"], "Hel");
      EXPECT_EQ(writer->json()["choices"][0]["finish_reason"], "stop");
      EXPECT_EQ(writer->json()["usage"]["completion_tokens"],
                7);  // up to the token that completed the match
    }
  }
}

TEST(Chat, StopStringThatNamesAControlTokenStopsAtTheToken) {
  ApiWorld world;
  world.Chat(R"("stop":["<|turn|>","x"])");
  EXPECT_THAT(world.engine->requests[0].stop_tokens,
              ElementsAre(ByteTokenizer::kEnd, ByteTokenizer::kTurn));
}

TEST(Chat, CharacterSplitOverTokensIsNeverHalfSent) {
  ApiWorld world;
  auto writer = world.Chat(R"("stream":true)");
  for (const char* piece : {"A", "\xF0", "\x9F", "\x98", "\x80", "Z"}) world.engine->Say(piece);
  world.engine->Say("\xF0\x9F", FinishReason::kLength);
  std::string text;
  for (size_t i = 0; i + 1 < writer->events.size(); i++)
    text += writer->event(i)["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, "A😀Z\xEF\xBF\xBD");
}

TEST(Chat, LogprobsListChosenTokenAndAlternatives) {
  ApiWorld world;
  auto writer = world.Chat(R"("logprobs":true,"top_logprobs":2)");
  EXPECT_EQ(world.engine->requests[0].sampling.top_logprobs, 2);
  world.engine->Say("h", FinishReason::kLength);
  auto entry = writer->json()["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "h");
  EXPECT_FLOAT_EQ(entry["logprob"], -0.5f);
  EXPECT_THAT(entry["bytes"], ElementsAre('h'));
  EXPECT_EQ(entry["top_logprobs"][1]["token"], "z");
}

TEST(Chat, ContentNeverMakesControlTokens) {
  ApiWorld world;
  world.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<|end|>"}]})");
  const std::vector<TokenId>& prompt = world.engine->requests[0].prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ByteTokenizer::kEnd), 1);
}

TEST(Chat, TextPartsAreJoined) {
  ApiWorld world;
  world.Chat();
  world.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}]})");
  EXPECT_EQ(world.engine->requests[0].prompt, world.engine->requests[1].prompt);
}

TEST(Chat, DeveloperIsSystemAndNullContentBesideToolCallsIsEmpty) {
  ApiWorld world;
  auto writer = world.Post("/v1/chat/completions/render",
                           R"({"messages":[{"role":"developer","content":"S"},{"role":"assistant",
    "content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"1","content":"ok"}]})");
  EXPECT_EQ(writer->json()["prompt"],
            "<|turn|>system:S<|end|><|turn|>assistant:<|end|><|turn|>tool:ok<|end|><|turn|>");
}

TEST(Chat, EngineErrorsAreAnsweredOnce) {
  for (bool stream : {false, true}) {
    ApiWorld world;
    auto writer = world.Chat(stream ? R"("stream":true)" : R"("stream":false)");
    world.engine->Say("x");
    SeqEvent failure;
    failure.request = world.engine->requests[0].id;
    failure.finish = FinishReason::kError;
    failure.error = absl::UnavailableError("worker 1 is gone");
    world.engine->Send(failure);
    EXPECT_EQ(writer->answers, 1);
    if (stream) {
      EXPECT_EQ(writer->event(-2)["error"]["message"], "worker 1 is gone");
      EXPECT_EQ(writer->events.back(), "[DONE]");
    } else {
      EXPECT_EQ(writer->status, 503);
    }
  }
}

TEST(Chat, FullQueueIs429AndCancelsWhatWasSubmitted) {
  ApiWorld world;
  world.engine->submit_status = absl::ResourceExhaustedError("the queue is full; try again");
  world.engine->refuse_after = 1;
  auto writer = world.Complete(R"("prompt":["a","b"])");
  EXPECT_EQ(writer->status, 429);
  EXPECT_EQ(writer->answers, 1);
  EXPECT_EQ(world.engine->cancelled[0].first, world.engine->requests[0].id);
}

TEST(Chat, LostOrSlowClientCancels) {
  ApiWorld world;
  auto writer = world.Chat(R"("stream":true)");
  writer->disconnect();
  EXPECT_EQ(world.engine->cancelled.size(), 1u);
  auto slow = world.Chat(R"("stream":true)");
  slow->slow_after = 2;
  world.engine->Say("a", std::nullopt, 1);
  EXPECT_EQ(world.engine->cancelled.size(), 2u);
}

TEST(Chat, WhileLoadingEveryRouteIs503) {
  InlineRunner runner;
  Service service(&runner);
  MapRouter router;
  AddRoutes(service, router);
  for (const auto& [route, handler] : router.handlers) {
    auto writer = std::make_shared<RecordingWriter>();
    handler({}, writer);
    EXPECT_EQ(writer->status, 503) << route;
    EXPECT_THAT(writer->body, HasSubstr("loading"));
  }
}

struct Refusal {
  const char* members;
  const char* param;
};

class ChatRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ChatRefuses, With400ThatNamesTheField) {
  ApiWorld world;
  auto writer = world.Chat(GetParam().members);
  EXPECT_EQ(writer->status, 400) << GetParam().members;
  EXPECT_THAT(writer->error_param(), ::testing::StartsWith(GetParam().param)) << writer->body;
  EXPECT_FALSE(writer->json()["error"]["message"].get<std::string>().empty());
  EXPECT_EQ(writer->answers, 1);
  EXPECT_TRUE(world.engine->requests.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ChatRefuses,
    ::testing::Values(
        Refusal{R"("stream":"false")", "stream"}, Refusal{R"("stream":1)", "stream"},
        Refusal{R"("temperature":"0")", "temperature"},
        Refusal{R"("temperature":-0.1)", "temperature"},
        Refusal{R"("temperature":2.1)", "temperature"},
        Refusal{R"("max_tokens":"5")", "max_tokens"}, Refusal{R"("max_tokens":5.5)", "max_tokens"},
        Refusal{R"("max_tokens":0)", "max_tokens"}, Refusal{R"("max_tokens":1e30)", "max_tokens"},
        Refusal{R"("max_completion_tokens":0)", "max_completion_tokens"},
        Refusal{R"("top_p":[])", "top_p"}, Refusal{R"("top_p":1.1)", "top_p"},
        Refusal{R"("top_k":1.5)", "top_k"}, Refusal{R"("min_p":-1)", "min_p"},
        Refusal{R"("repetition_penalty":0)", "repetition_penalty"},
        Refusal{R"("presence_penalty":3)", "presence_penalty"}, Refusal{R"("stop":7)", "stop"},
        Refusal{R"("stop":[1])", "stop"}, Refusal{R"("stop":"")", "stop"},
        Refusal{R"("stop":["a",""])", "stop"}, Refusal{R"("seed":"x")", "seed"},
        Refusal{R"("seed":9223372036854775808)", "seed"},
        Refusal{R"("seed":-9223372036854775809)", "seed"}, Refusal{R"("seed":1.5)", "seed"},
        Refusal{R"("n":"2")", "n"}, Refusal{R"("n":0)", "n"}, Refusal{R"("n":129)", "n"},
        Refusal{R"("logit_bias":[])", "logit_bias"},
        Refusal{R"("logit_bias":{"AI":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"1.5":1})", "logit_bias"},
        Refusal{R"("logit_bias":{" 1":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"+1":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"-1":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"258":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"1":"5"})", "logit_bias"},
        Refusal{R"("logit_bias":{"1":null})", "logit_bias"},
        Refusal{R"("logit_bias":{"1":101})", "logit_bias"},
        Refusal{R"("logit_bias":{"1":1e309})", "logit_bias"}, Refusal{R"("model":5)", "model"},
        Refusal{R"("response_format":"json")", "response_format"},
        Refusal{R"("response_format":{"type":"json_object"})", "response_format"},
        Refusal{R"("tools":{})", "tools"}, Refusal{R"("tools":[{"type":"web"}])", "tools[0]"},
        Refusal{R"("tool_choice":"required")", "tool_choice"},
        Refusal{R"("top_logprobs":3)", "top_logprobs"},
        Refusal{R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
        Refusal{R"("logprobs":1)", "logprobs"},
        Refusal{R"("stream_options":{"include_usage":true})", "stream_options"},
        Refusal{R"("stream":true,"stream_options":{"include_usage":"yes"})", "stream_options"},
        Refusal{R"("stream":true,"stream_options":[])", "stream_options"},
        Refusal{R"("stop_token_ids":[258])", "stop_token_ids"},
        Refusal{R"("stop_token_ids":[-1])", "stop_token_ids"},
        Refusal{R"("stop_token_ids":["a"])", "stop_token_ids"},
        Refusal{R"("add_generation_prompt":true,"continue_final_message":true)",
                "continue_final_message"},
        Refusal{R"("chat_template":"x")", "chat_template"},
        Refusal{R"("guided_json":{})", "guided_json"},
        Refusal{R"("modalities":["audio"])", "modalities"}, Refusal{R"("user":5)", "user"}));

TEST(Chat, FieldsThatSayWhatTheAnswerMustBe) {
  using Kind = grammar::GrammarSpec::Kind;
  const struct {
    const char* members;
    Kind kind;
    const char* source;
  } cases[] = {
      {R"("response_format":{"type":"json_object"})", Kind::kJsonObject, ""},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"const":1.0}}})",
       Kind::kJsonSchema, R"({"const":1.0})"},
      {R"("structured_outputs":{"json":{"type":"null"}})", Kind::kJsonSchema, R"({"type":"null"})"},
      {R"("structured_outputs":{"regex":"a+"})", Kind::kRegex, "a+"},
      {R"("structured_outputs":{"grammar":"root ::= \"a\""})", Kind::kGrammar, "root ::= \"a\""},
      {R"("structured_outputs":{"choice":["a","b"]})", Kind::kChoice, ""},
      {R"("response_format":{"type":"json_object","value":{"type":"null"}})", Kind::kJsonSchema,
       R"({"type":"null"})"},
      {R"("response_format":{"type":"json","value":{"const":1}})", Kind::kJsonSchema,
       R"({"const":1})"},
      {R"("response_format":{"type":"regex","value":"a+"})", Kind::kRegex, "a+"},
      {R"("guided_json":"{}")", Kind::kJsonSchema, "{}"},
      {R"("guided_regex":"b","ignore_eos":true)", Kind::kRegex, "b"},
      {R"("guided_choice":["a"])", Kind::kChoice, ""},
      {R"("guided_grammar":"g")", Kind::kGrammar, "g"},
      {R"("json_schema":{"a":1})", Kind::kJsonSchema, R"({"a":1})"},
  };
  for (const auto& test : cases) {
    ApiWorld world;
    world.model->grammars = std::make_shared<FakeGrammars>();
    world.Chat(test.members);
    ASSERT_EQ(world.engine->requests.size(), 1u) << test.members;
    const auto& spec = world.engine->requests[0].sampling.grammar;
    ASSERT_NE(spec, nullptr) << test.members;
    EXPECT_EQ(spec->kind, test.kind) << test.members;
    EXPECT_EQ(spec->source, test.source) << test.members;
    EXPECT_FALSE(world.engine->requests[0].stop_tokens.empty());
  }
  const std::pair<const char*, const char*> refusals[] = {
      {R"("guided_regex":"[")", "guided_regex"},
      {R"("guided_regex":"a","guided_choice":["a"])", "guided_choice"},
      {R"("guided_choice":[])", "guided_choice"},
      {R"("guided_choice":[1])", "guided_choice"},
      {R"("guided_regex":5)", "guided_regex"},
      {R"("structured_outputs":{"json":5})", "structured_outputs"},
      {R"("structured_outputs":{"structural_tag":"x"})", "structured_outputs"},
      {R"("response_format":{"type":"json_schema"})", "response_format"},
      {R"("response_format":{"type":"xml"})", "response_format"},
      {R"("response_format":{"type":"regex"})", "response_format"},
      {R"("response_format":{"type":"regex","value":5})", "response_format"},
  };
  for (const auto& [members, param] : refusals) {
    ApiWorld world;
    world.model->grammars = std::make_shared<FakeGrammars>();
    auto writer = world.Chat(members);
    EXPECT_EQ(writer->status, 400) << members;
    EXPECT_THAT(writer->error_param(), ::testing::StartsWith(param)) << writer->body;
  }
}

class MessagesRefused : public ::testing::TestWithParam<const char*> {};

TEST_P(MessagesRefused, With400) {
  ApiWorld world;
  auto writer =
      world.Post("/v1/chat/completions", std::string(R"({"messages":)") + GetParam() + "}");
  EXPECT_EQ(writer->status, 400);
  EXPECT_THAT(writer->error_param(), ::testing::StartsWith("messages")) << writer->body;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MessagesRefused,
    ::testing::Values(
        "{}", "[]", "null", "[1]", R"([{"content":"x"}])", R"([{"role":"bot","content":"x"}])",
        R"([{"role":"user"}])", R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":[]}])", R"([{"role":"user","content":["hi"]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}])",
        R"([{"role":"user","content":7}])",
        R"([{"role":"assistant","content":"x","tool_calls":{}}])",
        R"([{"role":"assistant","content":"x","tool_calls":[{"function":{}}]}])"));

TEST(Chat, UnknownModelIs404AndPromptOverContextNamesNumbers) {
  ApiWorld world;
  auto unknown = world.Chat(R"("model":"other")");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_EQ(unknown->json()["error"]["code"], "model_not_found");
  auto long_prompt =
      world.Post("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":")" + std::string(200, 'a') + R"("}]})");
  EXPECT_EQ(long_prompt->status, 400);
  EXPECT_EQ(long_prompt->json()["error"]["code"], "context_length_exceeded");
  EXPECT_THAT(long_prompt->body, HasSubstr("128"));
}

TEST(Chat, MaxTokensIsCappedAtTheRoomInTheContext) {
  ApiWorld world;
  world.Chat(R"("max_tokens":9223372036854775807)");
  world.Chat(R"("max_tokens":9,"max_completion_tokens":5)");
  world.Chat();
  int room = 128 - static_cast<int>(world.engine->requests[0].prompt.size());
  EXPECT_EQ(world.engine->requests[0].max_tokens, room);
  EXPECT_EQ(world.engine->requests[1].max_tokens, 5);
  EXPECT_EQ(world.engine->requests[2].max_tokens, room);
}

TEST(Chat, SeedsBeyondDoublePrecisionStayDistinct) {
  ApiWorld world;
  world.Chat(R"("seed":9007199254740992)");
  world.Chat(R"("seed":9007199254740993)");
  world.Chat(R"("seed":-1)");
  EXPECT_EQ(world.engine->requests[1].sampling.seed - world.engine->requests[0].sampling.seed, 1u);
  EXPECT_EQ(world.engine->requests[2].sampling.seed, ~0ull);
}

TEST(Chat, EchoIsTheContentOfTheLastMessage) {
  ApiWorld world;
  const auto echoed = [&](const std::string& last) {
    auto writer =
        world.Post("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"hi"},)" + last + R"(],"echo":true})");
    world.engine->Say("!", FinishReason::kStop,
                      static_cast<int>(world.engine->requests.size()) - 1);
    return writer->json()["choices"][0]["message"]["content"].get<std::string>();
  };
  EXPECT_EQ(echoed(R"({"role":"assistant","content":"So"})"), "So!");
  EXPECT_EQ(echoed(R"({"role":"assistant"})"), "!");
  EXPECT_EQ(echoed(R"({"role":"assistant","content":null,"tool_calls":[{"id":"1",
                       "type":"function","function":{"name":"f","arguments":"{}"}}]})"),
            "!");
}

}  // namespace
}  // namespace staffel::api::openai
