#include "text/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace staffel::jinja {

Text CallerText(std::string bytes) {
  Text text{std::move(bytes), {}};
  if (!text.text.empty()) text.content.push_back({0, text.text.size()});
  return text;
}

namespace {

void MarkContent(Text& out, size_t begin, size_t end) {
  if (begin == end) return;
  if (!out.content.empty() && out.content.back().end == begin) {
    out.content.back().end = end;
  } else {
    out.content.push_back({begin, end});
  }
}

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace

void Append(Text& out, std::string_view bytes, bool content) {
  const size_t begin = out.text.size();
  out.text += bytes;
  if (content) MarkContent(out, begin, out.text.size());
}

void Append(Text& out, const Text& piece, size_t begin, size_t end) {
  const size_t base = out.text.size();
  out.text.append(piece.text, begin, end - begin);
  auto range = std::partition_point(piece.content.begin(), piece.content.end(),
                                    [&](const ByteRange& r) { return r.end <= begin; });
  for (; range != piece.content.end() && range->begin < end; ++range) {
    MarkContent(out, base + std::max(range->begin, begin) - begin,
                base + std::min(range->end, end) - begin);
  }
}

Text Slice(const Text& text, size_t begin, size_t end) {
  Text out;
  Append(out, text, begin, end);
  return out;
}

bool IsContentAt(const Text& text, size_t offset) {
  auto range = std::partition_point(text.content.begin(), text.content.end(),
                                    [&](const ByteRange& r) { return r.end <= offset; });
  return range != text.content.end() && range->begin <= offset;
}

size_t FindBytes(std::string_view bytes, std::string_view needle, size_t begin) {
  if (begin > bytes.size()) return std::string_view::npos;
  if (needle.empty()) return begin;
  // std::string::find may need the product of both sizes; memmem never does.
  const void* found =
      memmem(bytes.data() + begin, bytes.size() - begin, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

size_t FindLastBytes(std::string_view bytes, std::string_view needle) {
  const std::string backwards(bytes.rbegin(), bytes.rend());
  const std::string needle_backwards(needle.rbegin(), needle.rend());
  const size_t found = FindBytes(backwards, needle_backwards);
  return found == std::string_view::npos ? found : bytes.size() - found - needle.size();
}

char32_t NextCodePoint(std::string_view bytes, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    ++offset;
    return lead;
  }
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code_point = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; i++) code_point = code_point << 6 | (byte(i) & 0x3F);
  offset += length;
  return code_point;
}

int64_t CountCharacters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

size_t CharacterOffset(std::string_view bytes, int64_t character) {
  size_t offset = 0;
  for (; offset < bytes.size(); offset++) {
    if ((bytes[offset] & 0xC0) == 0x80) continue;
    if (character-- == 0) break;
  }
  return offset;
}

bool IsPythonSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPythonPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsUpper(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool IsLower(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

void AppendInCase(Text& out, char32_t code_point, LetterCase letter_case, bool content) {
  // The two letters of Latin script whose other case has two characters.
  constexpr char32_t kSharpS = 0xDF, kDottedI = 0x130;
  if (code_point == kDottedI && letter_case == LetterCase::kLower) {
    Append(out, "i\u0307", content);
    return;
  }
  if (code_point == kSharpS && letter_case != LetterCase::kLower) {
    Append(out, letter_case == LetterCase::kUpper ? "SS" : "Ss", content);
    return;
  }
  const auto c = static_cast<utf8proc_int32_t>(code_point);
  const utf8proc_int32_t mapped = letter_case == LetterCase::kUpper   ? utf8proc_toupper(c)
                                  : letter_case == LetterCase::kLower ? utf8proc_tolower(c)
                                                                      : utf8proc_totitle(c);
  std::string bytes;
  AppendUtf8(static_cast<char32_t>(mapped), &bytes);
  Append(out, bytes, content);
}

Trimmed TrimSpaces(std::string_view bytes, bool left, bool right) {
  size_t begin = 0, end = bytes.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!IsPythonSpace(NextCodePoint(bytes, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    while ((bytes[start] & 0xC0) == 0x80) --start;
    size_t next = start;
    if (!IsPythonSpace(NextCodePoint(bytes, next))) break;
    end = start;
  }
  return {begin, end};
}

}  // namespace staffel::jinja
