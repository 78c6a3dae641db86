#include "base/check.h"

#include <gtest/gtest.h>

#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel {
namespace {

TEST(CheckDeathTest, FailureNamesConditionValuesAndReason) {
  int blocks = 3;
  EXPECT_DEATH(STAFFEL_CHECK_EQ(blocks, 4) << "free + owned",
               "blocks.*4.*\\(3 vs\\. 4\\).*free \\+ owned");
  STAFFEL_CHECK(true) << "not reached";
}

TEST(Id, KindsAreDistinctAndDefaultIsInvalid) {
  EXPECT_FALSE(Slot().valid());
  EXPECT_LT(BlockId(3), BlockId(4));
  static_assert(!std::is_convertible_v<Slot, BlockId>);
}

Result<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("n is odd; give an even one");
  return n / 2;
}
Result<int> Quarter(int n) {
  STAFFEL_ASSIGN_OR_RETURN(int half, Half(n));
  return Half(half);
}

TEST(Status, AssignOrReturnPassesErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "n is odd; give an even one");
}

}  // namespace
}  // namespace staffel
