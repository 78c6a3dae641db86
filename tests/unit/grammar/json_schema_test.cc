#include "grammar/json_schema.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "support.h"

namespace staffel::grammar {
namespace {

using ::testing::HasSubstr;

// tests/data/grammar/schemas.json: for each schema texts that it takes and refuses, or a part of
// the error's message.
TEST(JsonSchema, AcceptsAndRefusesTexts) {
  std::ifstream file(std::string(STAFFEL_TEST_DATA) + "/grammar/schemas.json");
  const auto cases = nlohmann::ordered_json::parse(file);
  ASSERT_GT(cases.size(), 100u);
  for (const auto& test : cases) {
    const std::string schema = test["schema"].dump();
    auto automaton = MakeAutomaton(SchemaSpec(schema));
    if (test.contains("error")) {
      ASSERT_FALSE(automaton.ok()) << schema;
      EXPECT_EQ(automaton.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(automaton.status().message()),
                  HasSubstr(test["error"].get<std::string>()))
          << schema;
      continue;
    }
    ASSERT_TRUE(automaton.ok()) << schema << ": " << automaton.status();
    for (const auto& text : test["accepted"]) {
      EXPECT_TRUE(Accepts(*automaton, text.get<std::string>()))
          << schema << " must take " << text.get<std::string>();
    }
    for (const auto& text : test["refused"]) {
      EXPECT_FALSE(Accepts(*automaton, text.get<std::string>()))
          << schema << " must refuse " << text.get<std::string>();
    }
  }
}

TEST(JsonSchema, WhiteSpaceIsBounded) {
  GrammarSpec spec =
      SchemaSpec(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})");
  auto flexible = *MakeAutomaton(spec);
  EXPECT_TRUE(Accepts(flexible, "{\n" + std::string(16, ' ') + "\"a\": 1\n}"));
  EXPECT_FALSE(Accepts(flexible, "{\n" + std::string(17, ' ') + "\"a\": 1\n}"));
  EXPECT_FALSE(Accepts(flexible, "{\"a\":  1}"));
  EXPECT_FALSE(Accepts(flexible, " {\"a\":1}"));
  EXPECT_FALSE(Accepts(flexible, "{\"a\":1} "));
  spec.space = JsonSpace::kNone;
  auto compact = *MakeAutomaton(spec);
  EXPECT_TRUE(Accepts(compact, "{\"a\":1}"));
  EXPECT_FALSE(Accepts(compact, "{\"a\": 1}"));
}

TEST(JsonSchema, JsonObjectIsAnyObject) {
  auto automaton = *MakeAutomaton(GrammarSpec{});
  EXPECT_TRUE(Accepts(automaton, R"({"a":[1,{"b":null}],"c":"\u00e9"})"));
  EXPECT_FALSE(Accepts(automaton, "[]"));
  EXPECT_FALSE(Accepts(automaton, "1"));
}

// Whatever a client sends ends soon, with an error if need be.
TEST(JsonSchema, HostileSchemasEndWithAnError) {
  const auto nest = [](std::string_view open, std::string_view close, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += open;
    text += R"({"type":"string"})";
    for (int i = 0; i < times; ++i) text += close;
    return text;
  };
  for (const std::string& schema :
       {nest(R"({"type":"object","properties":{"a":)", "}}", 5000),
        nest(R"({"type":"array","items":)", "}", 5000), nest(R"({"anyOf":[)", "]}", 5000),
        nest(R"({"not":)", "}", 5000), std::string(100'000, '['), std::string("{\"a\""),
        std::string(""), std::string("{\"type\":\"string\"}x"),
        std::string("{\"const\":\"\\ud800\"}"), std::string("{\"minimum\":1e999}")}) {
    const auto grammar = Compile(SchemaSpec(schema));
    ASSERT_FALSE(grammar.ok()) << schema.substr(0, 60);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << grammar.status();
  }
  // Alternatives multiplied: 2^20 combinations.
  std::string all = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) {
    all += (i ? "," : "") + std::string(R"({"anyOf":[{"type":"integer","minimum":)") +
           std::to_string(i) + R"(},{"type":"integer","maximum":)" + std::to_string(100 + i) +
           "}]}";
  }
  EXPECT_EQ(Compile(SchemaSpec(all + "]}")).status().code(), absl::StatusCode::kResourceExhausted);
  // A chain of references longer than the depth that is followed.
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 3000; ++i) {
    chain += "\"d" + std::to_string(i) + R"(":{"type":"array","items":{"$ref":"#/$defs/d)" +
             std::to_string(i + 1) + "\"}},";
  }
  EXPECT_FALSE(Compile(SchemaSpec(chain + R"("d3000":{"type":"null"}}})")).ok());
  // A reference used twice at each of 30 levels stays small.
  std::string doubled = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 30; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    doubled += "\"d" + std::to_string(i) + R"(":{"type":"object","properties":{"a":)" + next +
               R"(,"b":)" + next + "}},";
  }
  EXPECT_TRUE(Compile(SchemaSpec(doubled + R"("d30":{"type":"null"}}})")).ok());
}

TEST(JsonSchema, LargeSchemas) {
  std::string values = R"({"enum":[)";
  for (int i = 0; i < 100'000; ++i) values += (i ? ",\"v" : "\"v") + std::to_string(i) + "\"";
  auto automaton = MakeAutomaton(SchemaSpec(values + "]}"));
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Accepts(*automaton, "\"v99999\""));
  EXPECT_FALSE(Accepts(*automaton, "\"v100000\""));
  std::string properties = R"({"type":"object","properties":{)";
  for (int i = 0; i < 500; ++i) {
    properties +=
        (i ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":"string","maxLength":100})";
  }
  automaton = MakeAutomaton(SchemaSpec(properties + "}}"));
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Accepts(*automaton, R"({"p3":"x","p77":"","p499":"y"})"));
  EXPECT_FALSE(Accepts(*automaton, R"({"p77":"","p3":"x"})"));
}

}  // namespace
}  // namespace staffel::grammar
