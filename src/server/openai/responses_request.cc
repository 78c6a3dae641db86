#include "server/openai/responses_request.h"

#include <string>
#include <utility>

#include "base/strings.h"
#include "server/api/generation_options.h"
#include "server/openai/fields.h"
#include "server/openai/responses_input.h"

namespace staffel::api::openai {
namespace {

// {"type": "function", "name", ...} → {"type": "function", "function": {"name", ...}}
void ReadTools(FieldReader& reader, ResponsesRequest& request) {
  const Json* tools = reader.Array("tools");
  if (tools == nullptr) return;
  request.echoed["tools"] = *tools;
  if (tools->empty()) return;
  Json& out = request.chat["tools"] = Json::array();
  for (size_t i = 0; i < tools->size(); i++) {
    const Json& tool = (*tools)[i];
    const std::string at = StrCat("tools[", i, "]");
    if (!tool.is_object() || tool.value("type", Json()) != "function") {
      return reader.Fail(at, StrCat("'", at,
                                    "' must have the type function: this server runs no "
                                    "tools of its own"));
    }
    if (!tool.contains("name") || !tool["name"].is_string())
      return reader.Fail(at, StrCat("'", at, ".name' must be a string"));
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (tool.contains(name) && !tool[name].is_null()) function[name] = tool[name];
    }
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

Json FunctionOf(const Json& choice) {
  return {{"type", "function"}, {"function", {{"name", choice.value("name", Json())}}}};
}

void ReadToolChoice(FieldReader& reader, ResponsesRequest& request) {
  const Json* choice = reader.Get("tool_choice");
  if (choice == nullptr) return;
  request.echoed["tool_choice"] = *choice;
  if (choice->is_string()) {
    request.chat["tool_choice"] = *choice;
    return;
  }
  const Json type = choice->is_object() ? choice->value("type", Json()) : Json();
  if (type == "function" && choice->value("name", Json()).is_string()) {
    request.chat["tool_choice"] = FunctionOf(*choice);
  } else if (type == "allowed_tools" && choice->value("tools", Json()).is_array()) {
    Json tools = Json::array();
    for (const Json& tool : (*choice)["tools"]) {
      if (!tool.is_object() || tool.value("type", Json()) != "function")
        return reader.Fail("tool_choice", "'tool_choice.tools' must be of the type function");
      tools.push_back(FunctionOf(tool));
    }
    request.chat["tool_choice"] = {
        {"type", "allowed_tools"},
        {"allowed_tools", {{"mode", choice->value("mode", Json("auto"))}, {"tools", tools}}}};
  } else {
    reader.Fail("tool_choice",
                "'tool_choice' must be none, auto, required, a function with a name, or "
                "allowed_tools with a list");
  }
}

void ReadText(FieldReader& reader, ResponsesRequest& request) {
  const Json* text = reader.Object("text");
  if (text == nullptr) return;
  const Json format = text->value("format", Json());
  if (format.is_null()) return;
  const Json type = format.is_object() ? format.value("type", Json()) : Json();
  request.echoed["text"]["format"] = format;
  if (type == "text" || type == "json_object") {
    request.chat["response_format"] = {{"type", type}};
  } else if (type == "json_schema" && format.contains("schema")) {
    Json schema = Json::object();
    for (const char* name : {"name", "description", "schema", "strict"}) {
      if (format.contains(name) && !format[name].is_null()) schema[name] = format[name];
    }
    request.chat["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  } else {
    reader.Fail("text.format",
                "'text.format' must have the type text, json_object, or json_schema with a schema");
  }
}

void ReadReasoning(FieldReader& reader, ResponsesRequest& request) {
  const Json* reasoning = reader.Object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader fields(*reasoning, "reasoning.");
  const auto effort = fields.String("effort");
  if (!fields.ok()) return reader.Fail("reasoning.effort", fields.error()->message);
  if (!effort) return;
  request.chat["reasoning_effort"] = *effort;
  request.echoed["reasoning"]["effort"] = *effort;
}

void ReadLogprobs(FieldReader& reader, ResponsesRequest& request) {
  const auto top = reader.Int("top_logprobs", 0, kTopLogprobsMax);
  const Json* include = reader.Array("include");
  bool asked = top.value_or(0) > 0;
  if (include != nullptr) {
    for (const Json& name : *include) asked = asked || name == "message.output_text.logprobs";
  }
  request.echoed["top_logprobs"] = top.value_or(0);
  if (!asked) return;
  request.logprobs = true;
  request.chat["logprobs"] = true;
  request.chat["top_logprobs"] = top.value_or(0);
}

void CopyFields(const Json& body, ResponsesRequest& request) {
  static constexpr std::pair<const char*, const char*> kSame[] = {
      {"model", "model"},
      {"max_output_tokens", "max_completion_tokens"},
      {"temperature", "temperature"},
      {"top_p", "top_p"},
      {"stream", "stream"},
      {"parallel_tool_calls", "parallel_tool_calls"},
      {"user", "user"}};
  for (const auto& [ours, chat] : kSame) {
    if (const auto value = body.find(ours); value != body.end()) request.chat[chat] = *value;
  }
  for (const char* name :
       {"instructions", "max_output_tokens", "max_tool_calls", "metadata", "temperature", "top_p",
        "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "user"}) {
    const auto value = body.find(name);
    if (value != body.end() && !value->is_null()) request.echoed[name] = *value;
  }
}

// What a response says of fields that the request leaves out.
Json Defaults() {
  return {{"background", false},
          {"instructions", nullptr},
          {"max_output_tokens", nullptr},
          {"max_tool_calls", nullptr},
          {"metadata", Json::object()},
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", 1.0},
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", "auto"},
          {"tools", Json::array()},
          {"top_logprobs", 0},
          {"top_p", 1.0},
          {"truncation", "disabled"},
          {"user", nullptr}};
}

}  // namespace

Checked<ResponsesRequest> ReadResponses(const Json& body) {
  FieldReader reader(body);
  ResponsesRequest request;
  request.chat = Json::object();
  request.echoed = Defaults();
  CopyFields(body, request);
  CheckFields(reader, ResponsesFields());
  Json& messages = request.chat["messages"] = Json::array();
  const auto instructions = reader.String("instructions");
  if (instructions) messages.push_back({{"role", "system"}, {"content", *instructions}});
  ReadResponsesInput(reader, messages);
  ReadTools(reader, request);
  ReadToolChoice(reader, request);
  ReadText(reader, request);
  ReadReasoning(reader, request);
  ReadLogprobs(reader, request);
  const auto truncation = reader.String("truncation").value_or("disabled");
  if (truncation != "disabled" && truncation != "auto")
    reader.Fail("truncation", "'truncation' must be disabled or auto");
  if (!reader.ok()) return *reader.error();
  return request;
}

}  // namespace staffel::api::openai
