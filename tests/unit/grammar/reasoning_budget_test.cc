#include "grammar/reasoning_budget.h"

#include <gtest/gtest.h>

#include <random>

#include "grammar/grammar_cache.h"
#include "support.h"
#include "tests/support/seed.h"

namespace staffel::grammar {
namespace {

// Bytes, two pieces, and control tokens: <end>, <|think|>, <|/think|>.
constexpr TokenId kEnd = 258, kOpen = 259, kClose = 260;

std::shared_ptr<const Vocabulary> ThinkVocabulary() {
  VocabularySpec spec;
  for (int b = 0; b < 256; ++b) spec.token_bytes.emplace_back(1, static_cast<char>(b));
  for (const char* piece : {"</", "think>"}) spec.token_bytes.emplace_back(piece);
  for (int i = 0; i < 3; ++i) spec.token_bytes.emplace_back();
  spec.named_tokens = {{"<|think|>", kOpen}, {"<|/think|>", kClose}};
  spec.end_tokens = {kEnd};
  return *Vocabulary::Make(std::move(spec));
}

GrammarSpec TextSpec(std::string begin, std::string end, int budget, bool open) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kText;
  spec.reasoning_begin = std::move(begin);
  spec.reasoning_end = std::move(end);
  spec.reasoning_open = open;
  spec.reasoning_tokens_max = budget;
  return spec;
}

// Says `text` byte by byte where the grammar leaves a choice; what comes of it, up to `tokens`.
std::string Say(SequenceGrammar& grammar, const Vocabulary& vocabulary, std::string_view text,
                int tokens) {
  std::string said;
  size_t next = 0;
  for (int i = 0; i < tokens; ++i) {
    const auto mask = grammar.Mask();
    TokenId token = mask->only;
    if (token < 0) {
      if (next == text.size()) break;
      token = static_cast<uint8_t>(text[next++]);
    } else if (text.substr(next).starts_with(vocabulary.bytes(token))) {
      next += vocabulary.bytes(token).size();
    }
    EXPECT_TRUE(mask->words[token / 32] >> (token % 32) & 1);
    EXPECT_TRUE(grammar.Append(token).ok());
    said += vocabulary.bytes(token);
  }
  return said;
}

std::string SayAll(const GrammarSpec& spec, std::string_view text) {
  const auto vocabulary = ThinkVocabulary();
  GrammarCache cache(vocabulary);
  EXPECT_TRUE(cache.Check(spec).ok());
  auto grammar = *cache.Begin(spec);
  return Say(*grammar, *vocabulary, text, 1000);
}

TEST(ReasoningBudget, TheEndIsForcedBehindIt) {
  const GrammarSpec text = TextSpec("<think>", "</think>", 3, true);
  EXPECT_EQ(SayAll(text, "abcdef"), "abc</think>def");
  EXPECT_EQ(SayAll(text, "ab</think>cdef"), "ab</think>cdef");
  // What the model has begun of the end counts.
  EXPECT_EQ(SayAll(text, "a</def"), "a</think>def");
  EXPECT_EQ(SayAll(TextSpec("<think>", "</think>", 0, true), "abc"), "</think>abc");
  const std::string close = NamedTokenBytes("<|/think|>");
  EXPECT_EQ(SayAll(TextSpec(NamedTokenBytes("<|think|>"), close, 2, true), "abcd"),
            "ab" + close + "cd");
}

TEST(ReasoningBudget, CountsFromWhereReasoningBegins) {
  const GrammarSpec text = TextSpec("<think>", "</think>", 2, false);
  EXPECT_EQ(SayAll(text, "\n<think>abcd"), "\n<think>ab</think>cd");
  EXPECT_EQ(SayAll(text, "content <think>abcd"), "content <think>abcd");
  // Begun anew, it has nothing left.
  EXPECT_EQ(SayAll(text, "<think>abcd <think>e"), "<think>ab</think>cd <think>e");
  EXPECT_EQ(SayAll(text, "<think>a</think>\n<think>bcd"), "<think>a</think>\n<think></think>bcd");
  EXPECT_EQ(SayAll(TextSpec("<think>", "</think>", -1, true), "abcd"), "abcd");
}

TEST(ReasoningBudget, WaitsForTheEndOfACharacter) {
  EXPECT_EQ(SayAll(TextSpec("<think>", "</think>", 2, true), "\xF0\x9F\x98\x80xy"),
            "\xF0\x9F\x98\x80</think>xy");
}

// In front of a grammar the end leads into it.
TEST(ReasoningBudget, StandsInFrontOfGrammars) {
  const auto vocabulary = ThinkVocabulary();
  GrammarSpec spec = TextSpec("<think>", "</think>", 5, true);
  spec.kind = GrammarSpec::Kind::kChoice;
  spec.choices = {"yes", "no"};
  std::mt19937_64 random(TestSeed());
  GrammarCache cache(vocabulary);
  for (int round = 0; round < 200; ++round) {
    auto grammar = *cache.Begin(spec);
    std::string text;
    for (int step = 0; step < 60; ++step) {
      const auto mask = grammar->Mask();
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary->size(); ++token) {
        if (mask->words[token / 32] >> (token % 32) & 1) allowed.push_back(token);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      const TokenId token = allowed[random() % allowed.size()];
      ASSERT_TRUE(grammar->Append(token).ok());
      if (token == kEnd) break;
      text += vocabulary->bytes(token);
    }
    ASSERT_TRUE(text.ends_with("yes") || text.ends_with("no")) << text;
    ASSERT_LE(text.find("</think>"), 5 * 6u + 3) << text;
  }
}

}  // namespace
}  // namespace staffel::grammar
