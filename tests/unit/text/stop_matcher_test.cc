#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/text/seed.h"

namespace staffel {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& o) {
  return out << '"' << o.text << "\" stop: " << (o.stop ? *o.stop : "none");
}

// The rule of the header, said on the whole text.
Outcome Naive(const std::vector<std::string>& stops, const std::string& text, bool include_stop) {
  size_t best = std::string::npos;
  std::optional<std::string> stop;
  for (const std::string& candidate : stops) {
    if (candidate.empty()) continue;
    const size_t at = text.find(candidate);
    if (at == std::string::npos) continue;
    if (!stop || at < best || (at == best && candidate.size() < stop->size())) {
      best = at;
      stop = candidate;
    }
  }
  if (!stop) return {text, std::nullopt};
  return {text.substr(0, best) + (include_stop ? *stop : ""), stop};
}

Outcome Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
             bool include_stop = false) {
  StopMatcher matcher(stops, include_stop);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    if (matcher.Push(piece, &outcome.text)) break;
  }
  matcher.Flush(&outcome.text);
  const std::string text = outcome.text;
  matcher.Push("more", &outcome.text);
  matcher.Flush(&outcome.text);
  EXPECT_EQ(outcome.text, text) << "text after the end";
  if (matcher.matched()) outcome.stop = stops[*matcher.matched()];
  return outcome;
}

TEST(StopMatcher, Table) {
  EXPECT_EQ(Feed({}, {"ab", "c"}), (Outcome{"abc", std::nullopt}));
  EXPECT_EQ(Feed({""}, {"ab", "c"}), (Outcome{"abc", std::nullopt}));
  EXPECT_EQ(Feed({"B\xF0\x9F\x98\x80"}, {"A", "B", "\xF0\x9F\x98\x80", " ", "Z"}),
            (Outcome{"A", "B\xF0\x9F\x98\x80"}));
  EXPECT_EQ(Feed({"A"}, {"A", "B"}), (Outcome{"", "A"}));
  EXPECT_EQ(Feed({"ab", "abc"}, {"xabc"}), (Outcome{"x", "ab"}));
  EXPECT_EQ(Feed({"abc", "ab"}, {"xabc"}), (Outcome{"x", "ab"}));
  // A match that started earlier is still open when "cd" is complete, and comes to nothing.
  EXPECT_EQ(Feed({"bcde", "cd"}, {"abcdX"}), (Outcome{"ab", "cd"}));
  EXPECT_EQ(Feed({"bcde", "cd"}, {"abcde"}), (Outcome{"a", "bcde"}));
  EXPECT_EQ(Feed({"bcde", "cd"}, {"abcd"}), (Outcome{"ab", "cd"}));
  EXPECT_EQ(Feed({"aab"}, {"aaa", "ab"}), (Outcome{"aa", "aab"}));
  EXPECT_EQ(Feed({"aab"}, {"aaa", "ab"}, true), (Outcome{"aaaab", "aab"}));
}

TEST(StopMatcher, HoldsOnlyWhatCouldStillMatch) {
  StopMatcher matcher({"stop", "to"});
  std::string out;
  EXPECT_FALSE(matcher.Push("a s", &out));
  EXPECT_EQ(out, "a ");
  EXPECT_FALSE(matcher.Push("e", &out));
  EXPECT_EQ(out, "a se");
  EXPECT_EQ(matcher.held_bytes(), 0u);
  EXPECT_FALSE(matcher.Push("sto", &out));
  EXPECT_EQ(out, "a se");
  EXPECT_TRUE(matcher.Push("x", &out));
  EXPECT_EQ(out, "a ses");
  EXPECT_EQ(matcher.matched(), 1);
}

TEST(StopMatcher, RepeatedStringReportsTheFirst) {
  StopMatcher matcher({"b", "a", "a"});
  std::string out;
  EXPECT_TRUE(matcher.Push("xa", &out));
  EXPECT_EQ(matcher.matched(), 1);
}

TEST(StopMatcher, AgreesWithTheNaiveSearch) {
  std::mt19937_64 random(TestSeed());
  const auto word = [&](int max) {
    std::string s;
    for (int i = random() % (max + 1); i > 0; i--) s.push_back("abc"[random() % 3]);
    return s;
  };
  for (int round = 0; round < 20000; round++) {
    std::vector<std::string> stops(random() % 5);
    for (std::string& stop : stops) stop = word(6);
    std::vector<std::string> pieces(random() % 8);
    std::string text;
    for (std::string& piece : pieces) text += piece = word(5);
    const bool include_stop = random() % 2;
    const Outcome expected = Naive(stops, text, include_stop);
    ASSERT_EQ(Feed(stops, pieces, include_stop), expected) << "text " << text;
    std::shuffle(stops.begin(), stops.end(), random);
    ASSERT_EQ(Feed(stops, {text}, include_stop), expected) << "text " << text;
  }
}

TEST(StopMatcher, LongTextAndManyStopsTakeOnePass) {
  std::vector<std::string> stops;
  for (int i = 1; i <= 300; i++) stops.push_back(std::string(i, 'a') + "b");
  StopMatcher matcher(stops);
  std::string out;
  const std::string piece(1000, 'a');
  for (int i = 0; i < 300; i++) matcher.Push(piece, &out);
  EXPECT_EQ(out.size() + matcher.held_bytes(), 300000u);
  EXPECT_EQ(matcher.held_bytes(), 300u);
  EXPECT_TRUE(matcher.Push("b", &out));
  EXPECT_EQ(out.size(), 300000u - 300u);
}

}  // namespace
}  // namespace staffel
