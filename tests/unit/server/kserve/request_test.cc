#include "server/kserve/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace staffel::api::kserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Text(std::string name, std::vector<std::string> values) {
  return {.name = std::move(name), .datatype = "BYTES", .values = Json(std::move(values))};
}
Tensor Value(std::string name, std::string type, Json value) {
  return {.name = std::move(name), .datatype = std::move(type), .values = Json::array({value})};
}

InferRequest Prompt() {
  InferRequest request;
  request.inputs.push_back(Text("text_input", {"hi"}));
  return request;
}

Completion Read(const InferRequest& request) {
  Checked<Completion> read = ReadInfer(request);
  if (const auto* error = std::get_if<ApiError>(&read)) ADD_FAILURE() << error->message;
  return std::holds_alternative<Completion>(read) ? std::get<Completion>(read) : Completion();
}

TEST(KserveRequest, InputsAreFieldsOfTheCore) {
  InferRequest request = Prompt();
  request.inputs.push_back(Value("max_tokens", "INT32", 7));
  request.inputs.push_back(Value("temperature", "FP32", 0.5));
  request.inputs.push_back(Value("random_seed", "UINT64", UINT64_MAX));
  request.inputs.push_back(Text("stop_words", {"a", "", "b"}));
  request.inputs.push_back(Text("bad_words", {""}));
  request.inputs.push_back(Value("end_id", "INT32", 2));
  request.inputs.push_back(Value("beam_width", "INT32", 1));
  request.inputs.push_back(Value("exclude_input_in_output", "BOOL", false));
  request.parameters = {
      {"top_k", 5}, {"priority", 0}, {"triton_enable_empty_final_response", true}};
  EXPECT_EQ(Read(request).body, (Json{{"prompt", "hi"},
                                      {"max_tokens", 7},
                                      {"temperature", 0.5},
                                      {"seed", -1},
                                      {"stop", {"a", "b"}},
                                      {"bad_words", Json::array()},
                                      {"echo", true},
                                      {"top_k", 5}}));
}

TEST(KserveRequest, SamplingParametersAreJson) {
  InferRequest request = Prompt();
  request.inputs.push_back(
      Text("sampling_parameters", {R"({"temperature": 0, "guided_regex": "a+", "stop": ["x"]})"}));
  request.inputs.push_back(Value("max_tokens", "INT32", 7));
  const Json body = Read(request).body;
  EXPECT_EQ(body["temperature"], 0);
  EXPECT_EQ(body["guided_regex"], "a+");
  EXPECT_EQ(body["stop"], Json::array({"x"}));
  EXPECT_EQ(body["max_tokens"], 7);
}

TEST(KserveRequest, OutputsAreThoseThatWereAskedFor) {
  InferRequest request = Prompt();
  EXPECT_THAT(Read(request).outputs, ElementsAre("text_output"));
  request.inputs.push_back(Value("return_finish_reason", "BOOL", true));
  request.inputs.push_back(Value("return_num_output_tokens", "BOOL", false));
  EXPECT_THAT(Read(request).outputs, ElementsAre("text_output", "finish_reason"));
  EXPECT_FALSE(Read(request).body.contains("logprobs"));
  request.outputs = {"cumulative_logprob", "num_input_tokens"};
  EXPECT_THAT(Read(request).outputs,
              ElementsAre("finish_reason", "cumulative_logprob", "num_input_tokens"));
  EXPECT_EQ(Read(request).body["logprobs"], 0);
}

TEST(KserveRequest, WhatIsWrongIsNamed) {
  struct Case {
    const char* param;
    const char* says;
    std::function<void(InferRequest&)> spoil;
  };
  const Case cases[] = {
      {"text_input", "missing", [](auto& r) { r.inputs.clear(); }},
      {"text_input", "one element, it has 2",
       [](auto& r) {
         r.inputs[0].values = Json::array({"a", "b"});
       }},
      {"text_input", "one element, it has 0", [](auto& r) { r.inputs[0].values = Json::array(); }},
      {"text_input", "type BYTES, it is INT32", [](auto& r) { r.inputs[0].datatype = "INT32"; }},
      {"text_input", "twice", [](auto& r) { r.inputs.push_back(r.inputs[0]); }},
      {"image", "no input 'image'", [](auto& r) { r.inputs.push_back(Text("image", {"x"})); }},
      {"stop_words", "two names",
       [](auto& r) {
         r.inputs.push_back(Text("stop", {"a"}));
         r.inputs.push_back(Text("stop_words", {"a"}));
       }},
      {"beam_width", "no beam search",
       [](auto& r) { r.inputs.push_back(Value("beam_width", "INT32", 4)); }},
      {"sampling_parameters", "JSON object",
       [](auto& r) { r.inputs.push_back(Text("sampling_parameters", {"{\"a\":"})); }},
      {"return_finish_reason", "true or false",
       [](auto& r) { r.parameters["return_finish_reason"] = 1; }},
      {"logits", "no output 'logits'", [](auto& r) { r.outputs = {"logits"}; }},
  };
  for (const Case& wrong : cases) {
    InferRequest request = Prompt();
    wrong.spoil(request);
    Checked<Completion> read = ReadInfer(request);
    ASSERT_TRUE(std::holds_alternative<ApiError>(read)) << wrong.says;
    const ApiError& error = std::get<ApiError>(read);
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, wrong.param);
    EXPECT_THAT(error.message, HasSubstr(wrong.says));
  }
}

TEST(KserveRequest, MetadataHasEveryTensor) {
  EXPECT_EQ(Inputs().front().name, "text_input");
  EXPECT_EQ(Outputs().front().name, "text_output");
  for (const TensorInfo& info : Inputs()) EXPECT_TRUE(info.shape == 1 || info.shape == -1);
}

}  // namespace
}  // namespace staffel::api::kserve
