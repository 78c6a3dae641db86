#include "text/spm.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/text/vocabularies.h"
#include "text/decode_stream.h"
#include "text/tokenizer.h"

namespace staffel {
namespace {

using Ids = std::vector<TokenId>;
using PieceList = std::vector<std::pair<std::string, float>>;

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = MakeTokenizer(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

constexpr const char* kMark = "\u2581";

TEST(Spm, BestScoreMergesFirst) {
  const auto tokenizer =
      Make(PieceVocabulary({{"a", 0}, {"b", 0}, {"c", 0}, {"ab", -2}, {"bc", -1}}));
  EXPECT_EQ(tokenizer->Encode("abc", false, false), (Ids{259, 263}));
  // Of equal scores the leftmost.
  const auto equal = Make(PieceVocabulary({{"a", 0}, {"b", 0}, {"c", 0}, {"ab", -1}, {"bc", -1}}));
  EXPECT_EQ(equal->Encode("abc", false, false), (Ids{262, 261}));
}

TEST(Spm, SpacesAndThePrefix) {
  TokenizerSpec spec = PieceVocabulary({{"a", 0}, {kMark, 0}, {std::string(kMark) + "a", -1}});
  const auto bare = Make(spec);
  EXPECT_EQ(bare->Encode("a a", false, false), (Ids{259, 261}));
  EXPECT_EQ(bare->Decode({259, 261}, false), "a a");
  EXPECT_EQ(bare->Decode({261}, false), " a");
  spec.add_space_prefix = true;
  const auto prefixed = Make(spec);
  EXPECT_EQ(prefixed->Encode("a a", false, false), (Ids{261, 261}));
  EXPECT_EQ(prefixed->Encode("a<s>a", true, false), (Ids{261, 1, 261}));
  EXPECT_EQ(prefixed->Encode("", true, false), Ids());
  EXPECT_EQ(prefixed->Decode({1, 261, 261}, false), "a a");
  EXPECT_EQ(prefixed->TokenBytes(261, false), " a");
  // An answer that goes on after a prompt keeps its space, a text of its own does not.
  for (const bool starts_text : {false, true}) {
    DecodeStream stream(*prefixed, {.starts_text = starts_text});
    std::string text;
    for (const TokenId token : {1, 261, 261}) stream.Push(token, &text);
    EXPECT_EQ(text, starts_text ? "a a" : " a a");
  }
}

TEST(Spm, ByteFallback) {
  const auto tokenizer = Make(PieceVocabulary({{"a", 0}}));
  EXPECT_EQ(tokenizer->Encode("a\u00E9\xFF", false, false),
            (Ids{259, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF}));
  EXPECT_EQ(tokenizer->Decode({259, 3 + 0xC3, 3 + 0xA9}, false), "a\u00E9");
  // Without byte tokens a character is unknown; without an unknown token it is nothing.
  TokenizerSpec spec = PieceVocabulary({{"a", 0}}, /*with_bytes=*/false);
  EXPECT_EQ(Make(spec)->Encode("\u00E9"
                               "a\xFF",
                               false, false),
            (Ids{0, 3, 0}));
  spec.unknown = -1;
  EXPECT_EQ(Make(spec)->Encode("\u00E9"
                               "a",
                               false, false),
            (Ids{3}));
}

TEST(Spm, OnlyOrdinaryPiecesComeFromMerging) {
  TokenizerSpec spec = PieceVocabulary({{"<", 0}, {"s", 0}, {">", 0}, {"<s", -1}, {"x", 0}});
  const Ids plain = {262, 261};
  const auto tokenizer = Make(spec);
  EXPECT_EQ(tokenizer->Encode("<s>", false, false), plain);  // "<s>" is a control token
  EXPECT_EQ(tokenizer->Encode("<s>", true, false), (Ids{1}));
  spec.types[262] = TokenType::kUnused;
  EXPECT_EQ(Make(spec)->Encode("<s>", false, false), (Ids{259, 260, 261}));
}

TEST(Spm, UserDefinedTokensAreFoundFirst) {
  TokenizerSpec spec = PieceVocabulary({{"a", 0}, {kMark, 0}, {"  ", 0}, {"a<t>", 5}});
  spec.types[261] = TokenType::kUserDefined;
  spec.tokens.push_back("<t>");
  spec.types.push_back(TokenType::kUserDefined);
  spec.scores.push_back(0);
  const auto tokenizer = Make(spec);
  EXPECT_EQ(tokenizer->Encode("a<t>   a", false, false), (Ids{259, 263, 261, 260, 259}));
}

TEST(Spm, BadVocabulariesAreRefused) {
  TokenizerSpec spec = PieceVocabulary({{"a", 0}});
  spec.scores.pop_back();
  EXPECT_EQ(MakeTokenizer(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = PieceVocabulary({{"a", std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_EQ(MakeTokenizer(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = PieceVocabulary({{"a", 0}});
  spec.model = "bert";
  EXPECT_EQ(MakeTokenizer(spec).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(MakeTokenizer(spec).status().message()).find("'bert'"), std::string::npos);
}

// The definition: of all neighbours whose joined text is a piece merge those of the best score, the
// leftmost of equal ones.
Ids NaiveEncode(const TokenizerSpec& spec, const std::string& text) {
  std::map<std::string, TokenId> ids;
  for (size_t i = 259; i < spec.tokens.size(); i++) ids.try_emplace(spec.tokens[i], i);
  std::vector<std::string> parts;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = DecodeUtf8(rest).length;
    parts.push_back(rest[0] == ' ' ? kMark : std::string(rest.substr(0, length)));
    rest.remove_prefix(length);
  }
  while (true) {
    size_t best = parts.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < parts.size(); i++) {
      const auto id = ids.find(parts[i] + parts[i + 1]);
      if (id == ids.end()) continue;
      if (best == parts.size() || spec.scores[id->second] > best_score) {
        best = i;
        best_score = spec.scores[id->second];
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
  Ids result;
  for (const std::string& part : parts) {
    if (const auto id = ids.find(part); id != ids.end()) {
      result.push_back(id->second);
    } else {
      for (const char byte : part) result.push_back(3 + static_cast<uint8_t>(byte));
    }
  }
  return result;
}

TEST(Spm, AgreesWithTheDefinition) {
  std::mt19937_64 random(TestSeed());
  const std::vector<std::string> characters = {"a", "b", "c", kMark, "\u00E9"};
  for (int round = 0; round < 60; round++) {
    PieceList pieces;
    for (const std::string& c : characters) {
      if (c == kMark || random() % 5) pieces.emplace_back(c, 0);
    }
    for (int i = 0; i < 30; i++) {
      std::string piece;
      for (int n = 2 + random() % 3; n > 0; n--) piece += characters[random() % characters.size()];
      pieces.emplace_back(piece, -static_cast<float>(random() % 10));
    }
    const TokenizerSpec spec = PieceVocabulary(pieces);
    const auto tokenizer = Make(spec);
    for (int i = 0; i < 40; i++) {
      std::string text;
      for (int n = random() % (i % 4 == 0 ? 300 : 30); n > 0; n--) {
        const std::string& c = characters[random() % characters.size()];
        text += c == kMark ? " " : c;
      }
      const Ids ids = tokenizer->Encode(text, false, false);
      ASSERT_EQ(ids, NaiveEncode(spec, text)) << text;
      ASSERT_EQ(tokenizer->Decode(ids, false), text);
    }
  }
}

TEST(Spm, AMegabyteOfOneLetter) {
  PieceList pieces;
  float score = 0;
  for (std::string run = "a"; run.size() <= 64; run += run) pieces.emplace_back(run, score -= 1);
  const auto tokenizer = Make(PieceVocabulary(pieces));
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, 'a'), false, false).size(), (1u << 20) / 64);
}

}  // namespace
}  // namespace staffel
