#include "grammar/matcher.h"

#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "support.h"
#include "tests/support/seed.h"

namespace staffel::grammar {
namespace {

// All bytes, and pieces as vocabularies have them: words with a blank in front, ends of strings
// with what follows, parts of characters, runs of white space.
std::shared_ptr<const Vocabulary> PieceVocabulary(uint64_t seed) {
  std::mt19937_64 random(seed);
  VocabularySpec spec;
  for (int b = 0; b < 256; ++b) spec.token_bytes.emplace_back(1, static_cast<char>(b));
  const std::vector<std::string> parts = {
      "\"",   ",",        ":",        "{",    "}",    "[",        "]",    " ",    "\n",
      "  ",   "a",        "b",        "name", "true", "null",     "1",    "23",   "-",
      ".",    "0",        "\\",       "\\n",  "\\u",  "\xC3\xA9", "\xC3", "\xA9", "\xE2\x82",
      "\xAC", "\xF0\x9F", "\x98\x80", "e",    "id",   "x",        "\t",   "/"};
  std::set<std::string> pieces;
  while (pieces.size() < 1500) {
    std::string piece;
    for (size_t n = 1 + random() % 5; n > 0; --n) piece += parts[random() % parts.size()];
    pieces.insert(piece);
  }
  pieces.insert(std::string(40, 'a'));
  pieces.insert(std::string(33, 'b') + "\"");
  spec.token_bytes.insert(spec.token_bytes.end(), pieces.begin(), pieces.end());
  spec.token_bytes.push_back("name");  // bytes of another token
  spec.token_bytes.push_back("");      // a control token
  spec.token_bytes.push_back("");      // the ends
  spec.token_bytes.push_back("</s>");
  const auto size = static_cast<TokenId>(spec.token_bytes.size());
  spec.end_tokens = {size - 1, size - 2};
  return *Vocabulary::Make(std::move(spec));
}

bool Allowed(const std::vector<MaskWord>& mask, TokenId token) {
  return mask[token / 32] >> (token % 32) & 1;
}

std::vector<GrammarSpec> Specs() {
  std::vector<GrammarSpec> specs = {
      GrammarSpec{},
      SchemaSpec("true"),
      SchemaSpec(
          R"({"type":"object","properties":{"name":{"type":"string","maxLength":7},"id":{"type":"integer"},)"
          R"("tags":{"type":"array","items":{"enum":["a","ab","b\n"]}}},"required":["id"]})"),
      SchemaSpec(R"({"type":"string","pattern":"^[ab]{2,9}$"})"),
      SchemaSpec(R"({"type":"string","minLength":3,"maxLength":100})"),
      SchemaSpec(R"({"type":"string","pattern":"a.*b"})"),
      SchemaSpec(
          R"({"type":"object","additionalProperties":{"type":"number","minimum":-1,"maximum":30}})"),
      RegexSpec(".*"),
      RegexSpec("(a|b|name)+ ?[0-9]{1,3}"),
      RegexSpec("[^\"]*\"?"),
      GbnfSpec("root ::= \"{\" (root (\",\" root)*)? \"}\" | \"a\"+"),
      GbnfSpec("root ::= s\ns ::= \"a\" s s | \"\""),
  };
  GrammarSpec choice;
  choice.kind = GrammarSpec::Kind::kChoice;
  choice.choices = {"name", "nametrue", "1", "\xC3\xA9"};
  specs.push_back(choice);
  GrammarSpec tags;
  tags.kind = GrammarSpec::Kind::kTags;
  tags.triggers = {"{\"name"};
  tags.tags = {{"{\"name\":", R"({"type":"boolean"})", "}"}};
  specs.push_back(tags);
  return specs;
}

// The mask has a token if and only if its bytes, one by one, lead somewhere.
TEST(Matcher, MaskIsThatOfBruteForce) {
  const uint64_t seed = TestSeed();
  const auto vocabulary = PieceVocabulary(seed);
  std::mt19937_64 random(seed);
  std::vector<MaskWord> mask(vocabulary->mask_words());
  for (const GrammarSpec& spec : Specs()) {
    auto automaton = MakeAutomaton(spec, vocabulary);
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    for (int walk = 0; walk < 6; ++walk) {
      Matcher matcher(*automaton);
      std::string text;
      for (int step = 0; step < 25 && !matcher.finished(); ++step) {
        const int count = matcher.FillMask(absl::MakeSpan(mask));
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < vocabulary->size(); ++token) {
          bool expected = false;
          if (vocabulary->IsEnd(token)) {
            expected = matcher.IsComplete();
          } else if (!vocabulary->bytes(token).empty()) {
            expected = Matcher(matcher).AcceptBytes(vocabulary->bytes(token)).ok();
          }
          ASSERT_EQ(Allowed(mask, token), expected)
              << "token " << token << " '" << vocabulary->bytes(token) << "' after '" << text
              << "' of " << spec.source;
          if (expected) allowed.push_back(token);
        }
        ASSERT_EQ(count, static_cast<int>(allowed.size()));
        ASSERT_FALSE(allowed.empty()) << "nothing may follow '" << text << "' of " << spec.source;
        const TokenId token = allowed[random() % allowed.size()];
        text += vocabulary->bytes(token);
        ASSERT_TRUE(matcher.Accept(token).ok());
      }
    }
  }
}

TEST(Matcher, RefusesWhatTheMaskDoesNotHave) {
  auto automaton = *MakeAutomaton(RegexSpec("ab?"));
  Matcher matcher(automaton);
  EXPECT_FALSE(matcher.Accept('b').ok());
  EXPECT_FALSE(matcher.Accept(256).ok());
  EXPECT_FALSE(matcher.Accept(-1).ok());
  EXPECT_FALSE(matcher.Accept(257).ok());
  EXPECT_FALSE(matcher.AcceptBytes("ac").ok());
  ASSERT_TRUE(matcher.Accept('a').ok());
  EXPECT_TRUE(matcher.IsComplete());
  ASSERT_TRUE(matcher.Accept(256).ok());
  EXPECT_TRUE(matcher.finished());
  EXPECT_FALSE(matcher.Accept('b').ok());
  EXPECT_TRUE(matcher.Accept(256).ok());
  std::vector<MaskWord> mask(automaton->vocabulary().mask_words());
  EXPECT_EQ(matcher.FillMask(absl::MakeSpan(mask)), 1);
  EXPECT_TRUE(Allowed(mask, 256));
}

TEST(Matcher, RollsBackAndCopies) {
  auto automaton = *MakeAutomaton(SchemaSpec(R"({"type":"array","items":{"type":"integer"}})"));
  Matcher matcher(automaton);
  for (char c : std::string_view("[1,2]")) ASSERT_TRUE(matcher.Accept(c).ok());
  ASSERT_TRUE(matcher.Accept(256).ok());
  Matcher copy = matcher;
  matcher.Rollback(2);
  EXPECT_FALSE(matcher.finished());
  EXPECT_FALSE(matcher.IsComplete());
  EXPECT_TRUE(matcher.AcceptBytes(",3]").ok());
  EXPECT_TRUE(matcher.IsComplete());
  EXPECT_TRUE(copy.finished());
  copy.Rollback(copy.rollback_count());
  EXPECT_TRUE(copy.AcceptBytes("[]").ok());
}

TEST(Matcher, KnowsWhatMustFollow) {
  GrammarSpec spec = SchemaSpec(
      R"({"type":"object","properties":{"answer":{"enum":["yes","yet"]}},"required":["answer"]})");
  spec.space = JsonSpace::kNone;
  auto automaton = *MakeAutomaton(spec);
  Matcher matcher(automaton);
  EXPECT_EQ(matcher.ForcedBytes(), "{\"answer\":\"ye");
  EXPECT_EQ(matcher.ForcedBytes(3), "{\"a");
  ASSERT_TRUE(matcher.AcceptBytes("{\"answer\":\"ye").ok());
  EXPECT_EQ(matcher.ForcedBytes(), "");
  ASSERT_TRUE(matcher.AcceptBytes("s").ok());
  EXPECT_EQ(matcher.ForcedBytes(), "\"}");
  ASSERT_TRUE(matcher.AcceptBytes("\"}").ok());
  EXPECT_EQ(matcher.ForcedBytes(), "");
  EXPECT_EQ(matcher.Mask()->only, 256);
}

// A table that has outgrown its limit is begun anew; places, histories and masks go on as before.
TEST(Matcher, GoesOnInANewTable) {
  const auto vocabulary = PieceVocabulary(1);
  Limits small;
  small.cache_bytes = 20'000;
  auto tight = *MakeAutomaton(SchemaSpec("true"), vocabulary, small);
  auto wide = *MakeAutomaton(SchemaSpec("true"), vocabulary);
  Matcher a(tight), b(wide);
  const std::string text = R"({"a":[1,{"b":[[true,"x\ny"],-0.5e3]}],"name":"\u00e9"})";
  for (char c : text) {
    ASSERT_TRUE(a.Accept(static_cast<uint8_t>(c)).ok());
    ASSERT_TRUE(b.Accept(static_cast<uint8_t>(c)).ok());
    ASSERT_EQ(a.Mask()->words, b.Mask()->words) << c;
  }
  EXPECT_TRUE(a.IsComplete());
  a.Rollback(20);
  b.Rollback(20);
  EXPECT_EQ(a.Mask()->words, b.Mask()->words);
  EXPECT_TRUE(a.AcceptBytes(std::string_view(text).substr(text.size() - 20)).ok());
  EXPECT_TRUE(a.IsComplete());
}

TEST(Matcher, ThreadsShareAnAutomaton) {
  const auto vocabulary = PieceVocabulary(1);
  Limits small;
  small.cache_bytes = 100'000;
  auto automaton = *MakeAutomaton(SchemaSpec("true"), vocabulary, small);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int walk = 0; walk < 5; ++walk) {
        Matcher matcher(automaton);
        for (int step = 0; step < 40 && !matcher.finished(); ++step) {
          const auto mask = matcher.Mask();
          TokenId token = static_cast<TokenId>(random() % vocabulary->size());
          while (!Allowed(mask->words, token)) token = (token + 1) % vocabulary->size();
          ASSERT_TRUE(matcher.Accept(token).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Vocabulary, RefusesIdsOutOfRange) {
  EXPECT_FALSE(Vocabulary::Make({}).ok());
  EXPECT_FALSE(Vocabulary::Make({.token_bytes = {"a"}, .end_tokens = {1}}).ok());
  EXPECT_FALSE(Vocabulary::Make({.token_bytes = {"a"}, .named_tokens = {{"x", -1}}}).ok());
}

}  // namespace
}  // namespace staffel::grammar
