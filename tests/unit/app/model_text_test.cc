#include "app/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "app/apis.h"
#include "modelfile/open.h"
#include "server/http_router.h"
#include "tests/support/gguf_builder.h"

namespace staffel {
namespace {

using ::testing::Contains;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using testing::WriteFile;

TEST(ModelText, FactsOfTheFile) {
  GgufBuilder builder;
  builder.String("general.architecture", "llama").String("general.name", "A \"tiny\" one");
  builder.U32("llama.context_length", 2048).U32("llama.embedding_length", 64);
  builder.F32("llama.rope.freq_base", 10000).Bool("tokenizer.ggml.add_bos_token", false);
  builder.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b"});
  builder.Array("tokenizer.ggml.token_type", 5, std::vector<int32_t>(2, 1));
  builder.Strings("tokenizer.ggml.merges", {});
  builder.String("tokenizer.chat_template", "{{ messages[0].content }}");
  builder.Tensor("norm", {8}, 0, std::string(32, 'x'));
  builder.Tensor("weights", {32, 3}, 8, std::string(102, 'x'));
  const std::string path = ::testing::TempDir() + "/staffel-facts.gguf";
  WriteFile(path, builder.Build());
  const auto file = OpenModelFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const Result<ModelText> text = LoadModelText(**file, {});
  const Result<ModelText> told = LoadModelText(**file, {"", "mistral", "think", {}});
  std::remove(path.c_str());
  ASSERT_TRUE(text.ok()) << text.status();

  EXPECT_EQ(text->formats.calls, answer::CallFormat::kJson);
  EXPECT_EQ(text->formats.reasoning, answer::ReasoningFormat::kNone);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->formats.calls, answer::CallFormat::kMistral);
  EXPECT_EQ(told->formats.reasoning, answer::ReasoningFormat::kThink);

  const api::ModelFacts& facts = text->facts;
  EXPECT_EQ(facts.architecture, "llama");
  EXPECT_EQ(facts.weight_type, "Q8_0");
  EXPECT_EQ(facts.parameter_count, 8 + 96);
  EXPECT_EQ(facts.context_length, 2048);
  EXPECT_EQ(facts.embedding_length, 64);
  EXPECT_EQ(facts.file_bytes, (*file)->file_bytes());
  EXPECT_EQ(facts.digest.size(), 64u);
  EXPECT_EQ(facts.chat_template, "{{ messages[0].content }}");
  EXPECT_THAT(facts.metadata, Contains(Pair("general.name", R"("A \"tiny\" one")")));
  EXPECT_THAT(facts.metadata, Contains(Pair("llama.context_length", "2048")));
  EXPECT_THAT(facts.metadata, Contains(Pair("llama.rope.freq_base", "10000.0")));
  EXPECT_THAT(facts.metadata, Contains(Pair("tokenizer.ggml.add_bos_token", "false")));
  for (const auto& [key, value] : facts.metadata) {
    EXPECT_NE(key, "tokenizer.ggml.tokens") << "lists are left out";
    EXPECT_NE(key, "tokenizer.chat_template");
  }
}

// The text side of a file that has `pooling_type`, or none for -1.
Result<ModelText> WithPooling(int type, std::optional<Pooling> option = {}) {
  GgufBuilder builder;
  builder.String("general.architecture", "llama");
  if (type >= 0) builder.U32("llama.pooling_type", type);
  builder.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b"});
  builder.Array("tokenizer.ggml.token_type", 5, std::vector<int32_t>(2, 1));
  builder.Strings("tokenizer.ggml.merges", {});
  builder.Tensor("norm", {8}, 0, std::string(32, 'x'));
  const std::string path = ::testing::TempDir() + "/staffel-pooling.gguf";
  WriteFile(path, builder.Build());
  const auto file = OpenModelFile(path);
  std::remove(path.c_str());
  ModelTextOptions options;
  options.pooling = option;
  return LoadModelText(**file, options);
}

TEST(ModelText, PoolingIsTheFilesUnlessAnOptionSaysOtherwise) {
  EXPECT_EQ(WithPooling(-1)->pooling, Pooling::kLast);
  EXPECT_EQ(WithPooling(0)->pooling, Pooling::kLast);
  EXPECT_EQ(WithPooling(1)->pooling, Pooling::kMean);
  EXPECT_EQ(WithPooling(3)->pooling, Pooling::kLast);
  EXPECT_EQ(WithPooling(1, Pooling::kLast)->pooling, Pooling::kLast);
  EXPECT_EQ(WithPooling(2, Pooling::kMean)->pooling, Pooling::kMean);
  const ModelText unknown = *WithPooling(2);
  EXPECT_EQ(unknown.pooling, Pooling::kNone);
  EXPECT_THAT(unknown.embedding_problem, HasSubstr("llama.pooling_type is 2"));
}

TEST(ModelText, FormatsHaveNames) {
  EXPECT_TRUE(CheckCallFormat("auto").ok());
  EXPECT_TRUE(CheckCallFormat("deepseek-v3.1").ok());
  EXPECT_THAT(std::string(CheckCallFormat("pythonic").message()), HasSubstr("hermes, qwen-xml"));
  EXPECT_TRUE(CheckReasoningFormat("none").ok());
  EXPECT_THAT(std::string(CheckReasoningFormat("r1").message()), HasSubstr("think, granite"));
}

TEST(Apis, OnlyTheNamedOnesAreServed) {
  struct NoRunner final : TaskRunner {
    void Post(std::function<void()>) override {}
    void PostShort(std::function<void()>) override {}
    void WakeForShort() override {}
  } runner;
  api::Service service(&runner);
  RouteTable all, one;
  AddApis({}, service, all);
  AddApis({"anthropic"}, service, one);
  EXPECT_TRUE(all.Find("POST", "/v1/chat/completions").handler);
  EXPECT_TRUE(all.Find("POST", "/v1/messages").handler);
  EXPECT_FALSE(one.Find("POST", "/v1/chat/completions").handler);
  EXPECT_TRUE(one.Find("POST", "/v1/messages").handler);
  EXPECT_TRUE(one.Find("GET", "/openapi.json").handler);
  const HttpError error{.status = 404, .message = "none"};
  EXPECT_THAT(one.Find("GET", "/v1/messages/batches").error_shape(error),
              HasSubstr("not_found_error"));
  EXPECT_THAT(one.Find("GET", "/v1/other").error_shape(error), Not(HasSubstr("not_found_error")));
  EXPECT_TRUE(CheckApi("openai").ok());
  EXPECT_THAT(std::string(CheckApi("openapi").message()), HasSubstr("openai, anthropic"));
}

}  // namespace
}  // namespace staffel
