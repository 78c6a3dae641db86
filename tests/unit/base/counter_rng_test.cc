#include "base/counter_rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace staffel {
namespace {

using ::testing::ElementsAre;

// Known answers of the Random123 library's test suite.
TEST(Philox4x32, KnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(UniformAt, IsUniformAndDependsOnEveryArgument) {
  double sum = 0, squares = 0;
  std::set<double> seen;
  for (uint32_t position = 0; position < 10000; ++position) {
    const double u = UniformAt(42, 0, position);
    EXPECT_TRUE(u >= 0 && u < 1);
    sum += u;
    squares += u * u;
    seen.insert(u);
  }
  EXPECT_NEAR(sum / 1e4, 0.5, 0.01);
  EXPECT_NEAR(squares / 1e4, 1.0 / 3, 0.01);
  EXPECT_EQ(seen.size(), 10000u);
  EXPECT_EQ(UniformAt(42, 1, 7), UniformAt(42, 1, 7));
  EXPECT_NE(UniformAt(42, 1, 7), UniformAt(42, 0, 7));
  EXPECT_NE(UniformAt(42, 1, 7), UniformAt(43, 1, 7));
  EXPECT_NE(UniformAt(42, 1, 7), UniformAt(42 + (uint64_t{1} << 32), 1, 7));
}

}  // namespace
}  // namespace staffel
