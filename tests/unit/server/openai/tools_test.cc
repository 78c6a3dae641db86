#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/call_grammar.h"
#include "server/api/choice_decoder.h"
#include "server/api/json_parse.h"
#include "server/api/tool_calls.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;

constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},
                {"type":"function","function":{"name":"g"}}])";

// A model that writes calls as Hermes does and thinks between tags.
struct ToolWorld : ApiWorld {
  ToolWorld() { model->formats = {answer::CallFormat::kHermes, answer::ReasoningFormat::kThink}; }
};

ToolChoice Read(const std::string& members, std::string* param = nullptr) {
  const Json body = Json::parse("{" + members + "}");
  FieldReader reader(body);
  ToolChoice choice = ReadToolChoice(reader);
  if (param != nullptr) {
    *param = reader.ok() ? "accepted" : reader.error()->param.value_or("");
  } else {
    EXPECT_TRUE(reader.ok()) << reader.error()->message;
  }
  return choice;
}

std::string Refused(const std::string& members) {
  std::string param;
  Read(members, &param);
  return param;
}

TEST(ToolChoice, WhatMayAndMustBeCalled) {
  const std::string tools = kTools;
  EXPECT_TRUE(Read("\"x\":1").tools.is_null());
  EXPECT_FALSE(Read(tools).required);
  EXPECT_EQ(Read(tools).tools.size(), 2u);
  EXPECT_TRUE(Read(tools + R"(,"tool_choice":"none")").tools.is_null());
  EXPECT_TRUE(Read(tools + R"(,"tool_choice":"required")").required);
  const ToolChoice named =
      Read(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  EXPECT_TRUE(named.required);
  EXPECT_EQ(named.named, "g");
  const ToolChoice allowed = Read(tools + R"(,"tool_choice":{"type":"allowed_tools",
      "allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}})");
  EXPECT_TRUE(allowed.required);
  ASSERT_EQ(allowed.tools.size(), 1u);
  EXPECT_EQ(allowed.tools[0]["function"]["name"], "g");
}

TEST(ToolChoice, RefusalsNameTheField) {
  const std::string tools = kTools;
  EXPECT_EQ(Refused(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(Refused(R"("tools":[{"type":"web"}])"), "tools[0]");
  EXPECT_EQ(Refused(tools + R"(,"tool_choice":"some")"), "tool_choice");
  EXPECT_EQ(Refused(tools + R"(,"tool_choice":5)"), "tool_choice");
  EXPECT_EQ(Refused(tools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})"),
            "tool_choice");
  EXPECT_EQ(Refused(tools + R"(,"tool_choice":{"type":"allowed_tools"})"), "tool_choice");
  EXPECT_EQ(Refused(R"("tools":[],"tool_choice":"none")"), "accepted");
}

TEST(ToolChoice, GrammarsOfCalls) {
  const ByteTokenizer tokenizer;
  const ToolChoice all = Read(std::string(kTools) + R"(,"tool_choice":"required")");
  const auto hermes = CallGrammar(all, answer::CallFormat::kHermes, tokenizer);
  ASSERT_TRUE(hermes.ok());
  EXPECT_TRUE(hermes->tag_required);
  EXPECT_FALSE(hermes->single_tag);
  ASSERT_EQ(hermes->tags.size(), 2u);
  EXPECT_EQ(hermes->tags[0].begin, "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(hermes->tags[1].schema, R"({"type":"object"})");
  const ToolChoice named =
      Read(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  const auto json = CallGrammar(named, answer::CallFormat::kJson, tokenizer);
  ASSERT_TRUE(json.ok());
  EXPECT_TRUE(json->single_tag);
  ASSERT_EQ(json->tags.size(), 1u);
}

TEST(ToolChoice, StrictToolsAreHeldWithinText) {
  const ByteTokenizer tokenizer;
  const ToolChoice choice = Read(R"("tools":[
      {"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{}}}},
      {"type":"function","function":{"name":"g","parameters":{"type":"object","uniqueThings":1}}}])");
  EXPECT_TRUE(HasStrictTool(choice.tools));
  EXPECT_FALSE(HasStrictTool(Json()));
  const auto spec = CallGrammar(choice, answer::CallFormat::kLlama, tokenizer);
  ASSERT_TRUE(spec.ok());
  EXPECT_FALSE(spec->tag_required);
  EXPECT_TRUE(spec->leading_tags);
  EXPECT_EQ(spec->tags[0].schema, R"({"type":"object","properties":{}})");
  EXPECT_EQ(spec->tags[1].schema, R"({"type":"object"})");
  EXPECT_EQ(Refused(R"("tools":[{"type":"function","function":{"name":"f","strict":"yes"}}])"),
            "tools[0].function.strict");
}

constexpr char kAnswer[] =
    "<think>hm</think>Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
    "</tool_call>";

TEST(Tools, AWholeAnswerIsToldApart) {
  ToolWorld world;
  auto writer = world.Chat(kTools);
  world.engine->Say(kAnswer, FinishReason::kStop);
  const auto json = writer->json();
  const auto& message = json["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Let me see.");
  EXPECT_EQ(message["reasoning_content"], "hm");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(Json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            Json::parse(R"({"a":1})"));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_GT(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST(Tools, WithoutToolsACallIsText) {
  ToolWorld world;
  auto writer = world.Chat();
  world.engine->Say("<tool_call>x", FinishReason::kStop);
  EXPECT_EQ(writer->json()["choices"][0]["message"]["content"], "<tool_call>x");
  EXPECT_EQ(writer->json()["choices"][0]["finish_reason"], "stop");
}

// However the text is cut, the chunks together are the whole answer.
TEST(Tools, AStreamedAnswerIsTheSame) {
  const std::string answer = kAnswer;
  for (size_t step = 1; step < answer.size(); step += 3) {
    ToolWorld world;
    auto writer = world.Chat(std::string(kTools) + R"(,"stream":true)");
    for (size_t i = 0; i < answer.size(); i += step) world.engine->Say(answer.substr(i, step));
    world.engine->Say("", FinishReason::kStop);
    std::string content, reasoning, name, arguments, finish;
    int ids = 0;
    for (const std::string& event : writer->events) {
      if (event == "[DONE]") continue;
      const auto choice = Json::parse(event)["choices"][0];
      const Json& delta = choice["delta"];
      content += delta.value("content", "");
      reasoning += delta.value("reasoning_content", "");
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        EXPECT_EQ(call["index"], 0);
        ids += call.contains("id");
        name += call["function"].value("name", "");
        arguments += call["function"].value("arguments", "");
      }
      if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
    }
    EXPECT_EQ(content, "Let me see.") << step;
    EXPECT_EQ(reasoning, "hm") << step;
    EXPECT_EQ(name, "f") << step;
    EXPECT_EQ(ids, 1) << step;
    EXPECT_EQ(arguments, R"({"a": 1})") << step;
    EXPECT_EQ(finish, "tool_calls") << step;
  }
}

// Behind the one call that may come, the answer ends.
TEST(Tools, WithoutParallelCallsTheFirstEndsTheAnswer) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n";
  for (bool stream : {false, true}) {
    ToolWorld world;
    auto writer = world.Chat(std::string(kTools) + R"(,"parallel_tool_calls":false,"stream":)" +
                             (stream ? "true" : "false"));
    world.engine->Say("So: " + call + call);
    EXPECT_EQ(writer->answers, 1);
    EXPECT_EQ(world.engine->cancelled.size(), 1u);
    int begun = 0;
    if (stream) {
      for (const std::string& event : writer->events) begun += event.find("\"name\"") != event.npos;
    } else {
      const auto choice = writer->json()["choices"][0];
      begun = static_cast<int>(choice["message"]["tool_calls"].size());
      EXPECT_EQ(choice["finish_reason"], "tool_calls");
      EXPECT_EQ(choice["message"]["content"], "So:");
    }
    EXPECT_EQ(begun, 1);
  }
  // All at the end of the answer at once.
  ToolWorld world;
  auto writer = world.Chat(std::string(kTools) + R"(,"parallel_tool_calls":false)");
  const std::string bare = "{\"name\": \"f\", \"arguments\": {}}";
  world.engine->Say("[" + bare + ", " + bare + "]", FinishReason::kStop);
  EXPECT_EQ(writer->json()["choices"][0]["message"]["tool_calls"].size(), 1u);
}

TEST(Tools, MessagesHaveBlocks) {
  ToolWorld world;
  auto writer = world.Post("/v1/messages", R"({"max_tokens":90,"stream":true,
      "messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}]})");
  world.engine->Say(kAnswer, FinishReason::kStop);
  std::vector<std::string> blocks;
  std::string input;
  for (size_t i = 0; i < writer->events.size(); i++) {
    const auto event = writer->event(static_cast<int>(i));
    if (event["type"] == "content_block_start") blocks.push_back(event["content_block"]["type"]);
    if (event["type"] != "content_block_delta") continue;
    if (event["delta"]["type"] == "input_json_delta") input += event["delta"]["partial_json"];
  }
  EXPECT_THAT(blocks, ElementsAre("thinking", "text", "tool_use"));
  EXPECT_EQ(input, R"({"a": 1})");
  EXPECT_EQ(writer->event(-2)["delta"]["stop_reason"], "tool_use");
  auto whole = world.Post("/v1/messages", R"({"max_tokens":90,
      "messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}]})");
  world.engine->Say(kAnswer, FinishReason::kStop, 1);
  const auto content = whole->json()["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["thinking"], "hm");
  EXPECT_EQ(content[1]["text"], "Let me see.");
  EXPECT_EQ(content[2]["input"], Json::parse(R"({"a":1})"));
}

TEST(Tools, ResponsesHaveItems) {
  ToolWorld world;
  auto writer = world.Post("/v1/responses", R"({"input":"hi","tools":[{"type":"function",
      "name":"f","parameters":{"type":"object"}}]})");
  world.engine->Say(kAnswer, FinishReason::kStop);
  const auto output = writer->json()["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"][0]["text"], "hm");
  EXPECT_EQ(output[1]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_EQ(output[2]["arguments"], R"({"a": 1})");
}

// Text that may become a stop string is held back; a control token behind it keeps its place.
TEST(Tools, ControlTokensKeepTheirPlaceAmongHeldText) {
  ByteTokenizer tokenizer;
  ChoiceDecoder decoder(tokenizer, {"abX"}, {}, false, true);
  struct Recorder final : answer::Parser {
    explicit Recorder(std::string* log) : log(log) {}
    void Push(std::string_view text, bool control, std::vector<answer::Delta>*) override {
      *log += control ? "[" + std::string(text) + "]" : std::string(text);
    }
    void Finish(std::vector<answer::Delta>*) override { *log += "."; }
    bool in_reasoning() const override { return false; }
    std::string* log;
  };
  std::string log;
  decoder.Parse(std::make_unique<Recorder>(&log), {"<|turn|>"}, {});
  SeqEvent event;
  for (TokenId token : {TokenId{'x'}, TokenId{'a'}, ByteTokenizer::kTurn, TokenId{'b'},
                        ByteTokenizer::kEnd, TokenId{'c'}})
    event.tokens.push_back({token, 0, {}});
  event.finish = FinishReason::kLength;
  decoder.Apply(event);
  EXPECT_EQ(log, "xa[<|turn|>]bc.") << "<|end|> is no marker";
}

}  // namespace
}  // namespace staffel::api
