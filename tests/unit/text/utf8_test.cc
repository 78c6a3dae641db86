#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/text/seed.h"

namespace staffel {
namespace {

// Expected values are those of Python's bytes.decode("utf-8", "replace").
TEST(Utf8, InvalidPartsAreReplacedByMaximalSubpart) {
  const std::string r(kReplacementCharacter);
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", ""},
      {"plain", "plain"},
      {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
      {"\xC0\xAF", r + r},
      {"\xED\xA0\x80", r + r + r},
      {"\xED\x9F\xBF", "\xED\x9F\xBF"},
      {"\xF5\xFF", r + r},
      {"\xF0\x9F\xF0\x9F", r + r},
      {"\xF0\x9F\x98", r},
      {"\xF0\x9F\x98z", r + "z"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xE0\x80\x80", r + r + r},
      {"a\x80\xBF\xC2", "a" + r + r + r},
      {std::string("\0x\0", 3), std::string("\0x\0", 3)},
  };
  for (const auto& [bytes, expected] : table) EXPECT_EQ(ToValidUtf8(bytes), expected);
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; c++) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Step step = DecodeUtf8(text);
    ASSERT_EQ(step.kind, Utf8Step::kCharacter) << std::hex << uint32_t{c};
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(ValidUtf8Prefix(text), text.size());
    for (size_t cut = 1; cut < text.size(); cut++) {
      ASSERT_EQ(DecodeUtf8(std::string_view(text).substr(0, cut)).kind, Utf8Step::kIncomplete);
    }
  }
}

TEST(Utf8, ResultDoesNotDependOnTheCut) {
  std::mt19937_64 random(TestSeed());
  const std::string interesting("\x00\x41\x7F\x80\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xED\xEF\xF0\xF4\xF5",
                                16);
  for (int round = 0; round < 20000; round++) {
    std::string bytes;
    for (int i = random() % 12; i > 0; i--) bytes.push_back(interesting[random() % 16]);
    std::string streamed;
    Utf8Sanitizer sanitizer;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = 1 + random() % 4;
      sanitizer.Append(std::string_view(bytes).substr(at, length), &streamed);
      ASSERT_EQ(ValidUtf8Prefix(streamed), streamed.size());
      at += length;
    }
    sanitizer.Finish(&streamed);
    ASSERT_EQ(streamed, ToValidUtf8(bytes));
    ASSERT_EQ(ValidUtf8Prefix(streamed), streamed.size());
  }
}

}  // namespace
}  // namespace staffel
