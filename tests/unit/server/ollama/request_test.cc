#include "server/ollama/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/strings.h"
#include "server/ollama/fields.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const RecordingWriter& writer) {
  return writer.status == 0 ? "" : writer.json()["error"].get<std::string>();
}

std::shared_ptr<RecordingWriter> Chat(ApiWorld& world, const std::string& messages,
                                      const std::string& members = "") {
  return world.Post("/api/chat",
                    StrCat(R"({"messages":)", messages, members.empty() ? "" : ",", members, "}"));
}

std::shared_ptr<RecordingWriter> Generate(ApiWorld& world, const std::string& members) {
  return world.Post("/api/generate", "{" + members + "}");
}

std::string Prompt(const ApiWorld& world, int which = 0) {
  return world.model->tokenizer->Decode(world.engine->requests.at(which).prompt, true);
}

TEST(OllamaRequest, Options) {
  ApiWorld world;
  Generate(world, R"("prompt":"a")");
  const GenerateRequest plain = world.engine->requests[0];
  EXPECT_FLOAT_EQ(plain.sampling.temperature, 0.8f);
  EXPECT_EQ(plain.sampling.top_k, 40);
  EXPECT_FLOAT_EQ(plain.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(plain.sampling.min_p, 0);
  EXPECT_FLOAT_EQ(plain.sampling.repetition_penalty, 1);
  Generate(
      world,
      R"("prompt":"a","options":{"num_predict":3,"temperature":0,"top_k":5,"top_p":0.5,"min_p":0.1,"seed":7,
      "repeat_penalty":1.2,"presence_penalty":0.1,"frequency_penalty":0.2,"stop":"x","num_ctx":4096,"mirostat":0})");
  const GenerateRequest set = world.engine->requests[1];
  EXPECT_EQ(set.max_tokens, 3);
  EXPECT_FLOAT_EQ(set.sampling.temperature, 0);
  EXPECT_EQ(set.sampling.seed, 7u);
  EXPECT_FLOAT_EQ(set.sampling.repetition_penalty, 1.2f);
  EXPECT_FLOAT_EQ(set.sampling.frequency_penalty, 0.2f);
  Generate(
      world,
      R"("prompt":"a","options":{"num_predict":-1,"seed":-1,"repeat_penalty":1.2,"repeat_last_n":0,"stop":["x","y"]})");
  EXPECT_FLOAT_EQ(world.engine->requests[2].sampling.repetition_penalty, 1);
  EXPECT_GT(world.engine->requests[2].max_tokens, 50);
}

TEST(OllamaRequest, OptionsBeyondTheirBoundsAreNamed) {
  for (const Field& field : ollama::OptionFields()) {
    if (field.kind != FieldKind::kInt && field.kind != FieldKind::kNumber) continue;
    for (const auto& [bound, beyond] : {std::pair(field.min, -1), std::pair(field.max, 1)}) {
      if (!std::isfinite(bound)) continue;
      ApiWorld world;
      const auto ask = [&](double value) {
        const bool integer = field.kind == FieldKind::kInt;
        const std::string text = integer ? StrCat(static_cast<int64_t>(value)) : StrCat(value);
        return Generate(world,
                        StrCat(R"("prompt":"a","options":{")", field.name, "\":", text, "}"));
      };
      EXPECT_EQ(ErrorOf(*ask(bound)), "") << field.name;
      EXPECT_THAT(ErrorOf(*ask(bound + beyond)), HasSubstr(StrCat("'options.", field.name, "'")));
    }
  }
  ApiWorld world;
  EXPECT_THAT(ErrorOf(*Generate(world, R"("prompt":"a","options":{"mirostat":2})")),
              HasSubstr("'options.mirostat'"));
  EXPECT_THAT(ErrorOf(*Generate(world, R"("prompt":"a","options":{"stop":[""]})")),
              HasSubstr("'options.stop'"));
  EXPECT_THAT(ErrorOf(*Generate(world, R"("prompt":"a","options":3)")), HasSubstr("'options'"));
}

TEST(OllamaRequest, SystemPromptAndRaw) {
  ApiWorld world;
  Generate(world, R"("prompt":"a","system":"s")");
  EXPECT_EQ(Prompt(world), "<|turn|>system:s<|end|><|turn|>user:a<|end|><|turn|>");
  Generate(world, R"("prompt":"<|turn|>","raw":true)");
  EXPECT_EQ(world.engine->requests[1].prompt, std::vector<TokenId>{ByteTokenizer::kTurn});
  for (const char* wrong :
       {R"("raw":true,"system":"s")", R"("raw":true,"context":[1])", R"("suffix":"b","system":"s")",
        R"("template":"{{ .Prompt }}")", R"("images":["x"])", R"("format":"xml")", R"("format":3)",
        R"("think":"much")", R"("context":[999])", R"("top_logprobs":2)",
        R"("suffix":"no tokens for it")"}) {
    EXPECT_EQ(Generate(world, StrCat(R"("prompt":"a",)", wrong))->status, 400) << wrong;
  }
  EXPECT_EQ(
      Generate(world, R"("prompt":"a","template":"","images":[],"keep_alive":"5m","format":"")")
          ->status,
      0);
}

TEST(OllamaRequest, AModelWithoutTemplateGetsThePromptAlone) {
  ApiWorld world;
  world.model->chat_template = nullptr;
  Generate(world, R"("prompt":"ab")");
  EXPECT_EQ(Prompt(world), "ab");
  EXPECT_EQ(Chat(world, R"([{"role":"user","content":"a"}])")->status, 400);
}

TEST(OllamaRequest, SuffixIsAGapToFill) {
  ApiWorld world;
  auto tokenizer = std::make_shared<ByteTokenizer>();
  tokenizer->mutable_spec().fim_prefix = 1;
  tokenizer->mutable_spec().fim_suffix = 2;
  tokenizer->mutable_spec().fim_middle = 3;
  world.model->tokenizer = tokenizer;
  Generate(world, R"("prompt":"a","suffix":"b")");
  EXPECT_EQ(world.engine->requests[0].prompt, (std::vector<TokenId>{1, 'a', 2, 'b', 3}));
}

TEST(OllamaRequest, ConversationsWithCalls) {
  ApiWorld world(
      "{% for m in messages %}[{{ m.role }}|{{ m.content }}{% for c in m.tool_calls or [] %}|{{ "
      "c.id }}:"
      "{{ c.function.name }}{% endfor %}{% if m.tool_call_id %}|for {{ m.tool_call_id }}{% endif "
      "%}]{% endfor %}");
  Chat(world, R"([{"role":"user","content":"q"},
      {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g","arguments":{}}}]},
      {"role":"tool","tool_name":"g","content":"2"},{"role":"tool","content":"1"}])");
  EXPECT_EQ(Prompt(world),
            "[user|q][assistant||call_1:f|call_2:g][tool|2|for call_2][tool|1|for call_1]");
  for (const char* wrong :
       {"3", "[3]", R"([{"role":"user","content":"a","images":["x"]}])",
        R"([{"role":"boss","content":"a"}])", R"([{"content":"a"}])",
        R"([{"role":"user","content":3}])", R"([{"role":"assistant","tool_calls":[{"name":"f"}]}])",
        R"([{"role":"assistant","tool_calls":3}])"}) {
    EXPECT_EQ(Chat(world, wrong)->status, 400) << wrong;
  }
}

TEST(OllamaRequest, WhatTheAssistantHasBegunGoesOn) {
  ApiWorld world;
  Chat(world, R"([{"role":"user","content":"q"},{"role":"assistant","content":"so"}])");
  EXPECT_EQ(Prompt(world), "<|turn|>user:q<|end|><|turn|>assistant:so");
}

TEST(OllamaRequest, WithoutAPromptTheModelIsLookedUp) {
  ApiWorld world;
  for (const char* body :
       {R"({"model":"tiny"})", R"({"model":"tiny:latest","prompt":"","keep_alive":0})"}) {
    const auto writer = world.Post("/api/generate", body);
    EXPECT_EQ(writer->json()["done"], true) << body;
    EXPECT_EQ(writer->json()["done_reason"], "load");
  }
  EXPECT_EQ(world.Post("/api/chat", R"({"model":"tiny","messages":[]})")->json()["done_reason"],
            "load");
  EXPECT_EQ(world.Post("/api/generate", R"({"model":"none"})")->status, 404);
  EXPECT_EQ(world.Post("/api/chat", R"({"model":"tiny","options":[]})")->status, 400);
  EXPECT_TRUE(world.engine->requests.empty());
}

}  // namespace
}  // namespace staffel::api
