#include "server/api/api_error.h"

#include <gtest/gtest.h>

namespace staffel::api {
namespace {

constexpr ClientName kNames[] = {{"max_tokens", "num_predict"}, {"stop", "max_tokens"}};

TEST(ApiError, SpeaksInTheNamesOfTheFront) {
  ApiError error = WithClientNames(Invalid("max_tokens", "'max_tokens' must be 1 or more"), kNames);
  EXPECT_EQ(error.param, "num_predict");
  EXPECT_EQ(error.message, "'num_predict' must be 1 or more");
  EXPECT_EQ(error.status, 400);
}

TEST(ApiError, ANameIsReplacedOnce) {
  ApiError error = WithClientNames(Invalid("stop", "'stop' is empty"), kNames);
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_EQ(error.message, "'max_tokens' is empty");
}

TEST(ApiError, OtherNamesStay) {
  ApiError error = WithClientNames(Invalid("seed", "'seed' is no number"), kNames);
  EXPECT_EQ(error.param, "seed");
  EXPECT_EQ(error.message, "'seed' is no number");
}

}  // namespace
}  // namespace staffel::api
