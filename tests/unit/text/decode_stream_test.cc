#include "text/decode_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/text/seed.h"

namespace staffel {
namespace {

// One token a byte; 256 is the control token "<end>"; the leading space of a text is taken off.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() {
    for (int b = 0; b < 256; b++) pieces_.push_back(std::string(1, static_cast<char>(b)));
    pieces_.push_back("<end>");
  }
  std::vector<TokenId> Encode(const PromptText&, bool) const override { return {}; }
  std::vector<TokenId> Encode(std::string_view, bool, bool) const override { return {}; }
  std::string_view TokenBytes(TokenId token, bool special) const override {
    return IsControl(token) && !special ? std::string_view() : std::string_view(pieces_[token]);
  }
  std::string Decode(absl::Span<const TokenId> tokens, bool special) const override {
    std::string text;
    for (const TokenId token : tokens) text += TokenBytes(token, special);
    if (!text.empty() && text[0] == ' ') text.erase(0, 1);
    return text;
  }
  bool IsControl(TokenId token) const override { return token == 256; }
  int vocab_size() const override { return 257; }
  const TokenizerSpec& spec() const override { return spec_; }
  absl::Span<const TokenId> end_tokens() const override { return {}; }

 private:
  std::vector<std::string> pieces_;
  TokenizerSpec spec_;
};

std::vector<std::string> Pieces(const std::vector<TokenId>& tokens, DecodeStreamOptions options) {
  ByteTokenizer tokenizer;
  DecodeStream stream(tokenizer, options);
  std::vector<std::string> pieces;
  for (const TokenId token : tokens) stream.Push(token, &pieces.emplace_back());
  stream.Flush(&pieces.emplace_back());
  return pieces;
}

TEST(DecodeStream, HoldsACharacterUntilItIsComplete) {
  EXPECT_EQ(Pieces({'A', 'B', 0xF0, 0x9F, 0x98, 0x80, ' ', 'Z', 256}, {}),
            (std::vector<std::string>{"A", "B", "", "", "", "\xF0\x9F\x98\x80", " ", "Z", "", ""}));
}

TEST(DecodeStream, NeverWaitsForWhatCannotBecomeValid) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(Pieces({0xF0, 0x9F, 0xF0, 0x9F, 0xF0}, {}),
            (std::vector<std::string>{"", "", r, "", r, r}));
  EXPECT_EQ(Pieces({0xC0, 0xFF, 0xED, 0xA0}, {}), (std::vector<std::string>{r, r, "", r + r, ""}));
}

TEST(DecodeStream, LeadingSpaceGoesOnlyAtTheStartOfAText) {
  EXPECT_EQ(Pieces({256, ' ', ' ', 'a'}, {.starts_text = true}),
            (std::vector<std::string>{"", "", " ", "a", ""}));
  EXPECT_EQ(Pieces({256, ' ', 'a'}, {}), (std::vector<std::string>{"", " ", "a", ""}));
}

TEST(DecodeStream, ControlTokensAppearOnlyWhenAsked) {
  EXPECT_EQ(Pieces({'a', 256}, {.special = true}), (std::vector<std::string>{"a", "<end>", ""}));
}

TEST(DecodeStream, StreamEqualsTheWholeText) {
  std::mt19937_64 random(TestSeed());
  ByteTokenizer tokenizer;
  for (int round = 0; round < 2000; round++) {
    std::vector<TokenId> tokens(random() % 30);
    for (TokenId& token : tokens) {
      token = random() % 2 ? static_cast<TokenId>(random() % 257) : 0x80 + random() % 0x80;
    }
    std::string streamed;
    for (const std::string& piece : Pieces(tokens, {.starts_text = true})) {
      ASSERT_EQ(ValidUtf8Prefix(piece), piece.size());
      streamed += piece;
    }
    ASSERT_EQ(streamed, ToValidUtf8(tokenizer.Decode(tokens, false)));
  }
}

}  // namespace
}  // namespace staffel
