// How much reasoning there may be, and who sees it.
#include <gtest/gtest.h>

#include "grammar/grammar_cache.h"
#include "server/api/json_parse.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

constexpr char kShowKwargs[] =
    "{{ reasoning_effort }}|{{ enable_thinking }}|{{ thinking }}|{% for m in messages %}{{ "
    "m.content }}"
    "{{ m.reasoning_content }}{% endfor %}";

using Shown = std::pair<std::string, std::string>;  // content, reasoning

struct ThinkingWorld : ApiWorld {
  explicit ThinkingWorld(std::string_view chat_template = "{{ messages[0].content }}")
      : ApiWorld(chat_template) {
    model->formats = {answer::CallFormat::kHermes, answer::ReasoningFormat::kThink};
    model->grammars =
        std::make_shared<grammar::GrammarCache>(*grammar::VocabularyOf(*model->tokenizer));
  }
  std::string Rendered(const std::string& members) {
    auto writer = Post("/v1/chat/completions/render",
                       R"({"messages":[{"role":"user","content":"hi"}])" + members + "}");
    return writer->status == 200 ? writer->json()["prompt"]
                                 : Json("refused " + writer->error_param());
  }
};

TEST(Reasoning, EffortReachesTheTemplate) {
  ThinkingWorld world(kShowKwargs);
  EXPECT_EQ(world.Rendered(""), "|||hi");
  EXPECT_EQ(world.Rendered(R"(,"reasoning_effort":"low")"), "low|True|True|hi");
  EXPECT_EQ(world.Rendered(R"(,"reasoning_effort":"none")"), "none|False|False|hi");
  EXPECT_EQ(world.Rendered(R"(,"reasoning":{"effort":"high"})"), "high|True|True|hi");
  EXPECT_EQ(world.Rendered(R"(,"reasoning":{"enabled":false})"), "|False|False|hi");
  EXPECT_EQ(world.Rendered(R"(,"thinking":{"type":"disabled"})"), "|False|False|hi");
  EXPECT_EQ(world.Rendered(
                R"(,"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":"mine"})"),
            "none|mine|False|hi");
  EXPECT_EQ(world.Rendered(R"(,"reasoning_effort":"some")"), "refused reasoning_effort");
  EXPECT_EQ(world.Rendered(R"(,"reasoning":{"max_tokens":-5})"), "refused reasoning");
  EXPECT_EQ(world.Rendered(R"(,"thinking":{"type":"maybe"})"), "refused thinking");
  EXPECT_EQ(world.Rendered(R"(,"thinking_budget":5,"max_reasoning_tokens":6)"),
            "refused max_reasoning_tokens");
  EXPECT_EQ(world.Rendered(R"(,"thinking_budget":5,"max_reasoning_tokens":5)"), "|||hi");
  world.model->formats = {answer::CallFormat::kHarmony, answer::ReasoningFormat::kHarmony};
  EXPECT_EQ(world.Rendered(R"(,"reasoning_effort":"xhigh")"), "high|True|True|hi");
  EXPECT_EQ(world.Rendered(R"(,"reasoning_effort":"none")"), "low|False|False|hi");
}

TEST(Reasoning, OfEarlierTurnsUnderEitherName) {
  ThinkingWorld world(kShowKwargs);
  for (const char* name : {"reasoning", "reasoning_content"}) {
    auto writer = world.Post("/v1/chat/completions/render",
                             std::string(R"({"messages":[{"role":"assistant","content":"a",")") +
                                 name + R"(":"why"},{"role":"user","content":"b"}]})");
    EXPECT_EQ(writer->json()["prompt"], "|||awhyb");
  }
}

TEST(Reasoning, BudgetsReachTheSampler) {
  for (const char* member :
       {R"("thinking_token_budget":7)", R"("thinking_budget":7)", R"("reasoning":{"max_tokens":7})",
        R"("thinking":{"type":"enabled","budget_tokens":7})"}) {
    ThinkingWorld world;
    world.Chat(member);
    ASSERT_EQ(world.engine->requests.size(), 1u) << member;
    const auto& grammar = world.engine->requests[0].sampling.grammar;
    ASSERT_NE(grammar, nullptr) << member;
    EXPECT_EQ(grammar->kind, grammar::GrammarSpec::Kind::kText);
    EXPECT_EQ(grammar->reasoning_tokens_max, 7);
    EXPECT_EQ(grammar->reasoning_end, "</think>");
  }
  ThinkingWorld anthropic;
  anthropic.Post("/v1/messages", R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],
                                     "thinking":{"type":"enabled","budget_tokens":7}})");
  EXPECT_EQ(anthropic.engine->requests[0].sampling.grammar->reasoning_tokens_max, 7);
  ThinkingWorld both;
  both.Chat(R"("thinking_token_budget":0,"guided_choice":["a","b"])");
  EXPECT_EQ(both.engine->requests[0].sampling.grammar->kind, grammar::GrammarSpec::Kind::kChoice);
  EXPECT_EQ(both.engine->requests[0].sampling.grammar->reasoning_tokens_max, 0);
  ThinkingWorld none;
  none.Chat(R"("thinking_token_budget":-1)");
  EXPECT_EQ(none.engine->requests[0].sampling.grammar, nullptr);
  none.model->formats.reasoning = answer::ReasoningFormat::kNone;
  none.Chat(R"("thinking_token_budget":5)");
  EXPECT_EQ(none.engine->requests[1].sampling.grammar, nullptr) << "there is no reasoning to end";
}

TEST(Reasoning, IsShownHiddenOrContent) {
  const auto message = [](const std::string& members, bool stream) {
    ThinkingWorld world;
    auto writer = world.Chat(members + R"(,"stream":)" + (stream ? "true" : "false"));
    for (const char* text : {"<think>h", "m</think>", "\n\nYes."}) world.engine->Say(text);
    world.engine->Say("", FinishReason::kStop);
    if (!stream) {
      const auto whole = writer->json();
      EXPECT_GT(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
      return Shown(whole["choices"][0]["message"]["content"],
                   whole["choices"][0]["message"].value("reasoning_content", ""));
    }
    Shown all;
    for (const std::string& event : writer->events) {
      if (event == "[DONE]") continue;
      const auto delta = Json::parse(event)["choices"][0]["delta"];
      all.first += delta.value("content", "");
      all.second += delta.value("reasoning_content", "");
    }
    return all;
  };
  for (bool stream : {false, true}) {
    EXPECT_EQ(message(R"("include_reasoning":true)", stream), Shown("Yes.", "hm"));
    EXPECT_EQ(message(R"("include_reasoning":false)", stream), Shown("Yes.", ""));
    EXPECT_EQ(message(R"("reasoning":{"exclude":true})", stream), Shown("Yes.", ""));
    for (const char* member : {R"("separate_reasoning":false)", R"("reasoning_format":"none")"})
      EXPECT_EQ(message(member, stream), Shown("<think>hm</think>\n\nYes.", ""));
  }
}

TEST(RequestTemplate, IsTakenWhereTheOperatorAllowsIt) {
  ThinkingWorld world(kShowKwargs);
  const std::string own =
      R"(,"chat_template":"{{ messages[0].content }}:{{ bos_token }}{{ mood }}")";
  EXPECT_EQ(world.Rendered(own), "refused chat_template");
  EXPECT_EQ(world.Rendered(R"(,"chat_template":null)"), "|||hi");
  world.model->request_templates = true;
  EXPECT_EQ(world.Rendered(own), "hi:");
  EXPECT_EQ(world.Rendered(own + R"(,"chat_template_kwargs":{"mood":"glad"})"), "hi:glad");
  EXPECT_EQ(world.Rendered(R"(,"chat_template":5)"), "refused chat_template");
  EXPECT_EQ(world.Rendered(R"(,"chat_template":"{% if %}")"), "refused chat_template");
  EXPECT_EQ(world.Rendered(R"(,"chat_template":"{{ raise_exception('no') }}")"),
            "refused chat_template");
  EXPECT_EQ(
      world.Rendered(
          R"(,"chat_template":"{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}")"),
      "refused chat_template");
  EXPECT_EQ(world.Rendered(R"(,"chat_template":")" + std::string(70000, 'x') + "\""),
            "refused chat_template");
  world.model->chat_template = nullptr;
  EXPECT_EQ(world.Rendered(own), "hi:");
  EXPECT_EQ(world.Rendered(""), "refused messages");
}

// The parser goes on with what the client has begun, calls included.
TEST(ContinueFinalMessage, WithTools) {
  ThinkingWorld world(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  auto writer = world.Post("/v1/chat/completions", R"({"continue_final_message":true,
      "messages":[{"role":"user","content":"q"},{"role":"assistant","content":"I look: "}],
      "tools":[{"type":"function","function":{"name":"f"}}]})");
  const auto& prompt = world.engine->requests[0].prompt;
  EXPECT_EQ(world.model->tokenizer->Decode(prompt, true), "<user>q</><assistant>I look: ");
  world.engine->Say("so\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
                    FinishReason::kStop);
  const auto choice = writer->json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "so");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

}  // namespace
}  // namespace staffel::api
