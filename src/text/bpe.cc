#include "text/bpe.h"

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/strings.h"
#include "text/merge.h"
#include "text/nfc.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace staffel {
namespace {

// Bytes that are printable in Latin-1 stand for themselves, the others for U+0100 and up in order.
constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint16_t, 256> MakeCharacters() {
  std::array<uint16_t, 256> characters = {};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; byte++) {
    characters[byte] = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return characters;
}
constexpr std::array<uint16_t, 256> kCharacters = MakeCharacters();

constexpr std::array<int16_t, 0x144> MakeBytes() {
  std::array<int16_t, 0x144> bytes = {};
  for (int16_t& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; byte++) bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, 0x144> kBytes = MakeBytes();

// The bytes of a stored token; a token that is not written in the byte-level alphabet stands for
// its own text.
std::string TokenPiece(const std::string& stored) {
  std::string bytes;
  for (size_t i = 0; i < stored.size();) {
    const Utf8Step step = DecodeUtf8(std::string_view(stored).substr(i));
    const int byte = step.kind == Utf8Step::kCharacter ? ByteLevelByte(step.code_point) : -1;
    if (byte < 0) return stored;
    bytes.push_back(static_cast<char>(byte));
    i += step.length;
  }
  return bytes;
}

std::vector<std::string> Pieces(const TokenizerSpec& spec) {
  std::vector<std::string> pieces(spec.tokens.size());
  for (size_t i = 0; i < pieces.size(); i++) {
    switch (spec.types[i]) {
      case TokenType::kNormal:
      case TokenType::kByte:
        pieces[i] = TokenPiece(spec.tokens[i]);
        break;
      case TokenType::kUserDefined:
        pieces[i] = spec.tokens[i];
        break;
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUnused:
        break;
    }
  }
  return pieces;
}

// Strings that merging can meet, by number, and the merges between them.
class MergeTable {
 public:
  Status Build(const TokenizerSpec& spec) {
    for (int byte = 0; byte < 256; byte++) {
      std::string text;
      AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), &text);
      byte_symbols_[byte] = Intern(text);
    }
    merges_.reserve(spec.merges.size());
    for (size_t rank = 0; rank < spec.merges.size(); rank++) {
      const std::string& merge = spec.merges[rank];
      const size_t space = merge.find(' ');
      if (space == std::string::npos || space == 0 || space + 1 == merge.size() ||
          merge.find(' ', space + 1) != std::string::npos) {
        return absl::InvalidArgumentError(StrCat("the tokenizer's merge ", rank, " is '", merge,
                                                 "'; it must be two strings and a space between"));
      }
      const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
      const uint64_t pair = Pair(Intern(left), Intern(right));
      merges_.try_emplace(pair, Merge{static_cast<uint32_t>(rank), Intern(left + right)});
    }
    tokens_.assign(numbers_.size(), -1);
    for (size_t i = 0; i < spec.tokens.size(); i++) {
      if (spec.types[i] != TokenType::kNormal && spec.types[i] != TokenType::kByte) continue;
      const auto symbol = numbers_.find(spec.tokens[i]);
      if (symbol == numbers_.end() || tokens_[symbol->second] >= 0) continue;
      tokens_[symbol->second] = static_cast<TokenId>(i);
    }
    numbers_ = {};
    return absl::OkStatus();
  }

  int32_t ByteSymbol(char byte) const { return byte_symbols_[static_cast<uint8_t>(byte)]; }
  // -1 if the string is no token.
  TokenId SymbolToken(int32_t symbol) const { return tokens_[symbol]; }
  Merge Find(int32_t left, int32_t right) const {
    const auto it = merges_.find(Pair(left, right));
    return it == merges_.end() ? Merge() : it->second;
  }

 private:
  static uint64_t Pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  int32_t Intern(const std::string& text) {
    return numbers_.try_emplace(text, static_cast<int32_t>(numbers_.size())).first->second;
  }

  std::array<int32_t, 256> byte_symbols_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::vector<TokenId> tokens_;
  absl::flat_hash_map<std::string, int32_t> numbers_;  // empty once built
};

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, std::vector<std::string> pieces, MergeTable table,
               PreTokenizer pre_tokenizer)
      : VocabularyTokenizer(std::move(spec), std::move(pieces)),
        table_(std::move(table)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        word_states_(this->spec().tokens.size()) {
    for (size_t i = 0; i < this->pieces().size(); i++) {
      const TokenType type = this->spec().types[i];
      if (type != TokenType::kNormal && type != TokenType::kByte) continue;
      if (!this->pieces()[i].empty()) {
        words_.try_emplace(this->pieces()[i], static_cast<TokenId>(i));
      }
    }
  }

 private:
  // Whether merging a word that is a token gives that token: found out when it is first met, and
  // the same whichever thread does.
  enum WordState : uint8_t { kNotMet, kMergesToToken, kMergesOtherwise };

  void EncodeText(std::string_view text, bool, std::vector<TokenId>* out) const override {
    std::string normalized;
    if (pre_tokenizer_.normalizes() && MayChangeInNfc(text)) {
      normalized = ToNfc(text);
      text = normalized;
    }
    std::vector<uint32_t> ends;
    pre_tokenizer_.Split(text, &ends);
    std::vector<MergeSymbol> symbols;
    MergeScratch scratch;
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      EncodeWord(text.substr(begin, end - begin), &symbols, &scratch, out);
      begin = end;
    }
  }

  void EncodeWord(std::string_view word, std::vector<MergeSymbol>* symbols, MergeScratch* scratch,
                  std::vector<TokenId>* out) const {
    std::atomic<uint8_t>* state = nullptr;
    TokenId token = -1;
    if (const auto known = words_.find(word); known != words_.end()) {
      token = known->second;
      state = &word_states_[token];
      if (pre_tokenizer_.whole_words() ||
          state->load(std::memory_order_relaxed) == kMergesToToken) {
        out->push_back(token);
        return;
      }
    }
    symbols->clear();
    for (uint32_t i = 0; i < word.size(); i++) {
      symbols->push_back({table_.ByteSymbol(word[i]), i, 1});
    }
    MergeSymbols(*symbols, *scratch, [this](const MergeSymbol& left, const MergeSymbol& right) {
      return table_.Find(left.id, right.id);
    });
    if (state != nullptr) {
      const bool same = symbols->size() == 1 && table_.SymbolToken(symbols->front().id) == token;
      state->store(same ? kMergesToToken : kMergesOtherwise, std::memory_order_relaxed);
    }
    for (const MergeSymbol& symbol : *symbols) AppendSymbol(word, symbol, out);
  }

  void AppendSymbol(std::string_view word, const MergeSymbol& symbol,
                    std::vector<TokenId>* out) const {
    if (const TokenId token = table_.SymbolToken(symbol.id); token >= 0) {
      out->push_back(token);
      return;
    }
    for (const char byte : word.substr(symbol.begin, symbol.length)) {
      const TokenId token = table_.SymbolToken(table_.ByteSymbol(byte));
      if (token >= 0) out->push_back(token);
    }
  }

  MergeTable table_;
  PreTokenizer pre_tokenizer_;
  absl::flat_hash_map<std::string_view, TokenId> words_;  // keys lie in pieces()
  mutable std::vector<std::atomic<uint8_t>> word_states_;
};

}  // namespace

char32_t ByteLevelCharacter(uint8_t byte) { return kCharacters[byte]; }

int ByteLevelByte(char32_t character) { return character < kBytes.size() ? kBytes[character] : -1; }

Result<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(TokenizerSpec spec,
                                                    PreTokenizerOptions options) {
  STAFFEL_RETURN_IF_ERROR(ValidateVocabulary(spec));
  STAFFEL_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec.pre, options));
  MergeTable table;
  STAFFEL_RETURN_IF_ERROR(table.Build(spec));
  std::vector<std::string> pieces = Pieces(spec);
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(
      std::move(spec), std::move(pieces), std::move(table), std::move(pre_tokenizer)));
}

}  // namespace staffel
