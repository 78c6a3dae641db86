#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/responses_request.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api::openai {
namespace {

using ::testing::ElementsAre;

Json Read(const std::string& members) {
  Checked<ResponsesRequest> read = ReadResponses(Json::parse("{" + members + "}"));
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return Json();
  }
  return std::get<ResponsesRequest>(read).chat;
}

std::string Refused(const std::string& members) {
  Checked<ResponsesRequest> read = ReadResponses(Json::parse("{" + members + "}"));
  auto* error = std::get_if<ApiError>(&read);
  return error == nullptr ? "accepted" : error->param.value_or("");
}

TEST(ResponsesRequest, AStringAndInstructions) {
  EXPECT_EQ(Read(R"("input":"hi","instructions":"be brief","max_output_tokens":7)"),
            Json::parse(R"({"max_completion_tokens":7,"messages":[
                {"role":"system","content":"be brief"},{"role":"user","content":"hi"}]})"));
}

TEST(ResponsesRequest, ItemsOfOneTurnBecomeOneMessage) {
  const Json chat = Read(R"("input":[
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
      {"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
      {"type":"function_call_output","call_id":"c1","output":"1"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},
      {"type":"message","role":"assistant","content":"x"},
      {"type":"message","role":"assistant","content":"y"}])");
  EXPECT_EQ(chat["messages"], Json::parse(R"([{"role":"user","content":"ab"},
      {"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},
        {"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"1"},
      {"role":"tool","tool_call_id":"c2","content":"2"},
      {"role":"assistant","content":"x"},{"role":"assistant","content":"y"}])"));
}

TEST(ResponsesRequest, ToolsFormatAndReasoning) {
  const Json chat = Read(R"("input":"hi","tools":[{"type":"function","name":"f","strict":true,
        "parameters":{"type":"object"},"description":null}],
      "tool_choice":{"type":"function","name":"f"},"reasoning":{"effort":"low"},
      "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"null"}}},
      "top_logprobs":2)");
  EXPECT_EQ(chat["tools"], Json::parse(R"([{"type":"function","function":{"name":"f",
                                           "parameters":{"type":"object"},"strict":true}}])"));
  EXPECT_EQ(chat["tool_choice"], Json::parse(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_EQ(chat["reasoning_effort"], "low");
  EXPECT_EQ(chat["response_format"]["json_schema"]["schema"]["type"], "null");
  EXPECT_EQ(chat["top_logprobs"], 2);
  EXPECT_EQ(chat["logprobs"], true);
}

TEST(ResponsesRequest, WhatNeedsMemoryOrOtherToolsIsRefused) {
  EXPECT_EQ(Refused(R"("instructions":"x")"), "input");
  EXPECT_EQ(Refused(R"("input":[])"), "input");
  EXPECT_EQ(Refused(R"("input":5)"), "input");
  EXPECT_EQ(Refused(R"("input":"a","previous_response_id":"resp_1")"), "previous_response_id");
  EXPECT_EQ(Refused(R"("input":"a","conversation":"c")"), "conversation");
  EXPECT_EQ(Refused(R"("input":"a","background":true)"), "background");
  EXPECT_EQ(Refused(R"("input":"a","tools":[{"type":"web_search"}])"), "tools[0]");
  EXPECT_EQ(Refused(R"("input":[{"type":"item_reference","id":"x"}])"), "input[0].type");
  EXPECT_EQ(Refused(R"("input":[{"role":"user","content":[{"type":"input_image"}]}])"),
            "input[0].content");
  EXPECT_EQ(Refused(R"("input":"a","truncation":"some")"), "truncation");
  EXPECT_EQ(Refused(R"("input":"a","background":false,"store":true,"previous_response_id":null)"),
            "accepted");
}

TEST(Responses, AWholeResponse) {
  ApiWorld world;
  auto writer = world.Post("/v1/responses", R"({"input":"hi","metadata":{"k":"v"}})");
  world.engine->Say("Hey", FinishReason::kStop);
  const auto json = writer->json();
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "Hey");
  EXPECT_EQ(json["output"][0]["status"], "completed");
  EXPECT_EQ(json["metadata"]["k"], "v");
  EXPECT_EQ(json["store"], false);
  EXPECT_EQ(json["usage"]["output_tokens"], 3);
}

TEST(Responses, EventsOfAStream) {
  ApiWorld world;
  auto writer = world.Post("/v1/responses", R"({"input":"hi","stream":true,"top_logprobs":1})");
  world.engine->Say("He");
  world.engine->Say("y", FinishReason::kLength);
  EXPECT_THAT(writer->event_names,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done", "response.output_item.done",
                          "response.incomplete"));
  for (size_t i = 0; i < writer->events.size(); i++) {
    const auto event = writer->event(static_cast<int>(i));
    EXPECT_EQ(event["type"], writer->event_names[i]);
    EXPECT_EQ(event["sequence_number"], i);
  }
  EXPECT_EQ(writer->event(4)["delta"], "He");
  EXPECT_EQ(writer->event(4)["logprobs"].size(), 2u);
  EXPECT_EQ(writer->event(4)["logprobs"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(writer->event(6)["text"], "Hey");
  EXPECT_EQ(writer->event(-1)["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(writer->event(-1)["response"]["output"][0]["content"][0]["text"], "Hey");
  EXPECT_TRUE(writer->ended);
}

TEST(Responses, ErrorsNameItsOwnFields) {
  ApiWorld world;
  EXPECT_EQ(world.Post("/v1/responses", R"({"input":"a","max_output_tokens":0})")->error_param(),
            "max_output_tokens");
  EXPECT_EQ(world.Post("/v1/responses", R"({"input":"a","temperature":9})")->error_param(),
            "temperature");
}

TEST(Responses, AFailureWithinAStreamIsTheLastEvent) {
  ApiWorld world;
  auto writer = world.Post("/v1/responses", R"({"input":"hi","stream":true})");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.finish = FinishReason::kError;
  event.error = absl::InternalError("broken");
  world.engine->Send(event);
  EXPECT_EQ(writer->event_names.back(), "response.failed");
  EXPECT_EQ(writer->event(-1)["response"]["error"]["code"], "server_error");
  EXPECT_TRUE(writer->ended);
}

}  // namespace
}  // namespace staffel::api::openai
