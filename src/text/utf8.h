// UTF-8 helpers for bytes that may be anything. Invalid input is replaced as the WHATWG Encoding
// Standard and Unicode 3.9 ("substitution of maximal subparts") say, which is what Python's
// bytes.decode("utf-8", "replace") does. Pure; each object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace staffel {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One step of decoding at the front of a text.
struct Utf8Step {
  char32_t code_point = 0;  // meaningless unless kind is kCharacter
  uint8_t length = 0;       // bytes of the character or of the maximal subpart; >= 1
  enum Kind : uint8_t { kCharacter, kInvalid, kIncomplete } kind = kCharacter;
};

// Decodes the character that `text` (not empty) begins with. kInvalid: `length` bytes form a
// maximal subpart, to be replaced by one U+FFFD. kIncomplete: the whole rest of the text is a
// proper prefix of a valid character (1 to 3 bytes).
Utf8Step DecodeUtf8(std::string_view text);

// Appends the encoding of a scalar value (not a surrogate, at most U+10FFFF).
void AppendUtf8(char32_t code_point, std::string* out);

// Length of the longest valid prefix.
size_t ValidUtf8Prefix(std::string_view text);

// The whole text with invalid parts replaced.
std::string ToValidUtf8(std::string_view bytes);

// Turns a stream of bytes, cut anywhere, into valid UTF-8. The text that comes out does not depend
// on where the stream was cut.
class Utf8Sanitizer {
 public:
  // Appends to *out what is decided; at most 3 bytes of an incomplete character are held back.
  void Append(std::string_view bytes, std::string* out);
  // The stream has ended: an incomplete character becomes one U+FFFD.
  void Finish(std::string* out);
  bool pending() const { return pending_bytes_ > 0; }

 private:
  char pending_[4] = {};
  uint8_t pending_bytes_ = 0;
};

}  // namespace staffel
