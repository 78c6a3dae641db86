// Reads syntax from the beginning of text that may go on. Its answer to "does this follow?" is yes,
// no, or "more text is needed", and yes and no depend on the bytes read alone: however the text was
// cut, the outcome is the same.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace staffel::answer {

// What is read before it is known whether it is a call may be this long; beyond it is text.
inline constexpr size_t kHeadBytesMax = 64 << 10;
inline constexpr size_t kNameBytesMax = 256;

class Cursor {
 public:
  enum class State : unsigned char { kOk, kNo, kMore };

  // `complete`: nothing follows `text`.
  Cursor(std::string_view text, bool complete)
      : text_(text.substr(0, kHeadBytesMax)), complete_(complete || text.size() > kHeadBytesMax) {}

  // After a reading that failed or needs more text, further ones do nothing.
  bool ok() const { return state_ == State::kOk; }
  State state() const { return state_; }
  size_t position() const { return position_; }
  void Seek(size_t position) { position_ = position; }
  void Fail() {
    if (ok()) state_ = State::kNo;
  }
  // Goes on at `position` though a reading failed.
  void Recover(size_t position) {
    state_ = State::kOk;
    position_ = position;
  }

  void Space();                        // white space, possibly none
  void Expect(std::string_view text);  // fails if it does not follow
  bool Accept(std::string_view text);  // reads it if it follows
  char Peek();                         // the next byte; 0 and not ok() if there is none
  bool AtEnd();                        // the text is complete and read
  // Text up to `end`, which is read too but left out. Fails where it is longer than `bytes_max`.
  std::string_view Until(std::string_view end, size_t bytes_max);
  // A name of letters, digits and _ . - : /, at least one.
  std::string_view Word();
  // A JSON string, without escapes and quotes.
  std::string JsonString(size_t bytes_max);
  // Any JSON value, as it stands; brackets match, the rest is not checked.
  std::string_view JsonValue();

 private:
  void EndOfText() { state_ = complete_ ? State::kNo : State::kMore; }

  std::string_view text_;
  bool complete_;
  size_t position_ = 0;
  State state_ = State::kOk;
};

// Follows a JSON object or array by its brackets and strings.
class JsonTracker {
 public:
  enum class Step : unsigned char { kInside, kDone, kBroken };
  static constexpr size_t kDepthMax = 512;

  // Takes the next byte. The first is an opening bracket. kBroken: this byte can be in no JSON
  // here, or there are too many brackets.
  Step Next(char byte);

 private:
  std::string open_;  // brackets
  bool in_string_ = false, escaped_ = false;
};

void AppendJsonEscaped(std::string& out, std::string_view text);
bool IsJson(std::string_view text);

}  // namespace staffel::answer
