// Random schemas: whatever random walks along the masks end with is valid by a second opinion, and
// instances that are made from the schema without the grammar pass.
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "support.h"
#include "tests/support/seed.h"
#include "tests/unit/grammar/schema_maker.h"
#include "tests/unit/grammar/validator.h"

namespace staffel::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemas = 2000;
constexpr int kWalks = 2;
constexpr int kSteps = 600;

// Walks until the end; after a while it prefers what ends things. Empty: it did not end.
std::string Walk(const std::shared_ptr<Automaton>& automaton, const Vocabulary& vocabulary,
                 std::mt19937_64& random) {
  Matcher matcher(automaton);
  std::string text;
  std::vector<MaskWord> mask(vocabulary.mask_words());
  const size_t patience = random() % 60;
  for (int step = 0; step < kSteps; ++step) {
    if (matcher.FillMask(absl::MakeSpan(mask)) == 0) {
      ADD_FAILURE() << "nothing may follow '" << text << "'";
      return "";
    }
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocabulary.size(); ++token) {
      if (mask[token / 32] >> (token % 32) & 1) allowed.push_back(token);
    }
    TokenId token = allowed[random() % allowed.size()];
    if (text.size() > patience) {
      for (TokenId candidate : allowed) {
        const std::string_view bytes = vocabulary.bytes(candidate);
        if (vocabulary.IsEnd(candidate) || bytes == "\"" || bytes == "}" || bytes == "]") {
          token = candidate;
        }
      }
    }
    if (!matcher.Accept(token).ok()) {
      ADD_FAILURE() << "token " << token << " of the mask is refused after '" << text << "'";
      return "";
    }
    if (matcher.finished()) return text;
    text += vocabulary.bytes(token);
  }
  return "";
}

TEST(RandomSchemas, WalksEndInValidTextsAndInstancesPass) {
  const uint64_t seed = TestSeed();
  const auto vocabulary = WalkVocabulary();
  std::mt19937_64 random(seed);
  int compiled = 0, walked = 0, ended = 0, instances = 0;
  for (int i = 0; i < kSchemas; ++i) {
    SchemaMaker maker(seed * 1'000'003 + i);
    const Json schema = maker.Schema();
    const std::string text = schema.dump();
    auto automaton = MakeAutomaton(SchemaSpec(text), vocabulary);
    if (!automaton.ok()) {
      // Only for want of any text: no keyword here is unknown.
      EXPECT_NE(automaton.status().message().find("no text at all"), std::string::npos)
          << text << ": " << automaton.status();
      EXPECT_FALSE(maker.Instance(schema, schema).has_value()) << text;
      continue;
    }
    ++compiled;
    for (int walk = 0; walk < kWalks; ++walk) {
      const std::string answer = Walk(*automaton, *vocabulary, random);
      ++walked;
      if (answer.empty()) continue;
      ++ended;
      const Json value = Json::parse(answer, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text << " gave " << answer;
      ASSERT_TRUE(IsValid(value, schema, schema)) << text << " gave " << answer;
    }
    for (int n = 0; n < 3; ++n) {
      const std::optional<Json> value = maker.Instance(schema, schema);
      if (!value || !IsValid(*value, schema, schema)) continue;
      ++instances;
      ASSERT_TRUE(Accepts(*automaton, value->dump(n == 1 ? 2 : -1)))
          << text << " must take " << value->dump(n == 1 ? 2 : -1);
    }
  }
  std::cout << compiled << " schemas, " << ended << " of " << walked << " walks ended, "
            << instances << " instances\n";
  EXPECT_GT(compiled, kSchemas * 9 / 10);
  EXPECT_GT(ended, walked * 7 / 10);
  EXPECT_GT(instances, kSchemas);
}

}  // namespace
}  // namespace staffel::grammar
