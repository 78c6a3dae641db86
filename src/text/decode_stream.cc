#include "text/decode_stream.h"

namespace staffel {

DecodeStream::DecodeStream(const Tokenizer& tokenizer, DecodeStreamOptions options)
    : tokenizer_(tokenizer), options_(options), at_start_(options.starts_text) {}

void DecodeStream::Push(TokenId token, std::string* out) {
  const std::string_view bytes = tokenizer_.TokenBytes(token, options_.special);
  if (!at_start_) {
    sanitizer_.Append(bytes, out);
    return;
  }
  // The rule for the first token is the family's own; Decode of that one token knows it.
  at_start_ = bytes.empty();
  sanitizer_.Append(tokenizer_.Decode({&token, 1}, options_.special), out);
}

void DecodeStream::PushBytes(std::string_view bytes, std::string* out) {
  if (!bytes.empty()) at_start_ = false;
  sanitizer_.Append(bytes, out);
}

void DecodeStream::Flush(std::string* out) { sanitizer_.Finish(out); }

}  // namespace staffel
