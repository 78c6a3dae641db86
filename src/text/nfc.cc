#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/utf8.h"

namespace staffel {
namespace {

// Everything below is in form C, and composes with nothing that stands before it.
constexpr char32_t kFirstComposing = 0x300;

bool IsComposingOrComposed(char32_t c) {
  if (c < kFirstComposing) return false;
  if (c >= 0x1100 && c < 0x1200) return true;  // Hangul letters make syllables
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  switch (property->category) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return true;
    default:
      return property->combining_class != 0 ||
             (property->decomp_seqindex != UINT16_MAX && property->decomp_type == 0);
  }
}

void AppendDecomposed(char32_t c, std::vector<int32_t>* out) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  int32_t buffer[8];
  int boundary_class = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<int32_t>(c), buffer, 8, kOptions, &boundary_class);
  if (count < 1 || count > 8) {
    out->push_back(static_cast<int32_t>(c));
  } else {
    out->insert(out->end(), buffer, buffer + count);
  }
}

int CombiningClass(int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Canonical ordering: each run of marks by combining class, marks of one class in their order.
void OrderMarks(std::vector<int32_t>* text) {
  for (size_t i = 0; i < text->size();) {
    if (CombiningClass((*text)[i]) == 0) {
      i++;
      continue;
    }
    size_t end = i + 1;
    while (end < text->size() && CombiningClass((*text)[end]) != 0) end++;
    std::stable_sort(text->begin() + i, text->begin() + end,
                     [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    i = end;
  }
}

// Appends what `text` composes to, and empties it.
void AppendComposed(std::vector<int32_t>* text, std::string* out) {
  if (text->empty()) return;
  OrderMarks(text);
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(text->data(), static_cast<utf8proc_ssize_t>(text->size()), kOptions);
  if (count >= 0) text->resize(static_cast<size_t>(count));
  for (const int32_t c : *text) AppendUtf8(static_cast<char32_t>(c), out);
  text->clear();
}

}  // namespace

bool MayChangeInNfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    // 0xCC leads U+0300; all that is below begins with a smaller byte.
    if (static_cast<uint8_t>(text[i]) < 0xCC) {
      i++;
      continue;
    }
    const Utf8Step step = DecodeUtf8(text.substr(i));
    if (step.kind == Utf8Step::kCharacter && IsComposingOrComposed(step.code_point)) return true;
    i += step.length;
  }
  return false;
}

std::string ToNfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> characters;
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.kind == Utf8Step::kCharacter) {
      AppendDecomposed(step.code_point, &characters);
    } else {
      AppendComposed(&characters, &out);
      out.append(text.substr(0, step.length));
    }
    text.remove_prefix(step.length);
  }
  AppendComposed(&characters, &out);
  return out;
}

}  // namespace staffel
