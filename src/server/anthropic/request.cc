#include "server/anthropic/request.h"

#include <utility>

#include "base/strings.h"
#include "server/anthropic/fields.h"

namespace staffel::api::anthropic {
namespace {

// Reads content blocks; `at` is the path of the content, for errors.
class BlockReader {
 public:
  BlockReader(FieldReader& reader, std::string at) : reader_(reader), at_(std::move(at)) {}

  // The text of a string or of text blocks, joined as they are.
  std::string Text(const Json& content) {
    if (content.is_string()) return content.get<std::string>();
    std::string text;
    ForEach(content, [&](const Json& block, const std::string& type, const std::string& path) {
      if (type != "text") return Fail(path, StrCat("has the type '", type, "'; only text is read"));
      text += StringOf(block, "text", path);
    });
    return text;
  }

  // One user message becomes results of tools and messages of text, in their order.
  void User(const Json& content, Json& messages) {
    if (content.is_string()) return Add(messages, "user", content.get<std::string>());
    std::string text;
    bool any = false;
    ForEach(content, [&](const Json& block, const std::string& type, const std::string& path) {
      if (type == "text") {
        text += StringOf(block, "text", path);
        any = true;
      } else if (type == "tool_result") {
        if (any) Add(messages, "user", std::exchange(text, ""));
        any = false;
        messages.push_back(ToolResult(block, path));
      } else {
        Fail(path, StrCat("has the type '", type.substr(0, 40),
                          "'; this server reads text and tool_result from users"));
      }
    });
    if (any || content.empty()) Add(messages, "user", std::move(text));
  }

  void Assistant(const Json& content, Json& messages) {
    if (content.is_string()) return Add(messages, "assistant", content.get<std::string>());
    std::string text, reasoning;
    Json calls = Json::array();
    ForEach(content, [&](const Json& block, const std::string& type, const std::string& path) {
      if (type == "text") {
        text += StringOf(block, "text", path);
      } else if (type == "thinking") {
        reasoning += StringOf(block, "thinking", path);
      } else if (type == "tool_use") {
        calls.push_back(ToolUse(block, path));
      } else if (type != "redacted_thinking") {
        Fail(path, StrCat("has the type '", type.substr(0, 40),
                          "'; this server reads text, thinking and tool_use from the assistant"));
      }
    });
    Json message = {{"role", "assistant"}, {"content", text}};
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    messages.push_back(std::move(message));
  }

 private:
  template <class Take>
  void ForEach(const Json& content, const Take& take) {
    if (!content.is_array()) {
      return Fail(at_, StrCat("must be a string or an array of blocks, it is ", TypeName(content)));
    }
    for (size_t i = 0; i < content.size() && reader_.ok(); i++) {
      const std::string path = StrCat(at_, "[", i, "]");
      const Json& block = content[i];
      if (!block.is_object() || !block.contains("type") || !block["type"].is_string())
        return Fail(path, "must be an object with a type");
      take(block, block["type"].get<std::string>(), path);
    }
  }

  Json ToolResult(const Json& block, const std::string& path) {
    Json message = {{"role", "tool"}, {"tool_call_id", StringOf(block, "tool_use_id", path)}};
    const auto content = block.find("content");
    const bool present = content != block.end() && !content->is_null();
    message["content"] =
        present ? BlockReader(reader_, StrCat(path, ".content")).Text(*content) : std::string();
    return message;
  }

  Json ToolUse(const Json& block, const std::string& path) {
    const auto input = block.find("input");
    if (input == block.end() || !input->is_object()) {
      Fail(StrCat(path, ".input"), "must be an object");
      return Json();
    }
    return {{"id", StringOf(block, "id", path)},
            {"type", "function"},
            {"function", {{"name", StringOf(block, "name", path)}, {"arguments", input->dump()}}}};
  }

  std::string StringOf(const Json& block, const char* name, const std::string& path) {
    const auto value = block.find(name);
    if (value != block.end() && value->is_string()) return value->get<std::string>();
    Fail(StrCat(path, ".", name), "must be a string");
    return "";
  }

  static void Add(Json& messages, const char* role, std::string text) {
    messages.push_back({{"role", role}, {"content", std::move(text)}});
  }

  void Fail(const std::string& path, const std::string& what) {
    reader_.Fail(path, StrCat("'", path, "' ", what));
  }

  FieldReader& reader_;
  const std::string at_;
};

void ReadConversation(FieldReader& reader, Json& chat) {
  Json& messages = chat["messages"] = Json::array();
  if (const Json* system = reader.Get("system")) {
    const std::string text = BlockReader(reader, "system").Text(*system);
    if (!text.empty()) messages.push_back({{"role", "system"}, {"content", text}});
  }
  const Json* given = reader.Array("messages");
  if (given == nullptr || given->empty())
    return reader.Fail("messages", "'messages' must hold one message at least");
  for (size_t i = 0; i < given->size() && reader.ok(); i++) {
    const Json& message = (*given)[i];
    const std::string at = StrCat("messages[", i, "]");
    if (!message.is_object() || !message.contains("content"))
      return reader.Fail(at, StrCat("'", at, "' must be an object with role and content"));
    const Json role = message.value("role", Json());
    BlockReader blocks(reader, StrCat(at, ".content"));
    if (role == "user") {
      blocks.User(message["content"], messages);
    } else if (role == "assistant") {
      blocks.Assistant(message["content"], messages);
    } else if (role == "system") {
      messages.push_back({{"role", "system"}, {"content", blocks.Text(message["content"])}});
    } else {
      const std::string path = StrCat(at, ".role");
      return reader.Fail(path, StrCat("'", path, "' must be user or assistant"));
    }
  }
  if (!reader.ok()) return;
  const Json& last = messages.back();
  if (last["role"] == "assistant" && !last.contains("tool_calls")) {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
}

void ReadTools(FieldReader& reader, Json& chat) {
  const Json* tools = reader.Array("tools");
  if (tools == nullptr || tools->empty()) return;
  Json& out = chat["tools"] = Json::array();
  for (size_t i = 0; i < tools->size(); i++) {
    const Json& tool = (*tools)[i];
    const std::string at = StrCat("tools[", i, "]");
    if (!tool.is_object()) return reader.Fail(at, StrCat("'", at, "' must be an object"));
    const Json type = tool.value("type", Json("custom"));
    if (!type.is_null() && type != "custom") {
      return reader.Fail(at, StrCat("'", at, ".type' is ", type.dump().substr(0, 60),
                                    ": tools that the provider runs do not exist here; give "
                                    "name and input_schema"));
    }
    if (!tool.contains("name") || !tool["name"].is_string() || !tool.contains("input_schema") ||
        !tool["input_schema"].is_object()) {
      return reader.Fail(at, StrCat("'", at, "' must have a name and an input_schema"));
    }
    Json function = {{"name", tool["name"]}};
    if (tool.contains("description")) function["description"] = tool["description"];
    function["parameters"] = tool["input_schema"];
    if (tool.contains("strict")) function["strict"] = tool["strict"];
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

void ReadToolChoice(FieldReader& reader, Json& chat) {
  const Json* choice = reader.Object("tool_choice");
  if (choice == nullptr) return;
  const Json type = choice->value("type", Json());
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    const Json name = choice->value("name", Json());
    if (!name.is_string())
      return reader.Fail("tool_choice", "'tool_choice' of the type tool must have a name");
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  } else {
    return reader.Fail("tool_choice", "'tool_choice.type' must be auto, any, tool or none");
  }
  const Json single = choice->value("disable_parallel_tool_use", Json());
  if (single.is_null()) return;
  if (!single.is_boolean()) {
    return reader.Fail("tool_choice",
                       "'tool_choice.disable_parallel_tool_use' must be true or false");
  }
  chat["parallel_tool_calls"] = !single.get<bool>();
}

void ReadThinking(FieldReader& reader, Json& chat) {
  const Json* thinking = reader.Object("thinking");
  if (thinking == nullptr) return;
  const Json type = thinking->value("type", Json());
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    return reader.Fail("thinking", "'thinking.type' must be enabled, adaptive or disabled");
  FieldReader fields(*thinking, "thinking.");
  fields.Int("budget_tokens", 1, INT32_MAX);
  if (!fields.ok()) return reader.Fail("thinking", fields.error()->message);
  chat["thinking"] = *thinking;
}

void SetFormat(FieldReader& reader, const char* field, const Json& format, Json& chat) {
  if (!format.is_object() || format.value("type", Json()) != "json_schema" ||
      !format.contains("schema")) {
    return reader.Fail(field, StrCat("'", field, "' must have the type json_schema and a schema"));
  }
  chat["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "output"}, {"schema", format["schema"]}, {"strict", true}}}};
}

void ReadOutput(FieldReader& reader, Json& chat) {
  if (const Json* format = reader.Get("output_format"))
    SetFormat(reader, "output_format", *format, chat);
  const Json* config = reader.Object("output_config");
  if (config == nullptr) return;
  if (config->contains("format") && !(*config)["format"].is_null())
    SetFormat(reader, "output_config.format", (*config)["format"], chat);
  FieldReader fields(*config, "output_config.");
  const auto effort = fields.String("effort");
  if (!fields.ok()) return reader.Fail("output_config", fields.error()->message);
  if (effort) chat["reasoning_effort"] = *effort == "max" ? "xhigh" : *effort;
}

constexpr ClientName kSame[] = {
    {"model", "model"},   {"max_tokens", "max_tokens"},   {"stop", "stop_sequences"},
    {"stream", "stream"}, {"temperature", "temperature"}, {"top_p", "top_p"},
    {"top_k", "top_k"}};

}  // namespace

Checked<Json> ReadMessages(const Json& body, bool max_tokens_required) {
  FieldReader reader(body);
  Json chat = Json::object();
  CopyFields(body, kSame, chat);
  if (max_tokens_required && reader.Get("max_tokens") == nullptr)
    reader.Fail("max_tokens", "'max_tokens' is missing; say how long the answer may be");
  CheckFields(reader, MessagesFields());
  if (max_tokens_required) CheckFields(reader, MaxTokensField());
  ReadConversation(reader, chat);
  ReadTools(reader, chat);
  ReadToolChoice(reader, chat);
  ReadThinking(reader, chat);
  ReadOutput(reader, chat);
  if (!reader.ok()) return *reader.error();
  return chat;
}

}  // namespace staffel::api::anthropic
