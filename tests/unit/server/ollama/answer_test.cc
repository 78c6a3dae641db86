#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::shared_ptr<RecordingWriter> Chat(ApiWorld& world, const std::string& members = "") {
  return world.Post("/api/chat",
                    R"({"model":"tiny:latest","messages":[{"role":"user","content":"hi"}])" +
                        (members.empty() ? "" : "," + members) + "}");
}

std::shared_ptr<RecordingWriter> Generate(ApiWorld& world, const std::string& members = "") {
  return world.Post("/api/generate", R"({"model":"tiny","prompt":"hi")" +
                                         (members.empty() ? "" : "," + members) + "}");
}

const char* const kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}])";

TEST(OllamaChat, LinesOfAStream) {
  ApiWorld world;
  auto writer = Chat(world);
  EXPECT_TRUE(writer->streaming) << "the default";
  EXPECT_EQ(writer->framing, StreamFraming::kLines);
  world.engine->Say("He");
  world.engine->Say("y", FinishReason::kStop);
  ASSERT_EQ(writer->events.size(), 3u);
  EXPECT_EQ(writer->event(0)["model"], "tiny:latest") << "as the client named it";
  EXPECT_EQ(writer->event(0)["message"].dump(), R"({"role":"assistant","content":"He"})");
  EXPECT_EQ(writer->event(0)["done"], false);
  EXPECT_THAT(writer->event(0)["created_at"].get<std::string>(),
              MatchesRegex("20..-..-..T..:..:..\\..........Z"));
  EXPECT_EQ(writer->event(1)["message"]["content"], "y");
  const auto last = writer->event(2);
  EXPECT_EQ(last["message"]["content"], "");
  EXPECT_EQ(last["done"], true);
  EXPECT_EQ(last["done_reason"], "stop");
  EXPECT_EQ(last["prompt_eval_count"], world.engine->requests[0].prompt.size());
  EXPECT_EQ(last["eval_count"], 3);
  for (const char* duration :
       {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"})
    EXPECT_TRUE(last[duration].is_number_integer()) << duration;
  EXPECT_FALSE(last.contains("context"));
  EXPECT_TRUE(writer->ended);
}

TEST(OllamaChat, AWholeAnswer) {
  ApiWorld world;
  auto writer = Chat(world, R"("stream":false)");
  world.engine->Say("Hey", FinishReason::kLength);
  EXPECT_EQ(writer->json()["message"]["content"], "Hey");
  EXPECT_EQ(writer->json()["done"], true);
  EXPECT_EQ(writer->json()["done_reason"], "length");
}

TEST(OllamaChat, CallsAreToldWhole) {
  for (const bool stream : {false, true}) {
    ApiWorld world;
    world.model->formats.calls = answer::CallFormat::kHermes;
    auto writer = Chat(world, std::string(kTools) + (stream ? "" : R"(,"stream":false)"));
    world.engine->Say("so: <tool_call>\n{\"name\": \"f\", \"argu");
    world.engine->Say("ments\": {\"a\": 1}}\n</tool_call>", FinishReason::kStop);
    Json calls = Json::array();
    std::string content;
    const int lines = stream ? static_cast<int>(writer->events.size()) : 1;
    for (int i = 0; i < lines; i++) {
      const auto message = (stream ? writer->event(i) : writer->json())["message"];
      content += message["content"];
      if (message.contains("tool_calls"))
        for (const auto& call : message["tool_calls"]) calls.push_back(call);
    }
    ASSERT_EQ(calls.size(), 1u) << stream;
    EXPECT_EQ(calls[0]["function"]["name"], "f");
    EXPECT_EQ(calls[0]["function"]["arguments"].dump(), R"({"a":1})");
    EXPECT_THAT(content, HasSubstr("so:"));
  }
}

TEST(OllamaChat, ThinkingIsToldApart) {
  ApiWorld world;
  world.model->formats.reasoning = answer::ReasoningFormat::kThink;
  auto writer = Chat(world, R"("stream":false)");
  world.engine->Say("<think>hm</think>yes", FinishReason::kStop);
  EXPECT_EQ(writer->json()["message"]["thinking"], "hm");
  EXPECT_EQ(writer->json()["message"]["content"], "yes");
}

TEST(OllamaGenerate, LinesAndContext) {
  ApiWorld world;
  auto writer = Generate(world);
  world.engine->Say("ab");
  SeqEvent end;
  end.request = world.engine->requests[0].id;
  end.tokens = {{ByteTokenizer::kEnd}};
  end.finish = FinishReason::kStop;
  world.engine->Send(end);
  EXPECT_EQ(writer->event(0)["response"], "ab");
  std::vector<int> want(world.engine->requests[0].prompt.begin(),
                        world.engine->requests[0].prompt.end());
  want.insert(want.end(), {'a', 'b', ByteTokenizer::kEnd});
  EXPECT_EQ(writer->event(-1)["context"].get<std::vector<int>>(), want);
  EXPECT_EQ(writer->event(-1)["response"], "");

  Generate(world, R"("context":)" + writer->event(-1)["context"].dump());
  const std::vector<TokenId>& next = world.engine->requests[1].prompt;
  ASSERT_EQ(next.size(), want.size() + world.engine->requests[0].prompt.size());
  EXPECT_TRUE(std::equal(want.begin(), want.end(), next.begin()));
}

TEST(OllamaGenerate, RawAndWhole) {
  ApiWorld world;
  auto writer = Generate(world, R"("raw":true,"stream":false)");
  EXPECT_THAT(world.engine->requests[0].prompt, ElementsAre('h', 'i'));
  EXPECT_EQ(world.engine->requests[0].max_tokens, 126) << "the rest of the context";
  world.engine->Say("x", FinishReason::kStop);
  EXPECT_EQ(writer->json()["response"], "x");
  EXPECT_FALSE(writer->json().contains("context"));
}

TEST(OllamaGenerate, LogProbabilities) {
  for (const char* more : {"", R"(,"raw":true)"}) {
    ApiWorld world;
    auto writer = Generate(world, std::string(R"("logprobs":true,"top_logprobs":1)") + more);
    world.engine->Say("a\xc3");
    world.engine->Say("\xa9", FinishReason::kStop);
    int tokens = 0;
    for (size_t i = 0; i < writer->events.size(); i++) {
      const auto line = writer->event(static_cast<int>(i));
      if (line.contains("logprobs")) tokens += static_cast<int>(line["logprobs"].size());
    }
    EXPECT_EQ(tokens, 3) << "each token once";
    EXPECT_EQ(writer->event(0)["logprobs"][0]["token"], "a");
    EXPECT_FLOAT_EQ(writer->event(0)["logprobs"][0]["logprob"], -0.5f);
    EXPECT_FALSE(writer->event(0)["logprobs"][0]["top_logprobs"].empty());
  }
}

TEST(OllamaErrors, HaveItsShape) {
  ApiWorld world;
  auto writer = Chat(world, R"("options":{"temperature":"hot"})");
  EXPECT_EQ(writer->status, 400);
  EXPECT_THAT(writer->json()["error"].get<std::string>(), HasSubstr("'options.temperature'"));
  EXPECT_EQ(writer->json().size(), 1u);
  EXPECT_EQ(world.Post("/api/chat", R"({"model":"other","messages":[]})")->status, 404);
  const HttpError error{.status = 404, .message = "none"};
  EXPECT_EQ(world.router.Find("GET", "/api/none").error_shape(error), R"({"error":"none"})");

  auto stream = Chat(world);
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.finish = FinishReason::kError;
  event.error = absl::InternalError("broken");
  world.engine->Send(event);
  EXPECT_EQ(stream->event(-1)["error"], "broken");
  EXPECT_TRUE(stream->ended);
}

}  // namespace
}  // namespace staffel::api
