// Tokens that a grammar leaves no choice for.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_cache.h"
#include "support.h"

namespace staffel::grammar {
namespace {

// Bytes, and words as a tokenizer has them: 257 on.
const std::vector<std::string>& Words() {
  static const std::vector<std::string> words = {"name", "\":", " \"", "city", "_code", "\xC3\xA9"};
  return words;
}

std::shared_ptr<const Vocabulary> WordVocabulary() {
  VocabularySpec spec;
  for (int b = 0; b < 256; ++b) spec.token_bytes.emplace_back(1, static_cast<char>(b));
  spec.token_bytes.emplace_back();
  spec.end_tokens = {256};
  spec.token_bytes.insert(spec.token_bytes.end(), Words().begin(), Words().end());
  spec.token_bytes.emplace_back();
  spec.named_tokens = {{"<call>", static_cast<TokenId>(spec.token_bytes.size()) - 1}};
  return *Vocabulary::Make(std::move(spec));
}

// Words where they fit, else bytes.
std::vector<TokenId> Spell(std::string_view text) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    TokenId token = static_cast<uint8_t>(text[0]);
    size_t size = 1;
    for (size_t i = 0; i < Words().size(); ++i) {
      if (!text.starts_with(Words()[i])) continue;
      token = static_cast<TokenId>(257 + i);
      size = Words()[i].size();
    }
    tokens.push_back(token);
    text.remove_prefix(size);
  }
  return tokens;
}

class ForcedTest : public ::testing::Test {
 protected:
  void Begin(const GrammarSpec& spec, GrammarCache::Spell spell = Spell) {
    cache_ = std::make_unique<GrammarCache>(WordVocabulary(), std::move(spell));
    auto begun = cache_->Begin(spec);
    ASSERT_TRUE(begun.ok()) << begun.status();
    sequence_ = *std::move(begun);
  }
  void Append(std::initializer_list<TokenId> tokens) {
    for (TokenId token : tokens) ASSERT_TRUE(sequence_->Append(token).ok()) << token;
  }
  std::vector<TokenId> Forced() { return {sequence_->Forced().begin(), sequence_->Forced().end()}; }

  std::unique_ptr<GrammarCache> cache_;
  std::unique_ptr<SequenceGrammar> sequence_;
};

using Tokens = std::vector<TokenId>;

TEST_F(ForcedTest, AKeyIsForcedButForItsLastToken) {
  GrammarSpec spec =
      SchemaSpec(R"({"type":"object","properties":{"name":{"type":"string"}},"required":["name"],)"
                 R"("additionalProperties":false})");
  spec.space = JsonSpace::kNone;
  Begin(spec);
  // {"name":" is forced; the last " may begin a token that holds more.
  EXPECT_EQ(Forced(), (Tokens{'{', '"', 257, 258}));
  Append({'{'});
  EXPECT_EQ(Forced(), (Tokens{'"', 257, 258}));
  Append({'"', 257, 258});
  EXPECT_EQ(Forced(), Tokens{}) << "one byte is forced, and it may be part of more";
  Append({'"', 'x'});
  EXPECT_EQ(Forced(), Tokens{}) << "any text";
  Append({'"'});
  EXPECT_EQ(Forced(), Tokens{}) << "only } may follow, and then only the end";
}

TEST_F(ForcedTest, WhatTheModelHasBegunIsSpeltOn) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kChoice;
  spec.choices = {"namecity_code!", "other"};
  Begin(spec);
  EXPECT_EQ(Forced(), Tokens{}) << "a choice";
  Append({'n'});
  EXPECT_EQ(Forced(), (Tokens{'a', 'm', 'e', 260, 261}));
  // As it was spelt, though "e" alone could be spelt anew.
  Append({'a', 'm'});
  EXPECT_EQ(Forced(), (Tokens{'e', 260, 261}));
  // Another spelling of the same is no error; the rest is spelt from there.
  Append({'e', 'c', 'i'});
  EXPECT_EQ(Forced(), (Tokens{'t', 'y', 261}));
}

TEST_F(ForcedTest, AControlTokenClosesWhatStandsBeforeIt) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.triggers = {"name"};
  spec.tags = {{"namecity", R"({"const":"x"})", "_code" + NamedTokenBytes("<call>")}};
  spec.tag_required = spec.single_tag = true;
  spec.space = JsonSpace::kNone;
  Begin(spec);
  EXPECT_EQ(Forced(), (Tokens{257, 260, '"', 'x', '"', 261}));
  Append({257, 260, '"', 'x', '"', 261});
  EXPECT_EQ(Forced(), Tokens{}) << "the mask has the control token alone";
  const auto mask = sequence_->Mask();
  EXPECT_EQ(mask->only, 263);
}

TEST_F(ForcedTest, NothingIsForcedWithoutASpellingThatFits) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kChoice;
  spec.choices = {"namecity_code!"};
  Begin(spec, nullptr);
  EXPECT_EQ(Forced(), Tokens{});
  // A tokenizer that puts a blank in front spells another text.
  Begin(spec, [](std::string_view text) { return Spell(" " + std::string(text)); });
  EXPECT_EQ(Forced(), Tokens{});
  // One that loses bytes, too.
  Begin(spec, [](std::string_view text) { return Spell(text.substr(0, text.size() - 1)); });
  EXPECT_EQ(Forced(), Tokens{});
  // And one that names tokens which no text can have.
  Begin(spec, [](std::string_view) { return Tokens{256, 263}; });
  EXPECT_EQ(Forced(), Tokens{});
}

}  // namespace
}  // namespace staffel::grammar
