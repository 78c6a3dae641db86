#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/kserve/http_tensors.h"

namespace staffel::api::kserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const Checked<HttpInfer>& read) {
  const auto* error = std::get_if<ApiError>(&read);
  return error == nullptr ? "" : error->message;
}

TEST(KserveHttp, TensorsAreArraysOrBytesBehindTheJson) {
  const std::string json =
      R"({"id":"7","inputs":[)"
      R"({"name":"text_input","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}},)"
      R"({"name":"stop","datatype":"BYTES","shape":[2,1],"data":[["a"],["b"]]},)"
      R"({"name":"max_tokens","datatype":"INT32","shape":[1],"parameters":{"binary_data_size":4}}],)"
      R"("outputs":[{"name":"text_output","parameters":{"binary_data":false}}],)"
      R"("parameters":{"binary_data_output":true,"seed":3}})";
  const std::string body = json + std::string("\x02\0\0\0hi\x05\0\0\0", 10);
  Checked<HttpInfer> read = ReadInferBody(body, std::to_string(json.size()));
  ASSERT_EQ(ErrorOf(read), "");
  const HttpInfer& infer = std::get<HttpInfer>(read);
  EXPECT_EQ(infer.id, "7");
  EXPECT_TRUE(infer.binary);
  EXPECT_FALSE(infer.binary_output.at("text_output"));
  ASSERT_EQ(infer.request.inputs.size(), 3u);
  EXPECT_EQ(infer.request.inputs[0].values, Json::array({"hi"}));
  EXPECT_EQ(infer.request.inputs[1].values, Json::array({"a", "b"}));
  EXPECT_EQ(infer.request.inputs[2].values, Json::array({5}));
  EXPECT_EQ(infer.request.parameters["seed"], 3);
  EXPECT_THAT(infer.request.outputs, ElementsAre("text_output"));
}

TEST(KserveHttp, BytesThatDoNotFitAreRefused) {
  const auto read = [](std::string_view size, std::string_view raw, std::string_view length) {
    const std::string json = std::string(R"({"inputs":[{"name":"text_input","datatype":"BYTES",)") +
                             R"("shape":[1],"parameters":{"binary_data_size":)" +
                             std::string(size) + "}}]}";
    return ErrorOf(ReadInferBody(json + std::string(raw),
                                 length.empty() ? std::to_string(json.size()) : length));
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(read("6", "\2\0\0\0hi"sv, ""), "");
  EXPECT_THAT(read("6", "\2\0\0\0hi!"sv, ""), HasSubstr("1 bytes behind"));
  EXPECT_THAT(read("7", "\2\0\0\0hi"sv, ""), HasSubstr("fewer bytes"));
  EXPECT_THAT(read("6", "\xFF\xFF\xFF\xFFhi"sv, ""), HasSubstr("elements"));
  EXPECT_THAT(read("6", "\2\0\0\0\xC3\x28"sv, ""), HasSubstr("UTF-8"));
  EXPECT_THAT(read("-1", "", ""), HasSubstr("binary_data_size"));
  for (const char* length : {"-1", "1e3", "99999", "99999999999999999999999", " "}) {
    EXPECT_THAT(read("6", "\2\0\0\0hi"sv, length), HasSubstr("Inference-Header-Content-Length"));
  }
}

TEST(KserveHttp, AGenerateBodyIsInputsAndParameters) {
  Checked<InferRequest> read =
      ReadGenerateBody(R"({"text_input":"hi","stop":["a","b"],"top_k":3,"guided_regex":"x",)"
                       R"("parameters":{"max_tokens":4}})");
  ASSERT_TRUE(std::holds_alternative<InferRequest>(read));
  const InferRequest& request = std::get<InferRequest>(read);
  ASSERT_EQ(request.inputs.size(), 3u);
  EXPECT_EQ(request.inputs[1].values, Json::array({"a", "b"}));
  EXPECT_EQ(request.inputs[2].datatype, "INT32");
  EXPECT_EQ(request.parameters["guided_regex"], "x");
  EXPECT_EQ(request.parameters["max_tokens"], 4);
  read = ReadGenerateBody(R"({"text_input":5})");
  ASSERT_TRUE(std::holds_alternative<ApiError>(read));
  EXPECT_EQ(std::get<ApiError>(read).param, "text_input");
}

}  // namespace
}  // namespace staffel::api::kserve
