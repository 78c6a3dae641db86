#include "server/api/chat_messages.h"

#include <utility>

#include "base/strings.h"

namespace staffel::api {
namespace {

bool IsRole(std::string_view role) {
  for (std::string_view known : {"system", "developer", "user", "assistant", "tool", "function"}) {
    if (role == known) return true;
  }
  return false;
}

// Reads one message; `at` is "messages[3]".
class MessageReader {
 public:
  MessageReader(FieldReader& reader, std::string at) : reader_(reader), at_(std::move(at)) {}

  Json Read(const Json& message, bool keep_content_parts) {
    if (!message.is_object())
      return Fail("", StrCat("must be an object, it is ", TypeName(message)));
    auto role = message.find("role");
    if (role == message.end() || !role->is_string())
      return Fail(".role", "must be a string: system, user, assistant or tool");
    std::string name = role->get<std::string>();
    if (!IsRole(name)) {
      return Fail(".role",
                  StrCat("is '", name.substr(0, 40),
                         "'; it must be system, developer, user, assistant, tool or function"));
    }
    Json out = Json::object();
    out["role"] = name == "developer" ? "system" : name;
    bool has_calls = false;
    for (const auto& [key, value] : message.items()) {
      if (key == "role" || value.is_null()) continue;
      if (key == "content") {
        out["content"] = Content(value, keep_content_parts);
      } else if (key == "tool_calls") {
        CheckToolCalls(value);
        has_calls = value.is_array() && !value.empty();
        if (has_calls) out["tool_calls"] = value;
      } else if (key == "name" || key == "tool_call_id" || key == "reasoning_content" ||
                 key == "reasoning" || key == "refusal") {
        if (!value.is_string())
          return Fail(StrCat(".", key), StrCat("must be a string, it is ", TypeName(value)));
        out[key] = value;
      } else {
        out[key] = value;  // templates of some families read further fields
      }
    }
    ReadReasoning(message, has_calls, out);
    if (!out.contains("content") && name != "assistant")
      return Fail(".content", "is missing; give the text of the message");
    if (!out.contains("content") && !has_calls) out["content"] = "";
    return out;
  }

 private:
  Json Fail(std::string_view field, std::string_view what) {
    std::string path = StrCat(at_, field);
    reader_.Fail(path, StrCat("'", path, "' ", what));
    return Json();
  }

  // Templates read it as reasoning_content, GPT-OSS's as thinking; newer clients send `reasoning`.
  // GPT-OSS takes calls with content or with thinking, not with both.
  void ReadReasoning(const Json& message, bool has_calls, Json& out) {
    if (out.contains("reasoning") && !out.contains("reasoning_content"))
      out["reasoning_content"] = out["reasoning"];
    const bool both =
        has_calls && out.contains("content") && !out["content"].empty() && out["content"] != "";
    if (out.contains("reasoning_content") && !message.contains("thinking") && !both)
      out["thinking"] = out["reasoning_content"];
  }

  Json Content(const Json& content, bool keep_content_parts) {
    if (content.is_string()) {
      if (!keep_content_parts) return content;
      return Json::array({Json{{"type", "text"}, {"text", content}}});
    }
    if (!content.is_array())
      return Fail(".content",
                  StrCat("must be a string or an array of parts, it is ", TypeName(content)));
    if (content.empty()) return Fail(".content", "has no parts; give at least one text part");
    std::string joined;
    Json parts = Json::array();
    for (size_t i = 0; i < content.size(); i++) {
      std::string field = StrCat(".content[", i, "]");
      const Json& part = content[i];
      if (!part.is_object())
        return Fail(field, StrCat("must be an object with 'type', it is ", TypeName(part)));
      auto type = part.find("type");
      if (type == part.end() || !type->is_string())
        return Fail(StrCat(field, ".type"), "must be a string, for example 'text'");
      const auto& kind = type->get_ref<const std::string&>();
      const char* key = kind == "refusal" ? "refusal" : "text";
      if (kind != "text" && kind != "refusal" && kind != "input_text" && kind != "output_text") {
        return Fail(StrCat(field, ".type"),
                    StrCat("is '", kind.substr(0, 40), "', but this model reads text only"));
      }
      auto text = part.find(key);
      if (text == part.end() || !text->is_string())
        return Fail(StrCat(field, ".", key), "must be a string");
      joined += text->get_ref<const std::string&>();
      parts.push_back(Json{{"type", "text"}, {"text", *text}});
    }
    return keep_content_parts ? parts : Json(std::move(joined));
  }

  void CheckToolCalls(const Json& calls) {
    if (!calls.is_array()) {
      Fail(".tool_calls", StrCat("must be an array, it is ", TypeName(calls)));
      return;
    }
    for (size_t i = 0; i < calls.size(); i++) {
      std::string field = StrCat(".tool_calls[", i, "]");
      auto function = calls[i].is_object() ? calls[i].find("function") : calls[i].end();
      bool well_formed = calls[i].is_object() && function != calls[i].end() &&
                         function->is_object() && function->contains("name") &&
                         (*function)["name"].is_string();
      if (!well_formed) {
        Fail(field, "must be an object with 'function': {'name', 'arguments'}");
        return;
      }
      auto arguments = function->find("arguments");
      if (arguments != function->end() && !arguments->is_string() && !arguments->is_object() &&
          !arguments->is_null()) {
        Fail(StrCat(field, ".function.arguments"), "must be a string of JSON");
        return;
      }
    }
  }

  FieldReader& reader_;
  std::string at_;
};

void ReadTools(FieldReader& reader, ChatInput& input) {
  input.tool_choice = ReadToolChoice(reader);
  for (const char* old : {"functions", "function_call"}) {
    if (reader.Get(old) != nullptr)
      reader.Fail(old,
                  StrCat("'", old, "' is the deprecated form; send 'tools' and 'tool_choice'"));
  }
}

}  // namespace

ChatInput ReadChatInput(FieldReader& reader, bool keep_content_parts) {
  ChatInput input;
  const Json* messages = reader.Array("messages");
  if (messages == nullptr || messages->empty()) {
    reader.Fail("messages", "'messages' must be an array with at least one message");
    return input;
  }
  if (messages->size() > kMessagesMax) {
    reader.Fail("messages", StrCat("'messages' may hold at most ", kMessagesMax, " messages"));
    return input;
  }
  for (size_t i = 0; i < messages->size() && reader.ok(); i++) {
    input.messages.push_back(MessageReader(reader, StrCat("messages[", i, "]"))
                                 .Read((*messages)[i], keep_content_parts));
  }
  ReadTools(reader, input);
  if (const Json* kwargs = reader.Object("chat_template_kwargs")) input.template_kwargs = *kwargs;
  input.continue_final_message = reader.Bool("continue_final_message").value_or(false);
  std::optional<bool> add = reader.Bool("add_generation_prompt");
  input.add_generation_prompt = add.value_or(!input.continue_final_message);
  if (input.continue_final_message && input.add_generation_prompt) {
    reader.Fail(
        "continue_final_message",
        "'continue_final_message' and 'add_generation_prompt' exclude each other; set one of them");
  }
  return input;
}

}  // namespace staffel::api
