#include "server/anthropic/request.h"

#include <gtest/gtest.h>

#include <string>

namespace staffel::api::anthropic {
namespace {

Json Read(const std::string& members) {
  Checked<Json> read = ReadMessages(Json::parse("{\"max_tokens\":5," + members + "}"), true);
  EXPECT_TRUE(std::holds_alternative<Json>(read)) << std::get<ApiError>(read).message;
  return std::holds_alternative<Json>(read) ? std::get<Json>(read) : Json();
}

std::string Refused(const std::string& members) {
  Checked<Json> read = ReadMessages(Json::parse("{" + members + "}"), true);
  if (std::holds_alternative<Json>(read)) return "accepted";
  EXPECT_EQ(std::get<ApiError>(read).status, 400);
  return std::get<ApiError>(read).param.value_or("");
}

constexpr char kHi[] = R"("messages":[{"role":"user","content":"hi"}])";

TEST(MessagesRequest, SystemAndBlocksBecomeMessages) {
  const Json chat = Read(R"("system":[{"type":"text","text":"Be "},{"type":"text","text":"brief"}],
      "messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},
                                            {"type":"text","text":"b"}]}])");
  EXPECT_EQ(chat["messages"], Json::parse(R"([{"role":"system","content":"Be brief"},
                                              {"role":"user","content":"ab"}])"));
  EXPECT_EQ(chat["max_tokens"], 5);
  EXPECT_FALSE(chat.contains("continue_final_message"));
}

TEST(MessagesRequest, ToolUseAndResults) {
  const Json chat = Read(R"("messages":[
      {"role":"user","content":"weather?"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
        {"type":"text","text":"one moment"},
        {"type":"tool_use","id":"t1","name":"get","input":{"city":"Rome"}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1",
        "content":[{"type":"text","text":"sunny"}]},{"type":"text","text":"and?"}]}])");
  EXPECT_EQ(chat["messages"], Json::parse(R"([{"role":"user","content":"weather?"},
      {"role":"assistant","content":"one moment","reasoning_content":"hm","tool_calls":
        [{"id":"t1","type":"function","function":{"name":"get","arguments":"{\"city\":\"Rome\"}"}}]},
      {"role":"tool","tool_call_id":"t1","content":"sunny"},
      {"role":"user","content":"and?"}])"));
}

TEST(MessagesRequest, AnAssistantAtTheEndIsContinued) {
  const Json chat = Read(R"("messages":[{"role":"user","content":"hi"},
                                        {"role":"assistant","content":"The"}])");
  EXPECT_EQ(chat["continue_final_message"], true);
  EXPECT_EQ(chat["add_generation_prompt"], false);
}

TEST(MessagesRequest, ToolsAndChoices) {
  const std::string tools =
      std::string(kHi) +
      R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}])";
  EXPECT_EQ(Read(tools)["tools"],
            Json::parse(R"([{"type":"function","function":{"name":"f","description":"d",
                             "parameters":{"type":"object"}}}])"));
  EXPECT_EQ(Read(tools + R"(,"tool_choice":{"type":"any"})")["tool_choice"], "required");
  EXPECT_EQ(Read(tools + R"(,"tool_choice":{"type":"none"})")["tool_choice"], "none");
  const Json named =
      Read(tools + R"(,"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true})");
  EXPECT_EQ(named["tool_choice"], Json::parse(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_EQ(named["parallel_tool_calls"], false);
}

TEST(MessagesRequest, OtherNames) {
  const Json chat = Read(std::string(kHi) + R"(,"stop_sequences":["x"],"temperature":0.5,"top_k":3,
      "thinking":{"type":"enabled","budget_tokens":64},"metadata":{"user_id":"u"},
      "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"null"}}})");
  EXPECT_EQ(chat["stop"], Json::array({"x"}));
  EXPECT_EQ(chat["top_k"], 3);
  EXPECT_EQ(chat["thinking"]["budget_tokens"], 64);
  EXPECT_EQ(chat["reasoning_effort"], "low");
  EXPECT_EQ(chat["response_format"]["json_schema"]["schema"]["type"], "null");
}

TEST(MessagesRequest, RefusalsNameTheField) {
  const std::string tail = std::string(kHi) + ",\"max_tokens\":5,";
  EXPECT_EQ(Refused(kHi), "max_tokens");
  EXPECT_EQ(Refused(R"("max_tokens":5,"messages":[])"), "messages");
  EXPECT_EQ(Refused(R"("max_tokens":5,"messages":[{"role":"robot","content":""}])"),
            "messages[0].role");
  EXPECT_EQ(Refused(R"("max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}])"),
            "messages[0].content[0]");
  EXPECT_EQ(Refused(R"("max_tokens":5,"messages":[{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(Refused(R"("max_tokens":5,"messages":[{"role":"user","content":5}])"),
            "messages[0].content");
  EXPECT_EQ(Refused(tail + R"("tools":[{"type":"web_search_20250305","name":"web_search"}])"),
            "tools[0]");
  EXPECT_EQ(Refused(tail + R"("tool_choice":{"type":"some"})"), "tool_choice");
  EXPECT_EQ(Refused(tail + R"("thinking":{"type":"maybe"})"), "thinking");
  EXPECT_EQ(Refused(tail + R"("mcp_servers":[{"url":"x"}])"), "mcp_servers");
  EXPECT_EQ(Refused(tail + R"("output_config":{"format":{"type":"yaml"}})"),
            "output_config.format");
}

}  // namespace
}  // namespace staffel::api::anthropic
