#include "grammar/regex.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support.h"

namespace staffel::grammar {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string pattern;
  std::vector<std::string> accepted, refused;
};

TEST(Regex, AcceptsAndRefuses) {
  const std::vector<Case> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"", {""}, {"a"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"a*", {"", "a", "aaaa"}, {"b", "ab"}},
      {"(ab)+c?", {"ab", "ababc"}, {"", "abcc", "a"}},
      {"(?:a|b){2,3}", {"ab", "bba"}, {"a", "abab"}},
      {"(?<year>\\d{4})-(?P<month>\\d\\d)", {"2024-12"}, {"24-12", "2024-1"}},
      {"a{3}", {"aaa"}, {"aa", "aaaa"}},
      {"a{2,}", {"aa", "aaaaaaa"}, {"a"}},
      {"a{0}b", {"b"}, {"ab"}},
      {"a{,2}", {"a{,2}"}, {"aa"}},
      {"x{a}", {"x{a}"}, {"xa"}},
      {"a.c",
       {"abc",
        "a\xC3\xA9"
        "c",
        "a\xF0\x9F\x98\x80"
        "c"},
       {"a\nc", "ac",
        "a\xC3"
        "c"}},
      {"[a-c1]", {"a", "c", "1"}, {"d", "-", ""}},
      {"[^a-c]", {"d", "\n", "\xE2\x82\xAC"}, {"a", "\xE2\x82"}},
      {"[-a]", {"-", "a"}, {"b"}},
      {"[a-]", {"-", "a"}, {"b"}},
      {"[\\d.]+", {"1.5"}, {"a"}},
      {"[\\]\\\\^]+", {"]\\^"}, {"["}},
      {"[^]", {"a", "\n"}, {""}},
      {"\\w+\\s\\W\\S\\D", {"a_1 -xx"}, {"a_1--xx"}},
      {"\\s", {" ", "\t", "\xC2\xA0"}, {"a"}},
      {"\\u00e9\\x41\\u{1F600}\\uD83D\\uDE00",
       {"\xC3\xA9"
        "A\xF0\x9F\x98\x80\xF0\x9F\x98\x80"},
       {"eA"}},
      {"\\p{Lu}\\p{Ll}*", {"Abc", "\xC3\x89t\xC3\xA9"}, {"abc", "A1"}},
      {"\\P{L}", {"1"}, {"a"}},
      {"^abc$", {"abc"}, {"xabc"}},
      {"^a|b$", {"a", "b"}, {"ab"}},
      {"(^a|b)c", {"ac", "bc"}, {"c"}},
      {"a+?b*?", {"a", "aabb"}, {"b"}},
      {"\\.\\*\\/\\-", {".*/-"}, {"a*/-"}},
      {"[a-z]{1,5000}x",
       {"abx", std::string(5000, 'a') + "x"},
       {"x", std::string(5001, 'a') + "X"}},
      {"(a|b)*abb", {"abb", "ababb", "aaabbabb"}, {"ab", "abba"}},
      {"((a?b?)*c)*", {"", "c", "abcbac"}, {"ab"}},
  };
  for (const Case& test : cases) {
    auto automaton = MakeAutomaton(RegexSpec(test.pattern));
    ASSERT_TRUE(automaton.ok()) << test.pattern << ": " << automaton.status();
    for (const std::string& text : test.accepted) {
      EXPECT_TRUE(Accepts(*automaton, text)) << test.pattern << " must take '" << text << "'";
    }
    for (const std::string& text : test.refused) {
      EXPECT_FALSE(Accepts(*automaton, text)) << test.pattern << " must refuse '" << text << "'";
    }
  }
}

TEST(Regex, RefusesWhatIsNotSupportedOrMalformed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a(?=b)", "look-around"},
      {"(?<!a)b", "look-around"},
      {"(a)\\1", "back-reference"},
      {"\\bword", "\\b"},
      {"(?i)a", "kind of group"},
      {"a**", "quantifier follows"},
      {"*a", "nothing to repeat"},
      {"(a", "no \")\""},
      {"a)", "no \"(\""},
      {"[a", "no \"]\""},
      {"[z-a]", "out of order"},
      {"a{3,2}", "out of order"},
      {"\\", "ends with a backslash"},
      {"\\q", "not supported"},
      {"a^b", "text can begin"},
      {"a$b", "text can begin"},
      {"\\uD800", "surrogate"},
      {"\\p{Greek}", "general categories"},
      {"a++", "possessive"},
      {"\\u12", "hexadecimal"},
      {"(^a)*", "anchor cannot be repeated"},
      {"\xFF", "UTF-8"},
      {"[]", "no text at all"},
  };
  for (const auto& [pattern, message] : cases) {
    const auto grammar = Compile(RegexSpec(pattern));
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << pattern;
  }
}

TEST(Regex, DeepAndLargePatternsEndWithAnError) {
  const std::string deep = std::string(60000, '(') + "a" + std::string(60000, ')');
  EXPECT_EQ(Compile(RegexSpec(deep)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Compile(RegexSpec("(a{1000}){1000}")).ok());
  EXPECT_FALSE(Compile(RegexSpec("((((a{99}){99}){99}){99}){99}")).ok());
  EXPECT_TRUE(Compile(RegexSpec("(a{0,1000}){0,1000}")).ok());
  EXPECT_FALSE(Compile(RegexSpec("a{1000000000}")).ok());
  EXPECT_FALSE(Compile(RegexSpec("a{99999999999999999999}")).ok());
}

// Lengths are counted exactly across the blocks that long repetitions are cut into.
TEST(Regex, LongRepetitionsCountExactly) {
  for (const int count : {63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 5000}) {
    const std::string exact = "[ab]{" + std::to_string(count) + "}";
    const std::string up_to = "[ab]{2," + std::to_string(count) + "}";
    auto of_exact = MakeAutomaton(RegexSpec(exact));
    auto of_up_to = MakeAutomaton(RegexSpec(up_to));
    ASSERT_TRUE(of_exact.ok() && of_up_to.ok());
    for (const int length : {0,   1,   2,   3,    62,   63,   64,   65,   66,   126,  127, 128,
                             129, 130, 191, 4094, 4095, 4096, 4097, 4098, 4999, 5000, 5001}) {
      const std::string text(length, 'b');
      EXPECT_EQ(Accepts(*of_exact, text), length == count) << exact << " with " << length;
      EXPECT_EQ(Accepts(*of_up_to, text), length >= 2 && length <= count)
          << up_to << " with " << length;
    }
  }
}

}  // namespace
}  // namespace staffel::grammar
