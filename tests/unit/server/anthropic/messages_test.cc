#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<RecordingWriter> Ask(ApiWorld& world, const std::string& members = "") {
  return world.Post("/v1/messages",
                    R"({"max_tokens":20,"messages":[{"role":"user","content":"hi"}])" +
                        (members.empty() ? "" : "," + members) + "}");
}

TEST(Messages, AWholeMessage) {
  ApiWorld world;
  world.engine->cached_tokens = 4;
  auto writer = Ask(world);
  world.engine->Say("Hello", FinishReason::kStop);
  const auto json = writer->json();
  EXPECT_EQ(writer->status, 200);
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["content"].dump(), R"([{"type":"text","text":"Hello"}])");
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_TRUE(json["stop_sequence"].is_null());
  const int prompt = static_cast<int>(world.engine->requests[0].prompt.size());
  EXPECT_EQ(json["usage"]["input_tokens"], prompt - 4);
  EXPECT_EQ(json["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(json["usage"]["output_tokens"], 5);
}

TEST(Messages, ReasonsToStop) {
  ApiWorld world;
  auto cut = Ask(world);
  world.engine->Say("ab", FinishReason::kLength);
  EXPECT_EQ(cut->json()["stop_reason"], "max_tokens");
  auto stopped = Ask(world, R"("stop_sequences":["no","END"])");
  world.engine->Say("abEND", std::nullopt, 1);
  EXPECT_EQ(stopped->json()["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped->json()["stop_sequence"], "END");
  EXPECT_EQ(stopped->json()["content"][0]["text"], "ab");
}

TEST(Messages, EventsOfAStream) {
  ApiWorld world;
  auto writer = Ask(world, R"("stream":true)");
  world.engine->Say("He");
  world.engine->Say("y", FinishReason::kStop);
  EXPECT_THAT(
      writer->event_names,
      ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  for (size_t i = 0; i < writer->events.size(); i++) {
    EXPECT_EQ(writer->event(static_cast<int>(i))["type"], writer->event_names[i]);
  }
  EXPECT_EQ(writer->event(0)["message"]["usage"]["input_tokens"],
            world.engine->requests[0].prompt.size());
  EXPECT_EQ(writer->event(3)["delta"].dump(), R"({"type":"text_delta","text":"He"})");
  EXPECT_EQ(writer->event(-2)["delta"]["stop_reason"], "end_turn");
  EXPECT_EQ(writer->event(-2)["usage"]["output_tokens"], 3);
  EXPECT_TRUE(writer->ended);
  EXPECT_EQ(writer->answers, 1);
}

TEST(Messages, ErrorsHaveAnthropicsShape) {
  ApiWorld world;
  auto writer = Ask(world, R"("temperature":"hot")");
  EXPECT_EQ(writer->status, 400);
  EXPECT_EQ(writer->json()["type"], "error");
  EXPECT_EQ(writer->json()["error"]["type"], "invalid_request_error");
  auto unknown = Ask(world, R"("model":"other")");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_EQ(unknown->json()["error"]["type"], "not_found_error");
  const auto sequences = Ask(world, R"("stop_sequences":[""])")->json();
  EXPECT_NE(sequences["error"]["message"].get<std::string>().find("'stop_sequences'"),
            std::string::npos);
  world.engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  EXPECT_EQ(Ask(world)->json()["error"]["type"], "rate_limit_error");
}

TEST(Messages, AFailureWithinAStreamIsAnErrorEvent) {
  ApiWorld world;
  auto writer = Ask(world, R"("stream":true)");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.finish = FinishReason::kError;
  event.error = absl::InternalError("broken");
  world.engine->Send(event);
  EXPECT_EQ(writer->event_names.back(), "error");
  EXPECT_EQ(writer->event(-1)["error"]["type"], "api_error");
  EXPECT_TRUE(writer->ended);
}

TEST(Messages, TokensAreCountedWithoutAnAnswer) {
  ApiWorld world;
  auto writer =
      world.Post("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(writer->status, 200);
  EXPECT_TRUE(world.engine->requests.empty());
  Ask(world);
  EXPECT_EQ(writer->json()["input_tokens"], world.engine->requests[0].prompt.size());
}

}  // namespace
}  // namespace staffel::api
