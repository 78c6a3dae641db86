// Tokens of one answer to text, as they come. One object per sequence, used by one thread.
#pragma once

#include <string>
#include <string_view>

#include "staffel/ids.h"
#include "staffel/tokenizer.h"
#include "text/utf8.h"

namespace staffel {

struct DecodeStreamOptions {
  bool special = false;  // control tokens appear by name instead of as nothing
  // The stream starts a text of its own, so the leading space that a SentencePiece tokenizer adds
  // in front of a text is taken off (Tokenizer::Decode does the same). An answer that continues a
  // prompt keeps its space.
  bool starts_text = false;
};

// The text of any run of pushes plus Flush equals that of decoding the same tokens at once, and is
// valid UTF-8 after every call. Bytes of an incomplete character (at most 3) wait for the next
// token; bytes that can never become valid are replaced by U+FFFD (see utf8.h).
class DecodeStream {
 public:
  // The tokenizer must outlive the stream.
  explicit DecodeStream(const Tokenizer& tokenizer, DecodeStreamOptions options = {});

  // Appends to *out the text that the token completes; possibly nothing.
  void Push(TokenId token, std::string* out);
  // The same for bytes that belong to no token.
  void PushBytes(std::string_view bytes, std::string* out);
  // Ends the text: what is still held back comes out as U+FFFD.
  void Flush(std::string* out);
  bool pending() const { return sanitizer_.pending(); }

 private:
  const Tokenizer& tokenizer_;
  DecodeStreamOptions options_;
  bool at_start_;  // no token has given bytes yet
  Utf8Sanitizer sanitizer_;
};

}  // namespace staffel
