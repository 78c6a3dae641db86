#include "text/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/seed.h"
#include "text/utf8.h"

namespace staffel {
namespace {

TEST(Nfc, Table) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", ""},
      {"plain", "plain"},
      {"nai\u0308ve", "na\u00EFve"},
      {"\u212B", "\u00C5"},                // a singleton
      {"\uFB01\u2460", "\uFB01\u2460"},    // compatibility characters stay
      {"q\u0307\u0323", "q\u0323\u0307"},  // marks are ordered
      {"\u0958", "\u0915\u093C"},          // a composition exclusion
      {"\u1112\u1161\u11AB", "\uD55C"},    // Hangul
      {"\u304B\u3099", "\u304C"},
      {"e\xFF\u0301", "e\xFF\u0301"},  // bytes that are not text part it
  };
  for (const auto& [text, expected] : table) {
    EXPECT_EQ(ToNfc(text), expected) << text;
    EXPECT_TRUE(text == expected || MayChangeInNfc(text)) << text;
  }
}

TEST(Nfc, AgreesWithTheLibraryOnRandomText) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 20000; round++) {
    std::string text;
    for (int i = random() % 8; i > 0; i--) {
      switch (random() % 5) {
        case 0:
          AppendUtf8('a' + random() % 26, &text);
          break;
        case 1:
          AppendUtf8(0x300 + random() % 0x70, &text);
          break;
        case 2:
          AppendUtf8(0x1100 + random() % 0x100, &text);
          break;
        case 3:
          AppendUtf8(0x900 + random() % 0x500, &text);
          break;
        default:
          AppendUtf8(0xA0 + random() % 0x3000, &text);
          break;
      }
    }
    utf8proc_uint8_t* whole = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    const std::string expected(reinterpret_cast<const char*>(whole));
    std::free(whole);
    ASSERT_EQ(ToNfc(text), expected);
    ASSERT_TRUE(MayChangeInNfc(text) || expected == text);
  }
}

TEST(Nfc, ManyMarksOnOneLetter) {
  std::string text = "a";
  for (int i = 0; i < 200000; i++) text += i % 2 ? "\u0316" : "\u0301";
  EXPECT_EQ(ToNfc(text).size(), text.size() - 1);  // one mark makes "\u00E1"
}

}  // namespace
}  // namespace staffel
