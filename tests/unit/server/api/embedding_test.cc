// Embeddings: what the engine is asked for, and one answer whatever becomes of the inputs.
#include "server/api/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/escaping.h"
#include "base/strings.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct World : ApiWorld {
  std::shared_ptr<RecordingWriter> Embed(const std::string& members) {
    return Post("/v1/embeddings", "{" + members + "}");
  }
  // Of the request that was submitted as number `which`.
  std::string Prompt(int which) const {
    return model->tokenizer->Decode(engine->requests.at(which).prompt, true);
  }
};

std::vector<double> Vector(const RecordingWriter& writer, int index = 0) {
  return writer.json()["data"][index]["embedding"].get<std::vector<double>>();
}

TEST(Embeddings, AreUnitVectorsInTheOrderOfInputs) {
  World world;
  auto writer = world.Embed(R"("input":["ab","c"])");
  ASSERT_EQ(world.engine->requests.size(), 2u);
  const GenerateRequest& request = world.engine->requests[0];
  EXPECT_EQ(request.pooling, Pooling::kLast);
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_EQ(request.n, 1);
  world.engine->Embed({0, -2}, 1);
  EXPECT_EQ(writer->answers, 0);
  world.engine->Embed({3, 4}, 0);
  ASSERT_EQ(writer->status, 200);
  EXPECT_EQ(writer->answers, 1);
  EXPECT_EQ(writer->body,
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.6,0.8]},)"
            R"({"object":"embedding","index":1,"embedding":[0.0,-1.0]}],"model":"tiny",)"
            R"("usage":{"prompt_tokens":3,"total_tokens":3}})");
}

TEST(Embeddings, DimensionsAreCutBeforeTheLengthIsMadeOne) {
  World world;
  world.model->facts.embedding_length = 3;
  auto writer = world.Embed(R"("input":"a","dimensions":2)");
  world.engine->Embed({3, 4, 100});
  EXPECT_THAT(Vector(*writer), ElementsAre(0.6, 0.8));
  auto raw = world.Embed(R"("input":"a","dimensions":2,"normalize":false)");
  world.engine->Embed({3, 4, 100}, 1);
  EXPECT_THAT(Vector(*raw), ElementsAre(3, 4));
  EXPECT_EQ(world.Embed(R"("input":"a","dimensions":4)")->error_param(), "dimensions");
}

TEST(Embeddings, AVectorOfZerosStays) {
  World world;
  auto writer = world.Embed(R"("input":"a")");
  world.engine->Embed({0, 0});
  EXPECT_THAT(Vector(*writer), ElementsAre(0, 0));
}

TEST(Embeddings, Base64IsLittleEndianFloats) {
  World world;
  auto writer = world.Embed(R"("input":"a","encoding_format":"base64","normalize":false)");
  world.engine->Embed({1.0f, -0.5f});
  std::string bytes;
  ASSERT_TRUE(
      absl::Base64Unescape(writer->json()["data"][0]["embedding"].get<std::string>(), &bytes));
  EXPECT_EQ(bytes, std::string("\x00\x00\x80\x3f\x00\x00\x00\xbf", 8));
}

TEST(Embeddings, FormsOfInput) {
  World world;
  world.Embed(R"("input":[104,105])");
  EXPECT_EQ(world.Prompt(0), "hi");
  world.Embed(R"("input":[[104],[105,106]])");
  EXPECT_EQ(world.Prompt(2), "ij");
  // Text never becomes control tokens; ids may be any.
  world.Embed(R"("input":"<|end|>")");
  EXPECT_EQ(world.engine->requests[3].prompt.size(), 7u);
  for (const char* input :
       {R"("")", "[]", R"(["a",""])", "[[]]", "null", "7", "[1.5]", "[300]", R"([{"text":"a"}])"}) {
    const size_t before = world.engine->requests.size();
    auto writer = world.Embed(StrCat(R"("input":)", input));
    EXPECT_EQ(writer->status, 400) << input;
    EXPECT_EQ(writer->error_param(), "input") << input;
    EXPECT_EQ(world.engine->requests.size(), before) << input;
  }
}

TEST(Embeddings, LongInputsAreRefusedOrCut) {
  World world;  // whose KV cache holds 96 tokens
  const std::string text = std::string(90, 'a') + std::string(90, 'b');
  auto writer = world.Embed(StrCat(R"("input":["a",")", text, R"("])"));
  EXPECT_EQ(writer->status, 400);
  EXPECT_EQ(writer->json()["error"]["code"], "context_length_exceeded");
  EXPECT_TRUE(world.engine->requests.empty());
  world.Embed(StrCat(R"("truncate":true,"input":")", text, "\""));
  EXPECT_EQ(world.Prompt(0), std::string(90, 'a') + "bbbbbb");
  world.Embed(StrCat(R"("truncate_prompt_tokens":-1,"input":")", text, "\""));
  EXPECT_EQ(world.Prompt(1), "aaaaaa" + std::string(90, 'b'));
  world.Embed(StrCat(R"("truncate_prompt_tokens":2,"input":")", text, "\""));
  EXPECT_EQ(world.Prompt(2), "bb");
}

TEST(Embeddings, TheLastTokenOfTheModelIsPutBehindText) {
  World world;
  auto tokenizer = std::make_shared<ByteTokenizer>();
  tokenizer->mutable_spec().add_eos = true;
  tokenizer->mutable_spec().eos = ByteTokenizer::kEnd;
  world.model->tokenizer = tokenizer;
  world.Embed(R"("input":"ab")");
  EXPECT_EQ(world.Prompt(0), "ab<|end|>");
  world.Embed(StrCat(R"("truncate":true,"input":")", std::string(200, 'a'), "\""));
  EXPECT_EQ(world.engine->requests[1].prompt.size(), 96u);
  EXPECT_EQ(world.engine->requests[1].prompt.back(), ByteTokenizer::kEnd);
  world.Embed(R"("input":"ab","add_special_tokens":false)");
  EXPECT_EQ(world.Prompt(2), "ab");
  world.Embed(R"("input":[104])");
  EXPECT_EQ(world.Prompt(3), "h");
}

TEST(Embeddings, ManyInputsComeInPortions) {
  World world;  // which runs 2 sequences
  std::string inputs;
  for (int i = 0; i < 10; i++) StrAppend(inputs, i > 0 ? "," : "", "\"", i, "\"");
  auto writer = world.Embed("\"input\":[" + inputs + "]");
  EXPECT_EQ(world.engine->requests.size(), 4u);
  for (int i = 0; i < 10; i++) {
    EXPECT_EQ(writer->answers, 0);
    world.engine->Embed({static_cast<float>(i + 1), 0}, i);
    EXPECT_EQ(world.engine->requests.size(), std::min<size_t>(10, 5 + i));
  }
  ASSERT_EQ(writer->status, 200);
  EXPECT_EQ(writer->json()["data"].size(), 10u);
  EXPECT_EQ(world.Prompt(9), "9");
}

TEST(Embeddings, AFullQueueRefusesOnlyWhoHasNothingInIt) {
  World world;
  world.engine->submit_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(world.Embed(R"("input":"a")")->status, 429);
  world.engine->refuse_after = 1;
  auto writer = world.Embed(R"("input":["a","b"])");
  ASSERT_EQ(world.engine->requests.size(), 1u);
  EXPECT_EQ(writer->answers, 0);
  world.engine->submit_status = absl::OkStatus();
  world.engine->Embed({1}, 0);
  ASSERT_EQ(world.engine->requests.size(), 2u);
  world.engine->Embed({1}, 1);
  EXPECT_EQ(writer->status, 200);
}

TEST(Embeddings, AnErrorEndsAllInputsOnce) {
  World world;
  auto writer = world.Embed(R"("input":["a","b","c"])");
  SeqEvent event;
  event.request = world.engine->requests[1].id;
  event.finish = FinishReason::kError;
  event.error = absl::UnavailableError("the worker died");
  world.engine->Send(event);
  EXPECT_EQ(writer->status, 503);
  EXPECT_EQ(world.engine->cancelled.size(), 3u);
  world.engine->Embed({1}, 0);
  EXPECT_EQ(writer->answers, 1);
}

TEST(Embeddings, WhatIsNoNumberIsOurFault) {
  World world;
  auto writer = world.Embed(R"("input":"a")");
  world.engine->Embed({1, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(writer->status, 500);
}

TEST(Embeddings, AClientThatGoesAwayCancels) {
  World world;
  std::string inputs = R"("a","b","c","d","e")";
  auto writer = world.Embed("\"input\":[" + inputs + "]");
  ASSERT_EQ(world.engine->requests.size(), 4u);
  writer->disconnect();
  EXPECT_EQ(world.engine->cancelled.size(), 5u);
  SeqEvent event;
  event.finish = FinishReason::kCancelled;
  for (int i = 0; i < 4; i++) {
    event.request = world.engine->requests[i].id;
    world.engine->Send(event);
  }
  EXPECT_EQ(world.engine->requests.size(), 4u);
  EXPECT_EQ(writer->answers, 1);
}

TEST(Embeddings, AModelWithoutThemSaysWhy) {
  World world;
  world.model->pooling = Pooling::kNone;
  world.model->embedding_problem = "llama.pooling_type is 2";
  auto writer = world.Embed(R"("input":"a")");
  EXPECT_EQ(writer->status, 501);
  EXPECT_THAT(writer->body, HasSubstr("llama.pooling_type is 2"));
  world.model->pooling = Pooling::kMean;
  world.Embed(R"("input":"a")");
  EXPECT_EQ(world.engine->requests[0].pooling, Pooling::kMean);
}

TEST(Embeddings, InLlamaServersForm) {
  World world;
  auto writer = world.Post("/embedding", R"({"content":"a"})");
  world.engine->Embed({3, 4}, 0);
  EXPECT_EQ(writer->body, R"([{"index":0,"embedding":[[0.6,0.8]]}])");
  auto raw = world.Post("/embeddings", R"({"input":["a"],"embd_normalize":-1})");
  world.engine->Embed({3, 4}, 1);
  EXPECT_EQ(raw->body, R"([{"index":0,"embedding":[[3.0,4.0]]}])");
  auto wrong = world.Post("/embedding", R"({"content":""})");
  EXPECT_EQ(wrong->status, 400);
  EXPECT_THAT(wrong->body, HasSubstr("'content'"));
  EXPECT_EQ(world.Post("/embedding", R"({"content":"a","embd_normalize":0})")->status, 400);
}

TEST(Embeddings, InOllamasForm) {
  World world;
  auto writer = world.Post("/api/embed", R"({"model":"tiny:latest","input":["ab","c"]})");
  world.engine->Embed({3, 4}, 0);
  world.engine->Embed({2, 0}, 1);
  const auto json = writer->json();
  EXPECT_EQ(json["model"], "tiny:latest");
  EXPECT_EQ(json["embeddings"].dump(), "[[0.6,0.8],[1.0,0.0]]");
  EXPECT_EQ(json["prompt_eval_count"], 3);
  EXPECT_GE(json["total_duration"].get<int64_t>(), 0);

  auto earlier = world.Post("/api/embeddings", R"({"prompt":"a"})");
  world.engine->Embed({3, 4}, 2);
  EXPECT_EQ(earlier->body, R"({"embedding":[3.0,4.0]})");
}

TEST(Embeddings, OllamaCutsLongTextsAndAnswersNoneWithNone) {
  World world;
  world.Post("/api/embed", StrCat(R"({"input":")", std::string(200, 'a'), R"("})"));
  EXPECT_EQ(world.engine->requests.at(0).prompt.size(), 96u);
  auto refused = world.Post(
      "/api/embed", StrCat(R"({"truncate":false,"input":")", std::string(200, 'a'), R"("})"));
  EXPECT_EQ(refused->status, 400);
  for (const char* body : {"{}", R"({"input":""})", R"({"input":[]})"})
    EXPECT_EQ(world.Post("/api/embed", body)->json()["embeddings"].dump(), "[]") << body;
  EXPECT_EQ(world.Post("/api/embeddings", "{}")->body, R"({"embedding":[]})");
  EXPECT_EQ(world.engine->requests.size(), 1u);
}

}  // namespace
}  // namespace staffel::api
