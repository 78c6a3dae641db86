// Text of an answer that is not given out yet, and which bytes of it are control tokens.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace staffel::answer {

class PendingText {
 public:
  explicit PendingText(bool show_control) : show_control_(show_control) {}

  void Append(std::string_view text, bool control) {
    if (control && !show_control_ && !text.empty()) {
      const size_t begin = dropped_ + view().size();
      hidden_.emplace_back(begin, begin + text.size());
    }
    bytes_.append(text);
  }
  std::string_view view() const { return std::string_view(bytes_).substr(begin_); }

  // Whether a control token that no client sees begins at this byte of the view.
  bool IsHidden(size_t offset) const;

  // Removes the first bytes.
  void Drop(size_t count);
  // Removes the first bytes and returns those that a client may see.
  std::string Take(size_t count);

 private:
  bool show_control_;
  std::string bytes_;
  size_t begin_ = 0;    // of what is left in bytes_; removing from the front each time costs n²
  size_t dropped_ = 0;  // bytes of the answer before that
  std::deque<std::pair<size_t, size_t>> hidden_;  // in bytes of the answer, ascending
};

}  // namespace staffel::answer
