#include "server/openai/responses_input.h"

#include <utility>

#include "base/strings.h"

namespace staffel::api::openai {
namespace {

class ItemReader {
 public:
  ItemReader(FieldReader& reader, Json& messages) : reader_(reader), messages_(messages) {}

  void Read(const Json& item, std::string at) {
    at_ = std::move(at);
    if (!item.is_object()) return Fail("", StrCat("must be an object, it is ", TypeName(item)));
    const Json type = item.value("type", Json("message"));
    if (type == "message") {
      Message(item);
    } else if (type == "function_call") {
      FunctionCall(item);
    } else if (type == "function_call_output") {
      FlushTurn();
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", StringOf(item, "call_id")},
                           {"content", Text(item.value("output", Json()), ".output")}});
    } else if (type == "reasoning") {
      Reasoning(item);
    } else if (type == "item_reference") {
      Fail(".type", "is item_reference: this server keeps no items; send the item itself");
    } else {
      Fail(".type", StrCat("is ", type.dump().substr(0, 60),
                           "; this server reads message, function_call, function_call_output and "
                           "reasoning"));
    }
  }

  void Finish() { FlushTurn(); }

 private:
  void Message(const Json& item) {
    const std::string role = StringOf(item, "role");
    std::string text = Text(item.value("content", Json()), ".content");
    if (role != "assistant") {
      FlushTurn();
      messages_.push_back({{"role", role}, {"content", std::move(text)}});
      return;
    }
    if (turn_.contains("content") || turn_.contains("tool_calls")) FlushTurn();
    turn_["content"] = std::move(text);
  }

  void FunctionCall(const Json& item) {
    Json call = {{"id", StringOf(item, "call_id")},
                 {"type", "function"},
                 {"function",
                  {{"name", StringOf(item, "name")}, {"arguments", StringOf(item, "arguments")}}}};
    turn_["tool_calls"].push_back(std::move(call));
  }

  void Reasoning(const Json& item) {
    if (turn_.contains("content") || turn_.contains("tool_calls")) FlushTurn();
    std::string text;
    for (const char* list : {"content", "summary"}) {
      const Json parts = item.value(list, Json());
      if (parts.is_array() && !parts.empty() && text.empty()) text = Text(parts, StrCat(".", list));
    }
    if (!text.empty()) turn_["reasoning_content"] = text;
  }

  void FlushTurn() {
    if (turn_.empty()) return;
    Json message = {{"role", "assistant"}, {"content", turn_.value("content", Json(""))}};
    for (const char* name : {"reasoning_content", "tool_calls"}) {
      if (turn_.contains(name)) message[name] = std::move(turn_[name]);
    }
    messages_.push_back(std::move(message));
    turn_ = Json::object();
  }

  std::string Text(const Json& content, const std::string& field) {
    if (content.is_string()) return content.get<std::string>();
    std::string text;
    if (!content.is_array()) {
      Fail(field, StrCat("must be a string or an array of parts, it is ", TypeName(content)));
      return text;
    }
    for (const Json& part : content) {
      const Json type = part.is_object() ? part.value("type", Json()) : Json();
      const char* name = type == "refusal" ? "refusal" : "text";
      const bool known = type == "input_text" || type == "output_text" || type == "text" ||
                         type == "reasoning_text" || type == "summary_text" || type == "refusal";
      if (!known || !part.contains(name) || !part[name].is_string()) {
        Fail(field, StrCat("holds a part of the type ", type.dump().substr(0, 60),
                           "; this server reads input_text and output_text"));
        return text;
      }
      text += part[name].get_ref<const std::string&>();
    }
    return text;
  }

  std::string StringOf(const Json& item, const char* name) {
    const auto value = item.find(name);
    if (value != item.end() && value->is_string()) return value->get<std::string>();
    Fail(StrCat(".", name), "must be a string");
    return "";
  }

  void Fail(const std::string& field, const std::string& what) {
    const std::string path = StrCat(at_, field);
    reader_.Fail(path, StrCat("'", path, "' ", what));
  }

  FieldReader& reader_;
  Json& messages_;
  std::string at_;
  Json turn_ = Json::object();  // of the assistant, not yet in messages_
};

}  // namespace

void ReadResponsesInput(FieldReader& reader, Json& messages) {
  const Json* input = reader.Get("input");
  if (input == nullptr)
    return reader.Fail("input", "'input' is missing; send a string or an array of items");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return;
  }
  if (!input->is_array())
    return reader.Fail("input",
                       StrCat("'input' must be a string or an array, it is ", TypeName(*input)));
  if (input->empty()) return reader.Fail("input", "'input' must hold one item at least");
  ItemReader items(reader, messages);
  for (size_t i = 0; i < input->size() && reader.ok(); i++)
    items.Read((*input)[i], StrCat("input[", i, "]"));
  items.Finish();
}

}  // namespace staffel::api::openai
