#include "text/fill_in_middle.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/text/vocabularies.h"
#include "text/tokenizer.h"

namespace staffel {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = MakeTokenizer(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TokenizerSpec WithNames(TokenType type) {
  return ByteVocabulary({}, {{"<|fim_prefix|>", type},
                             {"<|fim_middle|>", type},
                             {"<|fim_suffix|>", type},
                             {"<|file_sep|>", type}});
}

TEST(FillInMiddle, NamedTokensFrameTheTexts) {
  const auto tokenizer = Make(WithNames(TokenType::kControl));
  const auto prompt = FimPrompt(*tokenizer, "a", "bc");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(*prompt, (Ids{259, 3 + 'a', 261, 3 + 'b', 3 + 'c', 260}));
  EXPECT_EQ(*FimPrompt(*tokenizer, "", ""), (Ids{259, 261, 260}));
  EXPECT_EQ(*FimPrompt(*tokenizer, Ids{7, 8}, "b"), (Ids{259, 7, 8, 261, 3 + 'b', 260}));
  EXPECT_EQ(FimEndTokens(tokenizer->spec()), Ids{262});
}

TEST(FillInMiddle, OtherFilesStandInFront) {
  const auto bytes = [](std::string_view text) {
    Ids ids;
    for (const char c : text) ids.push_back(3 + static_cast<uint8_t>(c));
    return ids;
  };
  const auto tokenizer = Make(WithNames(TokenType::kControl));
  const std::vector<FimFile> files = {{"a.py", "x"}, {"", "y\n"}};
  Ids want;
  for (const char* part : {"a.py\nx\n", "file\ny\n", "file\n"}) {
    want.push_back(262);
    for (const TokenId id : bytes(part)) want.push_back(id);
  }
  EXPECT_EQ(FimContext(*tokenizer, files), want);
  EXPECT_EQ(FimContext(*tokenizer, {}), Ids());
  EXPECT_EQ(FimContext(*Make(ByteVocabulary({}, {})), files), bytes("xy\n"));
}

TEST(FillInMiddle, TextsNeverBecomeControlTokens) {
  const auto tokenizer = Make(WithNames(TokenType::kControl));
  const auto prompt = FimPrompt(*tokenizer, "<|fim_middle|>", "<|im_end|>");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->size(), 3 + std::string("<|fim_middle|><|im_end|>").size());
}

TEST(FillInMiddle, TheFilesTokensGoBeforeNames) {
  TokenizerSpec spec = WithNames(TokenType::kControl);
  spec.fim_middle = 2;
  spec.add_bos = true;
  const auto tokenizer = Make(spec);
  EXPECT_EQ(*FimPrompt(*tokenizer, "a", ""), (Ids{1, 259, 3 + 'a', 261, 2}));
}

TEST(FillInMiddle, OrdinaryTokensOfTheseNamesAreNone) {
  const auto tokenizer = Make(WithNames(TokenType::kNormal));
  EXPECT_EQ(FimPrompt(*tokenizer, "a", "b").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(FimEndTokens(tokenizer->spec()).empty());
}

TEST(FillInMiddle, KnownNamesOfEachFamily) {
  const std::vector<std::vector<std::string>> families = {
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
      {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
      {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"},
      {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"}};
  for (const auto& names : families) {
    TokenizerSpec spec = ByteVocabulary({}, {{names[0], TokenType::kControl},
                                             {names[1], TokenType::kControl},
                                             {names[2], TokenType::kUserDefined}});
    FindFimTokens(spec);
    EXPECT_EQ(spec.fim_prefix, 259) << names[0];
    EXPECT_EQ(spec.fim_suffix, 260) << names[1];
    EXPECT_EQ(spec.fim_middle, 261) << names[2];
  }
}

}  // namespace
}  // namespace staffel
