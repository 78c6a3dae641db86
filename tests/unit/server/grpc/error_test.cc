#include "server/grpc/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpc_status.pb.h"

namespace staffel {
namespace {

using ::testing::EndsWith;

template <class Detail>
std::optional<Detail> DetailOf(const grpc::Status& status) {
  google::rpc::Status all;
  if (!all.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& any : all.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(GrpcError, CodesFollowHttpStatuses) {
  const std::pair<int, grpc::StatusCode> cases[] = {
      {400, grpc::INVALID_ARGUMENT},   {401, grpc::UNAUTHENTICATED},
      {403, grpc::PERMISSION_DENIED},  {404, grpc::NOT_FOUND},
      {405, grpc::UNIMPLEMENTED},      {408, grpc::DEADLINE_EXCEEDED},
      {413, grpc::RESOURCE_EXHAUSTED}, {422, grpc::INVALID_ARGUMENT},
      {429, grpc::RESOURCE_EXHAUSTED}, {499, grpc::CANCELLED},
      {500, grpc::INTERNAL},           {501, grpc::UNIMPLEMENTED},
      {503, grpc::UNAVAILABLE},        {504, grpc::DEADLINE_EXCEEDED}};
  for (const auto& [http, code] : cases) {
    const grpc::Status status = GrpcStatusOf({.status = http, .message = "so"});
    EXPECT_EQ(status.error_code(), code) << http;
    EXPECT_EQ(status.error_message(), "so");
  }
}

TEST(GrpcError, NamesTheFieldAndTheReason) {
  const grpc::Status status = GrpcStatusOf(
      {.status = 400, .message = "too hot", .param = "sampling.temperature", .code = "invalid"});
  const auto bad = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.temperature");
  EXPECT_EQ(bad->field_violations(0).description(), "too hot");
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->reason(), "invalid");
  EXPECT_EQ(info->domain(), "staffel");
  EXPECT_FALSE(DetailOf<google::rpc::RetryInfo>(status));
}

TEST(GrpcError, SaysWhenToTryAgain) {
  const HttpError busy{.status = 429, .message = "full", .headers = {{"Retry-After", "7"}}};
  const auto retry = DetailOf<google::rpc::RetryInfo>(GrpcStatusOf(busy));
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->retry_delay().seconds(), 7);
  EXPECT_EQ(RetryDelay(busy), std::chrono::seconds(7));
  EXPECT_EQ(RetryDelay({.status = 503}), std::chrono::seconds(1));
  EXPECT_EQ(RetryDelay({.status = 400}), std::nullopt);
}

TEST(GrpcError, LongMessagesFitIntoTrailers) {
  std::string text;
  for (int i = 0; i < 5000; i++) text += "ü";
  const grpc::Status status =
      GrpcStatusOf({.status = 400, .message = text, .param = text, .code = "invalid"});
  EXPECT_LT(status.error_message().size(), 1000u);
  EXPECT_THAT(status.error_message(), EndsWith("ü..."));  // not cut within a character
  EXPECT_LT(3 * status.error_message().size() + status.error_details().size(), 8000u);
}

TEST(GrpcError, CodesHaveNames) {
  EXPECT_STREQ(GrpcCodeName(grpc::OK), "OK");
  EXPECT_STREQ(GrpcCodeName(grpc::UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_STREQ(GrpcCodeName(static_cast<grpc::StatusCode>(99)), "UNKNOWN");
}

}  // namespace
}  // namespace staffel
