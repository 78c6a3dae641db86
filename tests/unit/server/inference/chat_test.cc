#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/json_parse.h"
#include "tests/unit/server/inference/world.h"

namespace staffel::api::inference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kHermes[] =
    "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}"
    "{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments }}]"
    "{% endfor %}<|end|>{% endfor %}<|turn|>";

struct HermesWorld : InferenceWorld {
  HermesWorld() : InferenceWorld(kHermes) {
    model->limits.max_model_len = model->limits.kv_capacity_tokens = 1000;
    model->formats.calls = answer::CallFormat::kHermes;
  }
};

v1::Tool Weather() {
  v1::Tool tool;
  tool.set_name("weather");
  tool.set_description("tells it");
  tool.set_parameters(R"({"type":"object","properties":{"city":{"type":"string"}}})");
  return tool;
}

// What the template made of the conversation.
std::string PromptOf(const InferenceWorld& world, int which = 0) {
  return ByteTokenizer().Decode(world.engine->requests.at(which).prompt, /*special=*/true);
}

TEST(Chat, TheRoleComesWithTheFirstMessageOfEachChoice) {
  InferenceWorld world;
  v1::ChatRequest request = Says("hi");
  request.mutable_sampling()->set_n(2);
  auto call = world.Chat(request);
  EXPECT_TRUE(call->begun);
  EXPECT_EQ(PromptOf(world), "<|turn|>user:hi<|end|><|turn|>");
  world.engine->Say("a", std::nullopt, 0, 1);
  world.engine->Say("b", FinishReason::kLength, 0, 0);
  world.engine->Say("c", FinishReason::kStop, 0, 1);
  ASSERT_THAT(call->messages, SizeIs(4));
  EXPECT_EQ(call->messages[0].choices(0).index(), 1u);
  EXPECT_EQ(call->messages[0].choices(0).delta().role(), "assistant");
  EXPECT_EQ(call->messages[0].choices(0).delta().content(), "a");
  EXPECT_EQ(call->messages[1].choices(0).index(), 0u);
  EXPECT_EQ(call->messages[1].choices(0).delta().role(), "assistant");
  EXPECT_EQ(call->messages[1].choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(call->messages[2].choices(0).delta().role(), "");
  EXPECT_EQ(call->messages[2].choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(call->messages[3].usage().completion_tokens(), 3);
  EXPECT_EQ(call->ends, 1);
}

TEST(Chat, WholeAnswersAreOneMessage) {
  InferenceWorld world;
  v1::ChatRequest request = Says("hi");
  request.set_stream(false);
  request.mutable_sampling()->set_logprobs(1);
  auto call = world.Chat(request);
  world.engine->Say("Hel");
  world.engine->Say("lo", FinishReason::kStop);
  ASSERT_THAT(call->messages, SizeIs(1));
  const v1::ChatChoice& choice = call->messages[0].choices(0);
  EXPECT_EQ(choice.delta().role(), "assistant");
  EXPECT_EQ(choice.delta().content(), "Hello");
  EXPECT_EQ(choice.logprobs_size(), 5);
  EXPECT_EQ(choice.logprobs(0).token(), "H");
  EXPECT_TRUE(call->messages[0].has_usage());
}

TEST(Chat, GoesOnWithTheLastMessage) {
  InferenceWorld world;
  v1::ChatRequest request = Says("hi");
  request.add_messages()->set_role("assistant");
  request.mutable_messages(1)->set_content("I am");
  request.set_continue_final_message(true);
  request.set_echo(true);
  auto call = world.Chat(request);
  ASSERT_FALSE(call->error) << call->message();
  EXPECT_EQ(PromptOf(world), "<|turn|>user:hi<|end|><|turn|>assistant:I am");
  ASSERT_THAT(call->messages, SizeIs(1));
  EXPECT_EQ(call->messages[0].choices(0).delta().content(), "I am");
  EXPECT_EQ(call->messages[0].choices(0).delta().role(), "assistant");
}

TEST(Chat, ConversationsWithToolsReachTheTemplate) {
  HermesWorld world;
  v1::ChatRequest request = Says("rain?");
  v1::ChatMessage& called = *request.add_messages();
  called.set_role("assistant");
  called.add_tool_calls()->set_id("c1");
  called.mutable_tool_calls(0)->set_name("weather");
  called.mutable_tool_calls(0)->set_arguments(R"({"city":"Ulm"})");
  v1::ChatMessage& result = *request.add_messages();
  result.set_role("tool");
  result.set_content("wet");
  result.set_tool_call_id("c1");
  *request.add_tools() = Weather();
  auto call = world.Chat(request);
  ASSERT_FALSE(call->error) << call->message();
  const std::string prompt = PromptOf(world);
  EXPECT_THAT(prompt, HasSubstr(R"("description": "tells it")"));
  EXPECT_THAT(prompt, HasSubstr(R"("city": {"type": "string"})"));
  EXPECT_THAT(prompt, HasSubstr("[c1 weather "));
  EXPECT_THAT(prompt, HasSubstr("tool:wet"));
}

TEST(Chat, CallsAreToldApart) {
  for (const bool stream : {true, false}) {
    HermesWorld world;
    v1::ChatRequest request = Says("rain?");
    *request.add_tools() = Weather();
    request.set_stream(stream);
    auto call = world.Chat(request);
    ASSERT_FALSE(call->error) << call->message();
    world.engine->Say("Wait.<tool_call>\n{\"name\": \"weather\", \"argu");
    world.engine->Say("ments\": {\"city\": \"U");
    world.engine->Say("lm\"}}\n</tool_call>", FinishReason::kStop);
    std::string content, id, name, arguments;
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    for (const v1::ChatResponse& message : call->messages) {
      for (const v1::ChatChoice& choice : message.choices()) {
        content += choice.delta().content();
        for (const v1::ToolCallDelta& part : choice.delta().tool_calls()) {
          EXPECT_EQ(part.index(), 0u);
          id += part.id();
          name += part.name();
          arguments += part.arguments();
        }
        finish = choice.finish_reason();
      }
    }
    EXPECT_EQ(content, "Wait.");
    EXPECT_THAT(id, Not(IsEmpty()));
    EXPECT_EQ(name, "weather");
    EXPECT_EQ(Json::parse(arguments), (Json{{"city", "Ulm"}}));
    EXPECT_EQ(finish, v1::FINISH_REASON_TOOL_CALLS);
    EXPECT_EQ(call->messages.size() == 1, !stream);
  }
}

TEST(Chat, ReasoningIsToldApart) {
  InferenceWorld world;
  world.model->formats.reasoning = answer::ReasoningFormat::kThink;
  v1::ChatRequest request = Says("why?");
  request.set_stream(false);
  auto call = world.Chat(request);
  world.engine->Say("<think>hm</think>because", FinishReason::kStop);
  const v1::ChatDelta& delta = call->messages.at(0).choices(0).delta();
  EXPECT_EQ(delta.reasoning_content(), "hm");
  EXPECT_EQ(delta.content(), "because");
  EXPECT_GT(call->messages[0].usage().reasoning_tokens(), 0);
}

TEST(Chat, WithoutToolsByWish) {
  HermesWorld world;
  v1::ChatRequest request = Says("rain?");
  *request.add_tools() = Weather();
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_NONE);
  ASSERT_FALSE(world.Chat(request)->error);
  EXPECT_EQ(PromptOf(world), "<|turn|>user:rain?<|end|><|turn|>");
  v1::ToolChoice::Allowed& allowed = *request.mutable_tool_choice()->mutable_allowed();
  allowed.add_functions("weather");
  ASSERT_FALSE(world.Chat(request)->error);
  EXPECT_THAT(PromptOf(world, 1), HasSubstr("tells it"));
}

TEST(Chat, WrongFieldsAreNamed) {
  struct Case {
    const char* param;
    std::function<void(v1::ChatRequest&)> spoil;
  };
  const Case cases[] = {
      {"messages", [](auto& r) { r.clear_messages(); }},
      {"messages[0].role", [](auto& r) { r.mutable_messages(0)->clear_role(); }},
      {"messages[0].role", [](auto& r) { r.mutable_messages(0)->set_role("boss"); }},
      {"messages[0].content", [](auto& r) { r.mutable_messages(0)->clear_content(); }},
      {"messages",
       [](auto& r) {
         for (int i = 0; i < 65'536; i++) r.add_messages()->set_role("user");
       }},
      {"messages", [](auto& r) { r.mutable_messages(0)->set_content(std::string(200, 'x')); }},
      {"tools[0].name", [](auto& r) { r.add_tools(); }},
      {"tools[1].parameters",
       [](auto& r) {
         for (int i = 0; i < 2; i++) *r.add_tools() = Weather();
         r.mutable_tools(1)->set_parameters("{\"type\":");
       }},
      {"tool_choice", [](auto& r) { r.mutable_tool_choice()->set_function("rain"); }},
      {"tool_choice",
       [](auto& r) {
         *r.add_tools() = Weather();
         r.mutable_tool_choice()->mutable_allowed()->add_functions("rain");
       }},
      {"tool_choice",
       [](auto& r) {
         *r.add_tools() = Weather();
         r.mutable_tool_choice()->set_mode(static_cast<v1::ToolChoice::Mode>(9));
       }},
      {"chat_template_kwargs", [](auto& r) { r.set_chat_template_kwargs("[1]"); }},
      {"continue_final_message",
       [](auto& r) {
         r.set_continue_final_message(true);
         r.set_add_generation_prompt(true);
       }},
      {"sampling.logprobs", [](auto& r) { r.mutable_sampling()->set_logprobs(-1); }},
      {"sampling.max_tokens", [](auto& r) { r.mutable_sampling()->set_max_tokens(-1); }},
  };
  for (const Case& wrong : cases) {
    InferenceWorld world;
    v1::ChatRequest request = Says("hi");
    wrong.spoil(request);
    auto call = world.Chat(request);
    EXPECT_EQ(call->status(), 400) << wrong.param;
    EXPECT_EQ(call->param(), wrong.param) << call->message();
    EXPECT_THAT(world.engine->requests, IsEmpty());
  }
}

TEST(Chat, TemplateVariables) {
  InferenceWorld world("{{ mood }}:{{ messages[0].content }}");
  v1::ChatRequest request = Says("hi");
  request.set_chat_template_kwargs(R"({"mood": "gay"})");
  ASSERT_FALSE(world.Chat(request)->error);
  EXPECT_EQ(PromptOf(world), "gay:hi");
}

}  // namespace
}  // namespace staffel::api::inference
