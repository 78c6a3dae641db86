#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace staffel {
namespace {

// Length of the sequence that a lead byte begins (0: not a lead byte), and the range of the byte
// after it; the bytes after that are 80..BF.
struct Lead {
  int length;
  uint8_t second_min, second_max;
};

Lead LeadOf(uint8_t byte) {
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

}  // namespace

bool IsValidUtf8(std::string_view bytes) {
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint8_t* end = at + bytes.size();
  while (at < end) {
    uint64_t word;
    if (end - at >= 8 && (std::memcpy(&word, at, 8), (word & 0x8080808080808080u) == 0)) {
      at += 8;
      continue;
    }
    const Lead lead = LeadOf(*at);
    if (lead.length == 0 || end - at < lead.length) return false;
    if (lead.length > 1 && (at[1] < lead.second_min || at[1] > lead.second_max)) return false;
    for (int i = 2; i < lead.length; i++) {
      if ((at[i] & 0xC0) != 0x80) return false;
    }
    at += lead.length;
  }
  return true;
}

}  // namespace staffel
