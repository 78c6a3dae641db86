#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/strings.h"
#include "text/fill_in_middle.h"

namespace staffel {
namespace {

// Control tokens that end a turn or a text in the families that use them.
constexpr std::array<std::string_view, 20> kEndNames = {
    "<|im_end|>",          // ChatML: Qwen, SmolLM
    "<|endoftext|>",       // GPT-2 and most that came after
    "<|eot_id|>",          // Llama 3
    "<|eom_id|>",          // Llama 3, waiting for a tool
    "<|eot|>",             // Llama 4
    "<|end_of_text|>",     // Llama 3, Granite
    "<|end|>",             // Phi
    "<|return|>",          // o200k_harmony
    "<|call|>",            // o200k_harmony
    "<|end_of_turn|>",     // OpenChat
    "<end_of_turn>",       // Gemma
    "<turn|>",             // Gemma 4
    "<end_of_utterance>",  // SmolVLM
    "<eos>",
    "</s>",
    "[EOS]",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81"
    "of\xE2\x96\x81"
    "sentence\xEF\xBD\x9C>",  // DeepSeek
};

bool IsControlType(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

Status CheckId(const TokenizerSpec& spec, std::string_view name, TokenId id) {
  if (id >= 0 && static_cast<size_t>(id) < spec.tokens.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("the tokenizer's ", name, " token is ", id,
                                           ", outside of its vocabulary of ", spec.tokens.size()));
}

}  // namespace

Status ValidateVocabulary(const TokenizerSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0) return absl::InvalidArgumentError("the tokenizer's vocabulary is empty");
  if (count > size_t{INT32_MAX}) {
    return absl::InvalidArgumentError(StrCat("a vocabulary of ", count, " tokens is too large"));
  }
  if (spec.types.size() != count) {
    return absl::InvalidArgumentError(
        StrCat("the tokenizer has ", count, " tokens but ", spec.types.size(), " token types"));
  }
  for (size_t i = 0; i < count; i++) {
    const int type = static_cast<int>(spec.types[i]);
    if (type < static_cast<int>(TokenType::kNormal) || type > static_cast<int>(TokenType::kByte)) {
      return absl::InvalidArgumentError(
          StrCat("token ", i, " has the type ", type, "; it must be from 1 to 6"));
    }
  }
  const std::pair<std::string_view, TokenId> ids[] = {{"bos", spec.bos},
                                                      {"eos", spec.eos},
                                                      {"eot", spec.eot},
                                                      {"eom", spec.eom},
                                                      {"unknown", spec.unknown},
                                                      {"padding", spec.padding},
                                                      {"fim_prefix", spec.fim_prefix},
                                                      {"fim_suffix", spec.fim_suffix},
                                                      {"fim_middle", spec.fim_middle},
                                                      {"fim_padding", spec.fim_padding},
                                                      {"fim_repository", spec.fim_repository},
                                                      {"fim_separator", spec.fim_separator}};
  for (const auto& [name, id] : ids) {
    if (id != -1) STAFFEL_RETURN_IF_ERROR(CheckId(spec, name, id));
  }
  for (const TokenId id : spec.end_of_generation) {
    STAFFEL_RETURN_IF_ERROR(CheckId(spec, "end-of-generation", id));
  }
  if (spec.add_bos && spec.bos < 0) {
    return absl::InvalidArgumentError(
        "the tokenizer is to put a bos token in front of each prompt, but names none");
  }
  return absl::OkStatus();
}

std::vector<TokenId> EndTokens(const TokenizerSpec& spec) {
  std::vector<TokenId> ends = spec.end_of_generation;
  for (const TokenId id : {spec.eos, spec.eot, spec.eom}) {
    if (id >= 0) ends.push_back(id);
  }
  TokenId end = -1, call = -1, turn = -1;  // harmony's, see below
  for (size_t i = 0; i < spec.tokens.size(); i++) {
    if (spec.types[i] != TokenType::kControl) continue;
    const std::string& text = spec.tokens[i];
    const TokenId id = static_cast<TokenId>(i);
    if (text == "<|return|>") end = id;
    if (text == "<|call|>") call = id;
    if (text == "<|end|>") {
      turn = id;
      continue;
    }
    if (std::find(kEndNames.begin(), kEndNames.end(), text) != kEndNames.end()) ends.push_back(id);
  }
  // In harmony <|end|> closes one message of an answer that goes on with the next.
  if (turn >= 0 && !(end >= 0 && call >= 0)) ends.push_back(turn);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

VocabularyTokenizer::VocabularyTokenizer(TokenizerSpec spec, std::vector<std::string> pieces)
    : spec_(std::move(spec)), pieces_(std::move(pieces)), end_tokens_(EndTokens(spec_)) {
  FindFimTokens(spec_);
  for (size_t i = 0; i < spec_.tokens.size(); i++) {
    const bool control = IsControlType(spec_.types[i]);
    if (!control && spec_.types[i] != TokenType::kUserDefined) continue;
    special_.Add(spec_.tokens[i], static_cast<TokenId>(i), control);
  }
}

std::vector<TokenId> VocabularyTokenizer::Encode(const PromptText& prompt, bool add_bos) const {
  return Encode(prompt.text, ControlWindow::Outside(prompt.content), add_bos);
}

std::vector<TokenId> VocabularyTokenizer::Encode(std::string_view text, bool parse_special,
                                                 bool add_bos) const {
  return Encode(text, parse_special ? ControlWindow::All() : ControlWindow::None(), add_bos);
}

std::vector<TokenId> VocabularyTokenizer::Encode(std::string_view text, ControlWindow window,
                                                 bool add_bos) const {
  std::vector<TokenId> tokens;
  const bool bos_in_front = add_bos && spec_.add_bos;
  if (bos_in_front) tokens.push_back(spec_.bos);
  size_t done = 0;
  while (done < text.size()) {
    const std::optional<SpecialMatch> match = special_.Find(text, done, &window);
    const size_t end = match ? match->begin : text.size();
    // What stands before a piece of text is either nothing or a match.
    if (end > done) EncodeText(text.substr(done, end - done), /*after_special=*/true, &tokens);
    if (!match) break;
    tokens.push_back(match->token);
    done = match->end;
  }
  if (bos_in_front && tokens.size() > 1 && tokens[1] == spec_.bos) tokens.erase(tokens.begin());
  return tokens;
}

std::string_view VocabularyTokenizer::TokenBytes(TokenId token, bool special) const {
  if (token < 0 || token >= vocab_size()) return {};
  return special && IsControl(token) ? spec_.tokens[token] : pieces_[token];
}

std::string VocabularyTokenizer::Decode(absl::Span<const TokenId> tokens, bool special) const {
  std::string text;
  for (const TokenId token : tokens) text += TokenBytes(token, special);
  return text;
}

bool VocabularyTokenizer::IsControl(TokenId token) const {
  return token >= 0 && token < vocab_size() && IsControlType(spec_.types[token]);
}

}  // namespace staffel
