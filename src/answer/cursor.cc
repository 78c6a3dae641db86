#include "answer/cursor.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace staffel::answer {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.-:/").find(c) != std::string_view::npos;
}

}  // namespace

void Cursor::Space() {
  if (!ok()) return;
  while (position_ < text_.size() && IsSpace(text_[position_])) ++position_;
  if (position_ == text_.size() && !complete_) state_ = State::kMore;
}

bool Cursor::Accept(std::string_view text) {
  if (!ok()) return false;
  const std::string_view rest = text_.substr(position_);
  if (rest.starts_with(text)) {
    position_ += text.size();
    return true;
  }
  if (!complete_ && text.starts_with(rest)) state_ = State::kMore;
  return false;
}

void Cursor::Expect(std::string_view text) {
  if (!Accept(text)) Fail();
}

char Cursor::Peek() {
  if (!ok()) return 0;
  if (position_ < text_.size()) return text_[position_];
  EndOfText();
  return 0;
}

bool Cursor::AtEnd() {
  if (!ok() || position_ < text_.size()) return false;
  if (!complete_) state_ = State::kMore;
  return complete_;
}

std::string_view Cursor::Until(std::string_view end, size_t bytes_max) {
  if (!ok()) return {};
  const std::string_view window = text_.substr(position_, bytes_max + end.size());
  const size_t found = window.find(end);
  if (found == std::string_view::npos) {
    window.size() == bytes_max + end.size() ? Fail() : EndOfText();
    return {};
  }
  position_ += found + end.size();
  return window.substr(0, found);
}

std::string_view Cursor::Word() {
  if (!ok()) return {};
  const size_t begin = position_;
  while (position_ < text_.size() && IsWordByte(text_[position_])) ++position_;
  const size_t size = position_ - begin;
  if (size > kNameBytesMax) {
    Fail();
  } else if (position_ == text_.size() && !complete_) {
    state_ = State::kMore;
  } else if (size == 0) {
    Fail();
  }
  return ok() ? text_.substr(begin, size) : std::string_view();
}

std::string Cursor::JsonString(size_t bytes_max) {
  if (Peek() != '"') Fail();
  if (!ok()) return {};
  size_t end = position_ + 1;
  while (end < text_.size() && text_[end] != '"' && end - position_ <= bytes_max) {
    end += text_[end] == '\\' ? 2 : 1;
  }
  if (end - position_ > bytes_max) {
    Fail();
    return {};
  }
  if (end >= text_.size()) {
    EndOfText();
    return {};
  }
  const auto parsed =
      nlohmann::json::parse(text_.substr(position_, end + 1 - position_), nullptr, false);
  if (!parsed.is_string()) {
    Fail();
    return {};
  }
  position_ = end + 1;
  return parsed.get<std::string>();
}

std::string_view Cursor::JsonValue() {
  const char first = Peek();
  if (!ok()) return {};
  const size_t begin = position_;
  if (first == '"') {
    JsonString(kHeadBytesMax);
  } else if (first == '{' || first == '[') {
    JsonTracker tracker;
    JsonTracker::Step step = JsonTracker::Step::kInside;
    while (step == JsonTracker::Step::kInside && position_ < text_.size()) {
      step = tracker.Next(text_[position_++]);
    }
    if (step == JsonTracker::Step::kInside) EndOfText();
    if (step == JsonTracker::Step::kBroken) Fail();
  } else {
    Word();  // a number, true, false or null
  }
  return ok() ? text_.substr(begin, position_ - begin) : std::string_view();
}

JsonTracker::Step JsonTracker::Next(char byte) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
    }
    return Step::kInside;
  }
  switch (byte) {
    case '"':
      in_string_ = true;
      break;
    case '{':
    case '[':
      if (open_.size() == kDepthMax) return Step::kBroken;
      open_ += byte;
      break;
    case '}':
    case ']':
      if (open_.empty() || open_.back() != (byte == '}' ? '{' : '[')) return Step::kBroken;
      open_.pop_back();
      if (open_.empty()) return Step::kDone;
      break;
    default:
      // Outside of strings are only white space, numbers, words and separators.
      if (!IsSpace(byte) && !IsWordByte(byte) && byte != ',' && byte != '+') return Step::kBroken;
      break;
  }
  return Step::kInside;
}

void AppendJsonEscaped(std::string& out, std::string_view text) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  out.append(quoted, 1, quoted.size() - 2);
}

bool IsJson(std::string_view text) { return nlohmann::json::accept(text); }

}  // namespace staffel::answer
