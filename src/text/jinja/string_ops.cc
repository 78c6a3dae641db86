#include "text/jinja/string_ops.h"

#include <algorithm>

#include "text/jinja/error.h"

namespace staffel::jinja {
namespace {

bool IsAscii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) == 0; });
}

Value Piece(Runtime& runtime, const Text& text, size_t begin, size_t end) {
  return runtime.MakeString(Slice(text, begin, end));
}

// Splits off the last character: where it begins.
size_t LastCharacter(std::string_view bytes, size_t end) {
  size_t begin = end - 1;
  while ((bytes[begin] & 0xC0) == 0x80) --begin;
  return begin;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

Text ChangeCase(Runtime& runtime, const Text& text, LetterCase letter_case) {
  runtime.Work(4 * text.text.size());
  if (letter_case != LetterCase::kTitle && IsAscii(text.text)) {
    Text out = text;
    const bool upper = letter_case == LetterCase::kUpper;
    for (char& c : out.text) {
      const char first = upper ? 'a' : 'A';
      if (c >= first && c < first + 26) c = static_cast<char>(c ^ 0x20);
    }
    return out;
  }
  Text out;
  for (size_t at = 0; at < text.text.size();) {
    const bool content = IsContentAt(text, at);
    AppendInCase(out, NextCodePoint(text.text, at), letter_case, content);
  }
  return out;
}

Text Capitalize(Runtime& runtime, const Text& text) {
  if (text.text.empty()) return text;
  size_t first_end = 0;
  const char32_t first = NextCodePoint(text.text, first_end);
  Text out;
  AppendInCase(out, first, LetterCase::kTitle, IsContentAt(text, 0));
  Append(out, ChangeCase(runtime, Slice(text, first_end, text.text.size()), LetterCase::kLower));
  return out;
}

Text TitleOfLetters(Runtime& runtime, const Text& text) {
  runtime.Work(4 * text.text.size());
  Text out;
  bool inside = false;
  for (size_t at = 0; at < text.text.size();) {
    const bool content = IsContentAt(text, at);
    const char32_t c = NextCodePoint(text.text, at);
    AppendInCase(out, c, inside ? LetterCase::kLower : LetterCase::kTitle, content);
    inside = IsUpper(c) || IsLower(c);
  }
  return out;
}

Text Strip(const Text& text, Side side, const Text* characters) {
  const bool left = side != Side::kRight, right = side != Side::kLeft;
  const std::string_view bytes = text.text;
  if (characters == nullptr) {
    const Trimmed trimmed = TrimSpaces(bytes, left, right);
    return Slice(text, trimmed.begin, trimmed.end);
  }
  std::vector<char32_t> set;
  for (size_t at = 0; at < characters->text.size();) {
    set.push_back(NextCodePoint(characters->text, at));
  }
  std::sort(set.begin(), set.end());
  const auto stripped = [&](size_t begin) {
    return std::binary_search(set.begin(), set.end(), NextCodePoint(bytes, begin));
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end) {
    size_t next = begin;
    NextCodePoint(bytes, next);
    if (!stripped(begin)) break;
    begin = next;
  }
  while (right && begin < end) {
    const size_t last = LastCharacter(bytes, end);
    if (!stripped(last)) break;
    end = last;
  }
  return Slice(text, begin, end);
}

namespace {

std::vector<Value> SplitSpaces(Runtime& runtime, const Text& text, int64_t maximum) {
  std::vector<Value> pieces;
  const std::string_view bytes = text.text;
  size_t at = TrimSpaces(bytes, true, false).begin;
  while (at < bytes.size()) {
    if (maximum >= 0 && static_cast<int64_t>(pieces.size()) == maximum) {
      pieces.push_back(Piece(runtime, text, at, bytes.size()));
      break;
    }
    size_t end = at;
    while (end < bytes.size()) {
      size_t next = end;
      if (IsPythonSpace(NextCodePoint(bytes, next))) break;
      end = next;
    }
    pieces.push_back(Piece(runtime, text, at, end));
    runtime.Step();
    at = end + TrimSpaces(bytes.substr(end), true, false).begin;
  }
  return pieces;
}

// The pieces come last first.
std::vector<Value> SplitSpacesFromRight(Runtime& runtime, const Text& text, int64_t maximum) {
  std::vector<Value> pieces;
  const std::string_view bytes = text.text;
  size_t end = TrimSpaces(bytes, false, true).end;
  while (end > 0) {
    if (maximum >= 0 && static_cast<int64_t>(pieces.size()) == maximum) {
      pieces.push_back(Piece(runtime, text, 0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t last = LastCharacter(bytes, begin);
      size_t next = last;
      if (IsPythonSpace(NextCodePoint(bytes, next))) break;
      begin = last;
    }
    pieces.push_back(Piece(runtime, text, begin, end));
    runtime.Step();
    end = TrimSpaces(bytes.substr(0, begin), false, true).end;
  }
  return pieces;
}

std::vector<size_t> Occurrences(Runtime& runtime, std::string_view bytes, std::string_view needle,
                                int64_t maximum) {
  std::vector<size_t> found;
  for (size_t at = 0; maximum < 0 || static_cast<int64_t>(found.size()) < maximum;) {
    const size_t next = FindBytes(bytes, needle, at);
    if (next == std::string_view::npos) break;
    found.push_back(next);
    runtime.Step();
    at = next + needle.size();
  }
  return found;
}

}  // namespace

std::vector<Value> Split(Runtime& runtime, const Text& text, const Text* separator, int64_t maximum,
                         bool from_right) {
  runtime.Work(4 * text.text.size());
  std::vector<Value> pieces;
  if (separator == nullptr) {
    if (!from_right) return SplitSpaces(runtime, text, maximum);
    pieces = SplitSpacesFromRight(runtime, text, maximum);
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }
  if (separator->text.empty()) Fail("empty separator");
  const std::string_view bytes = text.text;
  const size_t length = separator->text.size();
  std::vector<size_t> cuts;
  if (!from_right) {
    cuts = Occurrences(runtime, bytes, separator->text, maximum);
  } else {
    const std::string backwards(bytes.rbegin(), bytes.rend());
    const std::string needle(separator->text.rbegin(), separator->text.rend());
    cuts = Occurrences(runtime, backwards, needle, maximum);
    for (size_t& cut : cuts) cut = bytes.size() - cut - length;
    std::reverse(cuts.begin(), cuts.end());
  }
  size_t begin = 0;
  for (const size_t cut : cuts) {
    pieces.push_back(Piece(runtime, text, begin, cut));
    begin = cut + length;
  }
  pieces.push_back(Piece(runtime, text, begin, bytes.size()));
  return pieces;
}

std::vector<Value> SplitLines(Runtime& runtime, const Text& text, bool keep_ends) {
  runtime.Work(4 * text.text.size());
  std::vector<Value> lines;
  const std::string_view bytes = text.text;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    const char32_t c = NextCodePoint(bytes, at);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') at++;
    lines.push_back(Piece(runtime, text, begin, keep_ends ? at : end));
    runtime.Step();
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(Piece(runtime, text, begin, bytes.size()));
  return lines;
}

Text Replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, int64_t count) {
  runtime.Work(4 * text.text.size());
  TextBuilder out(runtime);
  const std::string_view bytes = text.text;
  if (from.text.empty()) {
    // Between all characters, and at both ends.
    size_t at = 0;
    int64_t done = 0;
    while (count < 0 || done < count) {
      out.Append(to);
      runtime.Step();
      done++;
      if (at == bytes.size()) break;
      const size_t begin = at;
      NextCodePoint(bytes, at);
      out.Append(text, begin, at);
    }
    out.Append(text, at, bytes.size());
    return out.Take();
  }
  size_t begin = 0;
  for (const size_t cut : Occurrences(runtime, bytes, from.text, count)) {
    out.Append(text, begin, cut);
    out.Append(to);
    begin = cut + from.text.size();
  }
  out.Append(text, begin, bytes.size());
  return out.Take();
}

Text Join(Runtime& runtime, const Text& separator, const std::vector<Value>& items) {
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.Append(separator);
    first = false;
    out.Append(item.text());
    runtime.Step();
  }
  return out.Take();
}

Text Pad(Runtime& runtime, const Text& text, Side keep_at, int64_t width, const Text& fill) {
  if (CountCharacters(fill.text) != 1)
    Fail("the fill character must be exactly one character long");
  runtime.Work(text.text.size());
  const int64_t missing = std::max<int64_t>(0, width - CountCharacters(text.text));
  // As Python's center: the odd one goes left if the width is odd.
  const int64_t left = keep_at == Side::kLeft    ? 0
                       : keep_at == Side::kRight ? missing
                                                 : missing / 2 + (missing & width & 1);
  TextBuilder out(runtime);
  out.Repeat(fill.text, left, HasContent(fill));
  out.Append(text);
  out.Repeat(fill.text, missing - left, HasContent(fill));
  return out.Take();
}

int64_t CountOccurrences(Runtime& runtime, std::string_view bytes, std::string_view needle) {
  runtime.Work(bytes.size());
  if (needle.empty()) return CountCharacters(bytes) + 1;
  return static_cast<int64_t>(Occurrences(runtime, bytes, needle, -1).size());
}

}  // namespace staffel::jinja
