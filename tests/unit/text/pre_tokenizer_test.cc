#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/seed.h"
#include "text/utf8.h"

namespace staffel {
namespace {

std::vector<std::string> Words(const PreTokenizer& rule, std::string_view text) {
  std::vector<uint32_t> ends;
  rule.Split(text, &ends);
  std::vector<std::string> words;
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    EXPECT_GT(end, begin) << "empty word";
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size()) << "words do not tile the text";
  return words;
}

PreTokenizer Rule(std::string_view name, bool jit = true) {
  auto rule = PreTokenizer::Create(name, {.jit = jit});
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *std::move(rule);
}

using List = std::vector<std::string>;

TEST(PreTokenizer, Table) {
  const struct {
    const char *name, *text;
    List words;
  } table[] = {
      {"gpt-2",
       "it's  a test\n\nDON'T 12345",
       {"it", "'s", " ", " a", " test", "\n", "\n", "DON", "'", "T", " 12345"}},
      {"smollm", "a12 3", {"a", "1", "2", " ", "3"}},
      {"qwen2", "it'S (ok)\n\n x\t12", {"it", "'S", " (", "ok", ")\n\n", " x", "\t", "1", "2"}},
      {"llama-bpe", "12345 x\r\n\r\n  y", {"123", "45", " x", "\r\n\r\n", " ", " y"}},
      {"gpt-4o", "helloWorld FOOBar's", {"hello", "World", " FOOBar's"}},
      {"gpt-4o", "ABCdef a/b\n//\n", {"ABCdef", " a", "/b", "\n", "//\n"}},
      {"tekken", "fooBar's 12", {"foo", "Bar", "'s", " ", "1", "2"}},
      {"deepseek-v3",
       "#include x\xE6\x97\xA5\xE6\x9C\xAC 1234",
       {"#include", " x", "\xE6\x97\xA5\xE6\x9C\xAC", " ", "123", "4"}},
      {"deepseek-llm", "ab  cd  ", {"ab", " ", " cd", "  "}},
      {"deepseek-coder", "x\n12 y", {"x", "\n", "1", "2", " y"}},
      {"falcon", "a,b 12345", {"a", ",", "b", " ", "123", "45"}},
      {"default", "a=b 1234", {"a", "=", "b", " ", "123", "4"}},
      {"bloom", "hi, you", {"hi", ",", " you"}},
      {"qwen35", "e\xCC\x81t", {"e\xCC\x81t"}},
      {"qwen2", "e\xCC\x81t", {"e", "\xCC\x81t"}},
  };
  for (const auto& row : table) {
    EXPECT_EQ(Words(Rule(row.name), row.text), row.words) << row.name << ": " << row.text;
  }
}

TEST(PreTokenizer, WhiteSpaceIsTheUnicodeProperty) {
  const PreTokenizer rule = Rule("gpt-2");
  // U+0085 and U+3000 are white space; U+180E and U+200B are not.
  EXPECT_EQ(Words(rule, "a\u0085 b"), (List{"a", "\u0085", " b"}));
  EXPECT_EQ(Words(rule, "a\u3000\u3000b"), (List{"a", "\u3000", "\u3000", "b"}));
  EXPECT_EQ(Words(rule, "a\u180E\u200Bb"), (List{"a", "\u180E\u200B", "b"}));
}

TEST(PreTokenizer, BytesThatAreNotTextAreWordsOfTheirOwn) {
  EXPECT_EQ(Words(Rule("qwen2"),
                  "ab\xFF\xF0\x9F"
                  "cd"),
            (List{"ab", "\xFF", "\xF0\x9F", "cd"}));
}

TEST(PreTokenizer, UnknownNamesAreRefused) {
  const auto unknown = PreTokenizer::Create("nonsense");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(unknown.status().message()).find("'nonsense'"), std::string::npos);
  EXPECT_EQ(PreTokenizer::Create("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PreTokenizer, InterpreterAgreesWithTheJit) {
  std::mt19937_64 random(TestSeed());
  const std::vector<std::string> parts = {
      "a",  "Z",      "'s",         "'LL",    " ",      "  ",     "\n",     "\r\n",   "\t",     "1",
      "23", "\u00E9", "\u00C9",     "\u4E2D", "\u0301", "\u3000", "\u0085", "\u0664", "\u2167", ",",
      "/",  "(",      "\U0001F600", "\u01C5", "\u02B0", "\xFF",   "$",      "_"};
  for (const std::string& name : PreTokenizer::Names()) {
    const PreTokenizer jit = Rule(name), interpreter = Rule(name, false);
    for (int round = 0; round < 100; round++) {
      std::string text;
      for (int i = random() % 40; i > 0; i--) text += parts[random() % parts.size()];
      ASSERT_EQ(Words(jit, text), Words(interpreter, text)) << name << ": " << text;
    }
  }
}

// A rule that took quadratic time for any of these would not end within the test's time.
TEST(PreTokenizer, LongRunsTakeLinearTime) {
  constexpr size_t kBytes = 1 << 18;
  std::vector<std::string> texts;
  for (const char* unit : {"a", "A", " ", "\n", "1", ",", "'", " \n", "\u4E2D", "\u0301", "\u3000",
                           "Aa", " a", "\xFF", "\u02B0"}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    texts.push_back(text + "x");
    texts.push_back(text + "\u4E2D");
  }
  for (const char* name : {"gpt-2", "smollm", "default", "falcon", "llama-bpe", "qwen2", "qwen35",
                           "gpt-4o", "tekken", "seed-coder", "bailingmoe", "deepseek-llm",
                           "deepseek-coder", "deepseek-v3", "bloom", "viking"}) {
    const PreTokenizer rule = Rule(name);
    for (const std::string& text : texts) {
      std::vector<uint32_t> ends;
      rule.Split(text, &ends);
      ASSERT_EQ(ends.back(), text.size());
    }
  }
}

TEST(PreTokenizer, InterpreterTakesALongRun) {
  const PreTokenizer rule = Rule("gpt-4o", false);
  std::vector<uint32_t> ends;
  rule.Split(std::string(1 << 20, 'A') + " " + std::string(1 << 20, ' '), &ends);
  EXPECT_EQ(ends.size(), 2u);
}

}  // namespace
}  // namespace staffel
