#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/text/vocabularies.h"

namespace staffel {
namespace {

using Ids = std::vector<TokenId>;
using Merges = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = MakeBpeTokenizer(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TokenId Byte(char byte) { return 3 + static_cast<uint8_t>(byte); }

TEST(Bpe, UserDefinedTokensAlwaysControlTokensNever) {
  const auto tokenizer = Make(ByteVocabulary(
      {{"h", "e"}}, {{"<tool>", TokenType::kUserDefined}, {"<ctl>", TokenType::kControl}}));
  const std::string text = "a<tool>b<ctl>c";
  const Ids plain = {100, 260, 101, 63, 102, 119, 111, 65, 102};
  EXPECT_EQ(tokenizer->Encode(PromptText{text, {{0, text.size()}}}, true), plain);
  EXPECT_EQ(tokenizer->Encode(text, false, true), plain);
  EXPECT_EQ(tokenizer->Encode(text, true, true), (Ids{100, 260, 101, 261, 102}));
  EXPECT_EQ(tokenizer->TokenBytes(260, false), "<tool>");
  EXPECT_EQ(tokenizer->TokenBytes(261, false), "");
  EXPECT_EQ(tokenizer->TokenBytes(261, true), "<ctl>");
  EXPECT_EQ(tokenizer->Encode("he<|im_end|>", true, false), (Ids{259, 2}));
}

TEST(Bpe, ContentNeverCompletesAControlToken) {
  const auto tokenizer = Make(ByteVocabulary({}));
  // The template writes "<|im_" and the content "end|>", or the other way round.
  const std::string text = "<|im_end|>";
  for (size_t cut = 1; cut < text.size(); cut++) {
    EXPECT_EQ(tokenizer->Encode(PromptText{text, {{cut, text.size()}}}, false).size(), text.size());
    EXPECT_EQ(tokenizer->Encode(PromptText{text, {{0, cut}}}, false).size(), text.size());
  }
  EXPECT_EQ(tokenizer->Encode(PromptText{text, {{3, 3}}}, false), (Ids{2}));
}

TEST(Bpe, ProductsWithoutATokenMergeOnAndEndAsBytes) {
  TokenizerSpec spec = ByteVocabulary({{"a", "b"}, {"ab", "c"}});
  spec.tokens[259] = "other";  // "ab" is no token; "abc" still is
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->Encode("abc", false, false), (Ids{260}));
  EXPECT_EQ(tokenizer->Encode("abd", false, false), (Ids{Byte('a'), Byte('b'), Byte('d')}));
}

TEST(Bpe, MissingBytesGiveNothing) {
  TokenizerSpec spec = ByteVocabulary({});
  spec.tokens[Byte('\x1D')] = "other";
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->Encode("\x1D", false, false), Ids());
  EXPECT_EQ(tokenizer->Encode("a\x1D"
                              "b",
                              false, false),
            (Ids{Byte('a'), Byte('b')}));
}

TEST(Bpe, WholeWordsSkipMergesOnlyWhereTheFamilyDoes) {
  // "abc" is a token that merging does not reach.
  const std::vector<std::pair<std::string, TokenType>> extra = {{"abc", TokenType::kNormal},
                                                                {"xyz", TokenType::kControl}};
  for (int round = 0; round < 2; round++) {  // the second time from what the first has learnt
    const auto llama = Make(ByteVocabulary({{"b", "c"}}, extra, "llama-bpe"));
    const auto smollm = Make(ByteVocabulary({{"b", "c"}}, extra, "smollm"));
    for (int again = 0; again < 3; again++) {
      EXPECT_EQ(llama->Encode("abc", false, false), (Ids{260}));
      EXPECT_EQ(smollm->Encode("abc", false, false), (Ids{Byte('a'), 259}));
      EXPECT_EQ(smollm->Encode("bc", false, false), (Ids{259}));
    }
    // A control token is never a word.
    EXPECT_EQ(llama->Encode("xyz", false, false).size(), 3u);
  }
}

TEST(Bpe, Bos) {
  TokenizerSpec spec = ByteVocabulary({});
  spec.add_bos = true;
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->Encode("a", true, true), (Ids{1, Byte('a')}));
  EXPECT_EQ(tokenizer->Encode("a", true, false), (Ids{Byte('a')}));
  EXPECT_EQ(tokenizer->Encode("<|im_start|>a", true, true), (Ids{1, Byte('a')}));
  EXPECT_EQ(tokenizer->Encode("<|im_start|><|im_start|>", true, true), (Ids{1, 1}));
  EXPECT_EQ(tokenizer->Encode("", true, true), (Ids{1}));
}

TEST(Bpe, TokensOutsideOfTheVocabularyAreNothing) {
  const auto tokenizer = Make(ByteVocabulary({}));
  for (const TokenId id : {-1, 259, 1 << 30}) {
    EXPECT_EQ(tokenizer->TokenBytes(id, true), "");
    EXPECT_FALSE(tokenizer->IsControl(id));
  }
  EXPECT_EQ(tokenizer->Decode({Byte('a'), 259, -5, Byte('b')}, false), "ab");
}

TEST(Bpe, BadVocabulariesAreRefused) {
  const auto message = [](const TokenizerSpec& spec) {
    const auto result = MakeBpeTokenizer(spec);
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  const TokenizerSpec good = ByteVocabulary({{"a", "b"}});
  TokenizerSpec spec = good;
  spec.tokens.clear();
  EXPECT_NE(message(spec).find("empty"), std::string::npos);
  spec = good;
  spec.types.pop_back();
  EXPECT_NE(message(spec).find("259 token types"), std::string::npos);
  spec = good;
  spec.types[5] = static_cast<TokenType>(9);
  EXPECT_NE(message(spec).find("token 5 has the type 9"), std::string::npos);
  spec = good;
  spec.eos = 260;
  EXPECT_NE(message(spec).find("eos token is 260"), std::string::npos);
  spec = good;
  spec.bos = -2;
  EXPECT_NE(message(spec).find("bos token is -2"), std::string::npos);
  spec = good;
  spec.end_of_generation = {1, 999};
  EXPECT_NE(message(spec).find("999"), std::string::npos);
  spec = good;
  spec.bos = -1;
  spec.add_bos = true;
  EXPECT_NE(message(spec).find("bos"), std::string::npos);
  spec = good;
  spec.pre = "nonsense";
  EXPECT_NE(message(spec).find("'nonsense'"), std::string::npos);
  for (const char* merge : {"", "ab", "a ", " b", "a b c", " "}) {
    spec = good;
    spec.merges.push_back(merge);
    EXPECT_NE(message(spec).find("merge 1"), std::string::npos) << merge;
  }
}

TEST(Bpe, RepeatedTokensAndMergesAreTolerated) {
  TokenizerSpec spec = ByteVocabulary({{"a", "b"}, {"c", "d"}});
  spec.tokens.push_back("ab");
  spec.types.push_back(TokenType::kNormal);
  spec.tokens.push_back("");
  spec.types.push_back(TokenType::kNormal);
  spec.merges.push_back("a b");
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->Encode("abcd", false, false), (Ids{259, 260}));
  EXPECT_EQ(tokenizer->Decode({259, 261, 262}, false), "abab");
}

// The definition: merge the pair of the best rank, the leftmost of equal ones, until none is left.
Ids NaiveEncode(const TokenizerSpec& spec, const std::string& word) {
  std::map<std::string, TokenId> ids;
  for (size_t i = 3; i < spec.tokens.size(); i++) ids.try_emplace(spec.tokens[i], i);
  std::map<std::string, size_t> ranks;
  for (size_t i = 0; i < spec.merges.size(); i++) ranks.try_emplace(spec.merges[i], i);
  std::vector<std::string> parts;
  for (const char byte : word) parts.push_back(ByteLevel(std::string(1, byte)));
  while (true) {
    size_t best = parts.size(), best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < parts.size(); i++) {
      const auto rank = ranks.find(parts[i] + " " + parts[i + 1]);
      if (rank != ranks.end() && rank->second < best_rank) {
        best = i;
        best_rank = rank->second;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
  Ids result;
  for (const std::string& part : parts) result.push_back(ids.at(part));
  return result;
}

TEST(Bpe, AgreesWithTheDefinition) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 60; round++) {
    // Merges in any order: a product may have a better rank than its parts.
    Merges merges;
    std::vector<std::string> known = {"a", "b", "c"};
    for (int i = 0; i < 25; i++) {
      const std::string left = known[random() % known.size()],
                        right = known[random() % known.size()];
      if (std::find(known.begin(), known.end(), left + right) != known.end()) continue;
      merges.emplace_back(left, right);
      known.push_back(left + right);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const TokenizerSpec spec = ByteVocabulary(merges);
    const auto tokenizer = Make(spec);
    for (int i = 0; i < 40; i++) {
      std::string word;  // long ones take the queue, short ones the scan
      for (int length = 1 + random() % (i % 4 == 0 ? 300 : 40); length > 0; length--) {
        word.push_back("abc"[random() % 3]);
      }
      ASSERT_EQ(tokenizer->Encode(word, false, false), NaiveEncode(spec, word)) << word;
    }
  }
}

TEST(Bpe, AnyBytesComeBack) {
  std::mt19937_64 random(TestSeed());
  const auto tokenizer = Make(ByteVocabulary({{"\xF0", "\x9F"}, {" ", "a"}, {"\xFF", "\xFF"}}));
  for (int round = 0; round < 3000; round++) {
    std::string bytes(random() % 50, 0);
    for (char& byte : bytes)
      byte = static_cast<char>(random() % 3 ? random() : "a \xF0\x9F<|"[random() % 6]);
    for (const bool special : {false, true}) {
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(bytes, special, false), true), bytes);
    }
  }
}

TEST(Bpe, ThreadsShareATokenizer) {
  const auto tokenizer = Make(ByteVocabulary({{"t", "h"}, {"th", "e"}, {" ", "the"}, {"a", "n"}}));
  const std::string text = "the man than then another 123 the\n\nthe <|im_end|> an an an";
  const Ids expected = Make(tokenizer->spec())->Encode(text, true, true);
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; i++) count += tokenizer->Encode(text, true, true) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST(Bpe, AMegabyteOfOneLetter) {
  Merges merges;
  for (std::string run = "a"; run.size() < 64; run += run) merges.emplace_back(run, run);
  const auto tokenizer = Make(ByteVocabulary(merges));
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, 'a'), false, false),
            Ids((1 << 20) / 64, 259 + 5));
}

TEST(EndTokens, UnionOfNamesAndIds) {
  const auto ends = [](std::vector<std::pair<std::string, TokenType>> extra, TokenId eot = -1) {
    TokenizerSpec spec = ByteVocabulary({}, extra);
    spec.eot = eot;
    const auto tokenizer = Make(std::move(spec));
    return Ids(tokenizer->end_tokens().begin(), tokenizer->end_tokens().end());
  };
  EXPECT_EQ(ends({}), (Ids{0, 2}));
  EXPECT_EQ(ends({}, 70), (Ids{0, 2, 70}));
  EXPECT_EQ(ends({{"<|eot_id|>", TokenType::kControl}, {"<end_of_turn>", TokenType::kNormal}}),
            (Ids{0, 2, 259}));
  EXPECT_EQ(ends({{"<|end|>", TokenType::kControl}}), (Ids{0, 2, 259}));
  // In harmony <|end|> closes a message, not the answer.
  EXPECT_EQ(ends({{"<|end|>", TokenType::kControl},
                  {"<|return|>", TokenType::kControl},
                  {"<|call|>", TokenType::kControl}}),
            (Ids{0, 2, 260, 261}));
}

}  // namespace
}  // namespace staffel
