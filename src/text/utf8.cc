#include "text/utf8.h"

#include <cstring>

namespace staffel {
namespace {

// What a lead byte asks for: total length and the range of the second byte (Unicode table 3-7).
struct Lead {
  uint8_t length, second_min, second_max;
};

constexpr Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of plain ASCII at the front, eight at a time.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) i++;
  return i;
}

}  // namespace

Utf8Step DecodeUtf8(std::string_view text) {
  const uint8_t first = static_cast<uint8_t>(text[0]);
  const Lead lead = LeadOf(first);
  if (lead.length == 1) return {first, 1, Utf8Step::kCharacter};
  if (lead.length == 0) return {0, 1, Utf8Step::kInvalid};
  char32_t code_point = first & (0x7F >> lead.length);
  for (uint8_t i = 1; i < lead.length; i++) {
    if (i == text.size()) return {0, i, Utf8Step::kIncomplete};
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {0, i, Utf8Step::kInvalid};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {code_point, lead.length, Utf8Step::kCharacter};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += AsciiPrefix(text.substr(i));
    if (i == text.size()) return i;
    const Utf8Step step = DecodeUtf8(text.substr(i));
    if (step.kind != Utf8Step::kCharacter) return i;
    i += step.length;
  }
}

std::string ToValidUtf8(std::string_view bytes) {
  std::string out;
  Utf8Sanitizer sanitizer;
  sanitizer.Append(bytes, &out);
  sanitizer.Finish(&out);
  return out;
}

void Utf8Sanitizer::Append(std::string_view bytes, std::string* out) {
  // A held-back prefix takes one byte after the other until its fate is known; a byte that does not
  // continue it is read again as the start of something new.
  while (pending_bytes_ > 0 && !bytes.empty()) {
    pending_[pending_bytes_] = bytes[0];
    const Utf8Step step = DecodeUtf8({pending_, pending_bytes_ + size_t{1}});
    if (step.kind == Utf8Step::kInvalid) {
      out->append(kReplacementCharacter);
      pending_bytes_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    if (step.kind == Utf8Step::kCharacter) {
      out->append(pending_, step.length);
      pending_bytes_ = 0;
    } else {
      pending_bytes_++;
    }
  }
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    out->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const Utf8Step step = DecodeUtf8(bytes);
    if (step.kind == Utf8Step::kIncomplete) {
      std::memcpy(pending_, bytes.data(), bytes.size());
      pending_bytes_ = static_cast<uint8_t>(bytes.size());
      return;
    }
    out->append(kReplacementCharacter);
    bytes.remove_prefix(step.length);
  }
}

void Utf8Sanitizer::Finish(std::string* out) {
  if (pending_bytes_ > 0) out->append(kReplacementCharacter);
  pending_bytes_ = 0;
}

}  // namespace staffel
