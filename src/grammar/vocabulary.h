// The tokens of a model as a trie over their bytes: one for each tokenizer, shared by all grammars.
// Immutable; used from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "staffel/grammar.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel::grammar {

inline int MaskWords(int vocab_size) { return (vocab_size + 31) / 32; }

struct VocabularySpec {
  // Bytes that each token stands for in an answer; empty: no text can have it (control tokens,
  // unused ones). Tokens with equal bytes are all allowed where one is.
  std::vector<std::string> token_bytes;
  // Control tokens that a grammar may name (StructuralTag, harmony's channels): name and id.
  std::vector<std::pair<std::string, TokenId>> named_tokens;
  std::vector<TokenId> end_tokens;  // allowed exactly where the text is complete
};

class Vocabulary {
 public:
  // InvalidArgument: no token, or an id out of range.
  static Result<std::shared_ptr<const Vocabulary>> Make(VocabularySpec spec);

  // Nodes in depth-first order. A subtree is [i, skip).
  struct Node {
    uint32_t skip;
    TokenId token;   // -1: no token ends here
    uint16_t depth;  // bytes from the root; 1 for its children
    uint8_t byte;
  };

  // Tokens that are whole characters which may stand unescaped in a JSON string, at most
  // kPlainCharsMax of them: about nine in ten of a vocabulary. Where a grammar takes any such
  // character, sets of them are known in advance, and only the other tokens are walked.
  static constexpr int kPlainCharsMax = 32;
  const std::vector<Node>& plain_trie() const { return plain_; }
  const std::vector<Node>& other_trie() const { return other_; }
  // Plain tokens of up to `chars` characters, 0 <= chars <= kPlainCharsMax. [MaskWords]
  absl::Span<const MaskWord> PlainUpTo(int chars) const { return plain_up_to_[chars]; }

  // The bytes of a token as the grammar reads them; empty: never allowed.
  std::string_view bytes(TokenId token) const { return bytes_[token]; }
  bool IsEnd(TokenId token) const;
  absl::Span<const TokenId> end_tokens() const { return end_tokens_; }
  // Further tokens with the bytes of one that is in a trie: (that one, further one).
  absl::Span<const std::pair<TokenId, TokenId>> duplicates() const { return duplicates_; }
  int size() const { return static_cast<int>(bytes_.size()); }
  int mask_words() const { return MaskWords(size()); }
  int depth_max() const { return depth_max_; }  // of the tries

 private:
  Vocabulary() = default;

  std::vector<std::string> bytes_;
  std::vector<TokenId> end_tokens_;  // ascending
  std::vector<Node> plain_, other_;
  std::vector<std::vector<MaskWord>> plain_up_to_;
  std::vector<std::pair<TokenId, TokenId>> duplicates_;
  int depth_max_ = 0;
};

}  // namespace staffel::grammar
