// Text to tokens and back. A tokenizer is immutable after construction and used from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel {

// Numbers are those of tokenizer.ggml.token_type in GGUF.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// A vocabulary as a model file tells it. Filled by src/modelfile, read by src/text.
struct TokenizerSpec {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece with scores)
  std::string pre;    // pre-tokenizer of the BPE: "smollm", "qwen2", "gpt-2", "llama-bpe", ...
  std::vector<std::string>
      tokens;  // stored form (byte-level alphabet for gpt2, U+2581 for spaces in llama)
  std::vector<float> scores;        // llama only
  std::vector<TokenType> types;     // same size as tokens
  std::vector<std::string> merges;  // gpt2: "left right", best first
  TokenId bos = -1, eos = -1, eot = -1, eom = -1, unknown = -1, padding = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = true;
  std::vector<TokenId> end_of_generation;  // further end tokens named by the file
  // Fill in the middle: the model is asked with fim_prefix TEXT fim_suffix TEXT fim_middle. The
  // others set the parts of a prompt of several files apart, and end an answer.
  TokenId fim_prefix = -1, fim_suffix = -1, fim_middle = -1;
  TokenId fim_padding = -1, fim_repository = -1, fim_separator = -1;
};

// Half-open byte range of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
  constexpr bool operator==(const ByteRange&) const = default;
};

// A rendered prompt. Bytes inside `content` come from a caller (message text, tool schemas): they
// never form or complete a control token. All other bytes are the template's own, and control
// tokens in them are recognised. Ranges ascend.
struct PromptText {
  std::string text;
  std::vector<ByteRange> content;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Tokens of a text in which control tokens are recognised except in content ranges. User-defined
  // tokens are recognised everywhere. Ordinary text runs on across content edges, so merges there
  // stay. add_bos: put bos in front if the model asks for it and the text does not already begin
  // with it.
  virtual std::vector<TokenId> Encode(const PromptText& prompt, bool add_bos) const = 0;
  // Plain text; parse_special: control tokens are recognised anywhere.
  virtual std::vector<TokenId> Encode(std::string_view text, bool parse_special,
                                      bool add_bos) const = 0;
  // Bytes that a token stands for in an answer ("" for control tokens, unless special is set: then
  // their name).
  virtual std::string_view TokenBytes(TokenId token, bool special = false) const = 0;
  // Bytes of a whole sequence, with the family's rule for the first token's leading space.
  virtual std::string Decode(absl::Span<const TokenId> tokens, bool special = false) const = 0;
  virtual bool IsControl(TokenId token) const = 0;
  virtual int vocab_size() const = 0;
  // As given, and with the tokens for filling in the middle that are known by name.
  virtual const TokenizerSpec& spec() const = 0;
  // eos, eot, eom and the end-of-turn tokens known by name ("<|im_end|>", "<|eot_id|>",
  // "<end_of_turn>", ...), ascending.
  virtual absl::Span<const TokenId> end_tokens() const = 0;
};

}  // namespace staffel
