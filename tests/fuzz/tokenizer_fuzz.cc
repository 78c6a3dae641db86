// Byte 0 picks the tokenizer: FF one whose vocabulary is the input itself, FE SentencePiece, any
// other a byte-level BPE with one of the pre-tokenizers. The rest is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/unit/text/vocabularies.h"
#include "text/decode_stream.h"
#include "text/pre_tokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace staffel {
namespace {

std::vector<std::unique_ptr<Tokenizer>> MakeBpeOfEachName() {
  std::vector<std::unique_ptr<Tokenizer>> made;
  for (const std::string& pre : PreTokenizer::Names()) {
    auto tokenizer = MakeTokenizer(ByteVocabulary(
        {{"h", "e"}, {" ", "t"}, {" t", "he"}, {"\xF0", "\x9F"}, {"a", "a"}, {"aa", "aa"}},
        {{"<tool>", TokenType::kUserDefined}, {"\n\n", TokenType::kUserDefined}}, pre));
    STAFFEL_CHECK(tokenizer.ok());
    made.push_back(*std::move(tokenizer));
  }
  return made;
}

std::unique_ptr<Tokenizer> MakeSpm() {
  auto tokenizer = MakeTokenizer(PieceVocabulary({{"\u2581", 0},
                                                  {"a", -1},
                                                  {"aa", -2},
                                                  {"\u2581"
                                                   "a",
                                                   -3},
                                                  {"\u00E9", -4},
                                                  {"\u2581\u2581", -5}}));
  STAFFEL_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

// Streams the tokens through a decoder and a stop matcher and compares with the whole.
void CheckStream(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  DecodeStream stream(tokenizer, {.special = true, .starts_text = true});
  StopMatcher stops({"\x01never", "aab\x02"});
  std::string text, sent;
  for (const TokenId token : tokens) {
    std::string piece;
    stream.Push(token, &piece);
    STAFFEL_CHECK_EQ(ValidUtf8Prefix(piece), piece.size());
    text += piece;
    stops.Push(piece, &sent);
  }
  std::string rest;
  stream.Flush(&rest);
  text += rest;
  stops.Push(rest, &sent);
  stops.Flush(&sent);
  STAFFEL_CHECK(text == ToValidUtf8(tokenizer.Decode(tokens, true)));
  STAFFEL_CHECK(stops.matched() ? text.starts_with(sent) : text == sent);
}

void CheckEncode(const Tokenizer& tokenizer, std::string_view text, bool round_trip) {
  const std::vector<TokenId> plain = tokenizer.Encode(text, false, true);
  const std::vector<TokenId> parsed = tokenizer.Encode(text, true, true);
  PromptText prompt{std::string(text), {{0, text.size() / 2}, {text.size() / 2, text.size()}}};
  STAFFEL_CHECK(tokenizer.Encode(prompt, true) == plain);
  prompt.content.clear();
  STAFFEL_CHECK(tokenizer.Encode(prompt, true) == parsed);
  CheckStream(tokenizer, parsed);
  if (!round_trip) return;
  STAFFEL_CHECK(tokenizer.Decode(plain, true) == text);
  STAFFEL_CHECK(tokenizer.Decode(parsed, true) == text);
}

// Lines of the input become tokens and merges of a vocabulary that may be anything.
void CheckVocabulary(std::string_view data) {
  TokenizerSpec spec;
  spec.model = data.size() % 2 ? "gpt2" : "llama";
  spec.pre = "qwen2";
  std::string_view rest = data;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string line(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with("+")) {
      spec.merges.push_back(line.substr(1));
      continue;
    }
    const uint8_t first = line.empty() ? 1 : static_cast<uint8_t>(line[0]);
    spec.types.push_back(static_cast<TokenType>(first % 8));
    spec.scores.push_back(static_cast<float>(first % 5));
    spec.tokens.push_back(std::move(line));
  }
  spec.eos = static_cast<TokenId>(data.size() % 7) - 1;
  spec.unknown = static_cast<TokenId>(data.size() % 5) - 1;
  if (auto tokenizer = MakeTokenizer(std::move(spec)); tokenizer.ok()) {
    CheckEncode(**tokenizer, data, false);
  }
}

}  // namespace
}  // namespace staffel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace staffel;
  if (size == 0) return 0;
  static const auto& bpe = *new std::vector<std::unique_ptr<Tokenizer>>(MakeBpeOfEachName());
  static const auto& spm = *new std::unique_ptr<Tokenizer>(MakeSpm());
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 0xFF) {
    CheckVocabulary(text);
  } else if (data[0] == 0xFE) {
    // U+2581 stands for a space and comes back as one.
    CheckEncode(*spm, text, text.find("\u2581") == std::string_view::npos);
  } else {
    const Tokenizer& tokenizer = *bpe[data[0] % bpe.size()];
    // Qwen2 normalises its text.
    CheckEncode(tokenizer, text, tokenizer.spec().pre != "qwen2");
  }
  return 0;
}
