// What all tokenizers share: the vocabulary, its control and end tokens, and the frame around the
// model's own algorithm.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "staffel/status.h"
#include "staffel/tokenizer.h"
#include "text/special_matcher.h"

namespace staffel {

// What no tokenizer can work with: an empty vocabulary, lists of different sizes, ids outside of
// the vocabulary. InvalidArgument says which.
Status ValidateVocabulary(const TokenizerSpec& spec);

// eos, eot, eom, those that the file names, and the control tokens that are known by name to end a
// turn or a text; ascending.
std::vector<TokenId> EndTokens(const TokenizerSpec& spec);

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> Encode(const PromptText& prompt, bool add_bos) const final;
  std::vector<TokenId> Encode(std::string_view text, bool parse_special, bool add_bos) const final;
  // A token outside of the vocabulary stands for nothing: models may have more rows than tokens.
  std::string_view TokenBytes(TokenId token, bool special) const final;
  std::string Decode(absl::Span<const TokenId> tokens, bool special) const override;
  bool IsControl(TokenId token) const final;
  int vocab_size() const final { return static_cast<int>(spec_.tokens.size()); }
  const TokenizerSpec& spec() const final { return spec_; }
  absl::Span<const TokenId> end_tokens() const final { return end_tokens_; }

 protected:
  // spec: valid (ValidateVocabulary). pieces: the bytes of each token; "" for control, unknown and
  // unused tokens.
  VocabularyTokenizer(TokenizerSpec spec, std::vector<std::string> pieces);

  // Appends the tokens of ordinary text (not empty). after_special: it begins the text, or a
  // control or user-defined token stands before it.
  virtual void EncodeText(std::string_view text, bool after_special,
                          std::vector<TokenId>* out) const = 0;

  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  std::vector<TokenId> Encode(std::string_view text, ControlWindow window, bool add_bos) const;

  TokenizerSpec spec_;
  std::vector<std::string> pieces_;
  std::vector<TokenId> end_tokens_;
  SpecialMatcher special_;
};

}  // namespace staffel
