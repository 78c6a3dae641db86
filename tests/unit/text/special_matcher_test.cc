#include "text/special_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace staffel {
namespace {

struct Special {
  std::string text;
  bool control;
};

std::vector<SpecialMatch> FindAll(const SpecialMatcher& matcher, std::string_view text,
                                  ControlWindow window) {
  std::vector<SpecialMatch> matches;
  size_t from = 0;
  while (const auto match = matcher.Find(text, from, &window)) {
    matches.push_back(*match);
    from = match->end;
  }
  return matches;
}

std::string Show(const std::vector<SpecialMatch>& matches) {
  std::string text;
  for (const SpecialMatch& m : matches) {
    text +=
        std::to_string(m.begin) + "-" + std::to_string(m.end) + ":" + std::to_string(m.token) + " ";
  }
  return text;
}

SpecialMatcher Make(const std::vector<Special>& specials) {
  SpecialMatcher matcher;
  for (size_t i = 0; i < specials.size(); i++) {
    matcher.Add(specials[i].text, static_cast<TokenId>(i), specials[i].control);
  }
  return matcher;
}

TEST(SpecialMatcher, LongestAllowedMatchFirst) {
  const SpecialMatcher matcher = Make(
      {{"<a>", true}, {"<a>>", true}, {"<", false}, {"  ", false}, {"   ", false}, {"", true}});
  EXPECT_EQ(Show(FindAll(matcher, "x<a>>y", ControlWindow::All())), "1-5:1 ");
  EXPECT_EQ(Show(FindAll(matcher, "x<a>>y", ControlWindow::None())), "1-2:2 ");
  EXPECT_EQ(Show(FindAll(matcher, "     ", ControlWindow::None())), "0-3:4 3-5:3 ");
  // One byte of content ends what a control token may reach.
  EXPECT_EQ(Show(FindAll(matcher, "<a>>", ControlWindow::Outside({{3, 4}}))), "0-3:0 ");
  EXPECT_EQ(Show(FindAll(matcher, "<a>>", ControlWindow::Outside({{1, 2}}))), "0-1:2 ");
  EXPECT_EQ(Show(FindAll(matcher, "<a>>", ControlWindow::Outside({{2, 2}}))), "0-4:1 ");
}

TEST(SpecialMatcher, AgreesWithTheRuleOnRandomText) {
  std::mt19937_64 random(TestSeed());
  const auto word = [&](int min, int max) {
    std::string s;
    for (int i = min + random() % (max - min + 1); i > 0; i--) s.push_back("<a>"[random() % 3]);
    return s;
  };
  for (int round = 0; round < 5000; round++) {
    std::vector<Special> specials(random() % 5);
    for (Special& special : specials) special = {word(1, 4), random() % 2 == 0};
    const std::string text = word(0, 14);
    std::vector<ByteRange> ranges(random() % 4);
    std::vector<bool> content(text.size() + 1);
    for (ByteRange& range : ranges) {
      range.begin = random() % (text.size() + 1);
      range.end = range.begin + random() % 4;  // may reach beyond the text
      for (size_t i = range.begin; i < range.end && i < text.size(); i++) content[i] = true;
    }
    std::vector<SpecialMatch> expected;
    for (size_t at = 0; at < text.size();) {
      SpecialMatch best;
      for (size_t i = 0; i < specials.size(); i++) {
        const std::string& s = specials[i].text;
        if (text.compare(at, s.size(), s) != 0) continue;
        bool first = true;
        for (size_t j = 0; j < i; j++) first = first && specials[j].text != s;
        bool allowed = first;
        for (size_t j = at; j < at + s.size() && specials[i].control; j++) {
          allowed = allowed && !content[j];
        }
        if (allowed && at + s.size() > best.end) best = {at, at + s.size(), TokenId(i)};
      }
      if (best.token >= 0) expected.push_back(best);
      at = best.token >= 0 ? best.end : at + 1;
    }
    ASSERT_EQ(Show(FindAll(Make(specials), text, ControlWindow::Outside(ranges))), Show(expected))
        << text;
  }
}

}  // namespace
}  // namespace staffel
