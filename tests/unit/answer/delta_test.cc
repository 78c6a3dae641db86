#include "answer/delta.h"

#include <gtest/gtest.h>

namespace staffel::answer {
namespace {

using Kind = Delta::Kind;

TEST(Deltas, TextOfOneKindIsOneDelta) {
  std::vector<Delta> deltas;
  Append(deltas, {Kind::kReasoning, "a"});
  Append(deltas, {Kind::kReasoning, "b"});
  Append(deltas, {Kind::kContent, ""});
  Append(deltas, {Kind::kContent, "c"});
  Append(deltas, {Kind::kCallBegin, "", 0, "id0", "f"});
  Append(deltas, {Kind::kCallArguments, "{", 0});
  Append(deltas, {Kind::kCallArguments, "}", 0});
  Append(deltas, {Kind::kCallEnd, "", 0});
  Append(deltas, {Kind::kCallBegin, "", 1, "id1", "g"});
  Append(deltas, {Kind::kCallArguments, "{}", 1});
  Append(deltas, {Kind::kCallEnd, "", 1});
  EXPECT_EQ(deltas.size(), 8u);
  Answer answer;
  for (const Delta& delta : deltas) answer.Add(delta);
  const Answer expected = {"c", "ab", {{"id0", "f", "{}"}, {"id1", "g", "{}"}}};
  EXPECT_EQ(answer, expected);
}

}  // namespace
}  // namespace staffel::answer
