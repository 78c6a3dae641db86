#include "text/spm.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/strings.h"
#include "text/merge.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace staffel {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

// The byte that "<0x0A>" names.
std::optional<uint8_t> NamedByte(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if (digit >= 'A' && digit <= 'F') {
      value += digit - 'A' + 10;
    } else if (digit >= 'a' && digit <= 'f') {
      value += digit - 'a' + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

std::vector<std::string> Pieces(const TokenizerSpec& spec) {
  std::vector<std::string> pieces(spec.tokens.size());
  for (size_t i = 0; i < pieces.size(); i++) {
    switch (spec.types[i]) {
      case TokenType::kByte:
        if (const auto byte = NamedByte(spec.tokens[i])) {
          pieces[i].assign(1, static_cast<char>(*byte));
          break;
        }
        [[fallthrough]];
      case TokenType::kNormal:
      case TokenType::kUserDefined:
        pieces[i] = ReplaceAll(spec.tokens[i], kSpaceMark, " ");
        break;
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUnused:
        break;
    }
  }
  return pieces;
}

// Rank of each token: 0 for the best score, equal scores equal ranks.
std::vector<uint32_t> RanksOf(const std::vector<float>& scores) {
  std::vector<float> order = scores;
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const float score : scores) {
    const auto place = std::lower_bound(order.begin(), order.end(), score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(place - order.begin()));
  }
  return ranks;
}

// Which two characters stand side by side in some piece. Between two others no merge is possible,
// so a text can be cut there.
class JoinableCharacters {
 public:
  void AddPiece(std::string_view piece) {
    char32_t left = DecodeUtf8(piece).code_point;
    piece.remove_prefix(DecodeUtf8(piece).length);
    while (!piece.empty()) {
      const Utf8Step step = DecodeUtf8(piece);
      Add(left, step.code_point);
      left = step.code_point;
      piece.remove_prefix(step.length);
    }
  }
  bool Has(char32_t left, char32_t right) const {
    if (left < 128 && right < 128) return ascii_[left * 128 + right];
    return others_.contains(Key(left, right));
  }

 private:
  static uint64_t Key(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }
  void Add(char32_t left, char32_t right) {
    if (left < 128 && right < 128) {
      ascii_.set(left * 128 + right);
    } else {
      others_.insert(Key(left, right));
    }
  }

  std::bitset<128 * 128> ascii_;
  absl::flat_hash_set<uint64_t> others_;
};

class SpmTokenizer final : public VocabularyTokenizer {
 public:
  SpmTokenizer(TokenizerSpec spec_in, std::vector<std::string> pieces)
      : VocabularyTokenizer(std::move(spec_in), std::move(pieces)), ranks_(RanksOf(spec().scores)) {
    bytes_.fill(-1);
    for (size_t i = 0; i < spec().tokens.size(); i++) {
      AddToken(spec().tokens[i], spec().types[i], static_cast<TokenId>(i));
    }
  }

  std::string Decode(absl::Span<const TokenId> tokens, bool special) const override {
    std::string text = VocabularyTokenizer::Decode(tokens, special);
    if (spec().add_space_prefix && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

 private:
  void AddToken(const std::string& text, TokenType type, TokenId token) {
    if (type == TokenType::kByte) {
      const auto byte = NamedByte(text);
      if (byte && bytes_[*byte] < 0) bytes_[*byte] = token;
      return;
    }
    if (type != TokenType::kNormal && type != TokenType::kUserDefined) return;
    // A piece that is not text cannot come from merging characters.
    if (text.empty() || ValidUtf8Prefix(text) != text.size()) return;
    if (!tokens_.try_emplace(text, token).second) return;
    piece_bytes_max_ = std::max(piece_bytes_max_, text.size());
    joinable_.AddPiece(text);
  }

  TokenId Find(std::string_view text) const {
    const auto it = tokens_.find(text);
    return it == tokens_.end() ? -1 : it->second;
  }

  void EncodeText(std::string_view text, bool after_special,
                  std::vector<TokenId>* out) const override {
    std::string marked = ReplaceAll(text, " ", kSpaceMark);
    if (spec().add_space_prefix && after_special) marked.insert(0, kSpaceMark);
    text = marked;
    std::vector<MergeSymbol> symbols;
    MergeScratch scratch;
    char32_t left = 0;
    for (uint32_t begin = 0; begin < text.size();) {
      const Utf8Step step = DecodeUtf8(text.substr(begin));
      const bool valid = step.kind == Utf8Step::kCharacter;
      if (!symbols.empty() && !(valid && joinable_.Has(left, step.code_point))) {
        EncodeSymbols(text, &symbols, &scratch, out);
      }
      if (valid) {
        left = step.code_point;
        symbols.push_back({Find(text.substr(begin, step.length)), begin, step.length});
      } else {
        AppendBytes(text.substr(begin, step.length), out);
      }
      begin += step.length;
    }
    EncodeSymbols(text, &symbols, &scratch, out);
  }

  // Merges neighbouring characters and empties the list.
  void EncodeSymbols(std::string_view text, std::vector<MergeSymbol>* symbols,
                     MergeScratch* scratch, std::vector<TokenId>* out) const {
    MergeSymbols(*symbols, *scratch, [&](const MergeSymbol& left, const MergeSymbol& right) {
      const uint32_t length = left.length + right.length;
      if (length > piece_bytes_max_) return Merge();
      const TokenId token = Find(text.substr(left.begin, length));
      return token < 0 ? Merge() : Merge{ranks_[token], token};
    });
    for (const MergeSymbol& symbol : *symbols) {
      if (symbol.id >= 0) {
        out->push_back(symbol.id);
      } else {
        AppendBytes(text.substr(symbol.begin, symbol.length), out);
      }
    }
    symbols->clear();
  }

  void AppendBytes(std::string_view bytes, std::vector<TokenId>* out) const {
    const bool known = std::all_of(bytes.begin(), bytes.end(), [this](char byte) {
      return bytes_[static_cast<uint8_t>(byte)] >= 0;
    });
    if (!known) {
      if (spec().unknown >= 0) out->push_back(spec().unknown);
      return;
    }
    for (const char byte : bytes) out->push_back(bytes_[static_cast<uint8_t>(byte)]);
  }

  std::vector<uint32_t> ranks_;
  std::array<TokenId, 256> bytes_;
  absl::flat_hash_map<std::string_view, TokenId> tokens_;  // keys lie in spec().tokens
  size_t piece_bytes_max_ = 0;
  JoinableCharacters joinable_;
};

Status ValidateScores(const TokenizerSpec& spec) {
  if (spec.scores.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(StrCat("the tokenizer has ", spec.tokens.size(),
                                             " tokens but ", spec.scores.size(), " scores"));
  }
  for (size_t i = 0; i < spec.scores.size(); i++) {
    if (std::isfinite(spec.scores[i])) continue;
    return absl::InvalidArgumentError(
        StrCat("token ", i, " has the score ", spec.scores[i], "; it must be finite"));
  }
  return absl::OkStatus();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeSpmTokenizer(TokenizerSpec spec) {
  STAFFEL_RETURN_IF_ERROR(ValidateVocabulary(spec));
  STAFFEL_RETURN_IF_ERROR(ValidateScores(spec));
  std::vector<std::string> pieces = Pieces(spec);
  return std::unique_ptr<Tokenizer>(
      std::make_unique<SpmTokenizer>(std::move(spec), std::move(pieces)));
}

}  // namespace staffel
