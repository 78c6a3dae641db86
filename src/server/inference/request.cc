#include "server/inference/request.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "server/api/chat_messages.h"
#include "server/api/generation_options.h"
#include "server/grpc/message.h"

namespace staffel::api::inference {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kToolsMax = 65'536;
constexpr int kIdsMax = 1'000'000;  // of a list that is no prompt

// Reads the fields of one message that have OpenAI's names into an object; the first error is kept.
class Reader {
 public:
  // `path` is put before names in errors.
  explicit Reader(std::string path = "") : path_(std::move(path)) {}

  // Scalars and lists of them, where they are set. Messages within are the caller's.
  Json Scalars(const Message& message) {
    Json out = Json::object();
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->type() == FieldDescriptor::TYPE_MESSAGE) continue;
      if (field->is_repeated()
              ? field->cpp_type() == FieldDescriptor::CPPTYPE_STRING || CountFits(message, *field)
              : true) {
        out[field->name()] = field->is_repeated() ? List(message, *field) : One(message, *field);
      }
    }
    return out;
  }

  void Fail(std::string_view name, std::string_view what) {
    if (error_) return;
    const std::string field = StrCat(path_, name);
    error_ = Invalid(field, StrCat("'", field, "' ", what));
  }
  void Keep(const std::optional<ApiError>& error) {
    if (!error_) error_ = error;
  }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  bool CountFits(const Message& message, const FieldDescriptor& field) {
    if (message.GetReflection()->FieldSize(message, &field) <= kIdsMax) return true;
    Fail(field.name(), StrCat("may hold at most ", kIdsMax, " numbers"));
    return false;
  }

  Json One(const Message& message, const FieldDescriptor& field) {
    const Reflection& read = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return read.GetBool(message, &field);
      case FieldDescriptor::CPPTYPE_INT32:
        return read.GetInt32(message, &field);
      case FieldDescriptor::CPPTYPE_INT64:
        return read.GetInt64(message, &field);
      case FieldDescriptor::CPPTYPE_FLOAT: {
        const float value = read.GetFloat(message, &field);
        if (!std::isfinite(value)) Fail(field.name(), "must be a finite number");
        return WidenFloat(value);
      }
      default:
        return read.GetString(message, &field);
    }
  }

  static Json List(const Message& message, const FieldDescriptor& field) {
    const Reflection& read = *message.GetReflection();
    Json out = Json::array();
    for (int i = 0; i < read.FieldSize(message, &field); i++) {
      field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32
          ? out.push_back(read.GetRepeatedUInt32(message, &field, i))
          : out.push_back(read.GetRepeatedString(message, &field, i));
    }
    return out;
  }

  const std::string path_;
  std::optional<ApiError> error_;
};

Json OutputsJson(const v1::StructuredOutputs& outputs) {
  Json out = Json::object();
  switch (outputs.format_case()) {
    case v1::StructuredOutputs::kJson:
      out["json"] = outputs.json();
      break;
    case v1::StructuredOutputs::kRegex:
      out["regex"] = outputs.regex();
      break;
    case v1::StructuredOutputs::kGrammar:
      out["grammar"] = outputs.grammar();
      break;
    case v1::StructuredOutputs::kChoice:
      out["choice"] = Json::array();
      for (const std::string& value : outputs.choice().values()) out["choice"].push_back(value);
      break;
    case v1::StructuredOutputs::kJsonObject:
      out["json_object"] = outputs.json_object();
      break;
    case v1::StructuredOutputs::FORMAT_NOT_SET:
      break;
  }
  return out;
}

// `logprobs` is a number for completions; chats have `logprobs` and `top_logprobs`.
std::optional<ApiError> AddSampling(const v1::SamplingParams& sampling, bool chat, Json& out) {
  Reader reader("sampling.");
  const Json scalars = reader.Scalars(sampling);
  if (reader.error()) return reader.error();
  for (const auto& [name, value] : scalars.items()) out[name] = value;
  if (chat && sampling.has_logprobs()) {
    out["logprobs"] = true;
    out["top_logprobs"] = sampling.logprobs();
  }
  if (!sampling.logit_bias().empty()) {
    if (sampling.logit_bias().size() > kIdsMax)
      reader.Fail("logit_bias", StrCat("may hold at most ", kIdsMax, " tokens"));
    // Keys differ already; the object itself would compare each with all before it.
    Json::object_t bias;
    for (const auto& [token, value] : sampling.logit_bias()) {
      if (!std::isfinite(value)) reader.Fail("logit_bias", "must have finite numbers as values");
      bias.emplace_back(std::to_string(token), WidenFloat(value));
    }
    out["logit_bias"] = std::move(bias);
  }
  if (sampling.has_structured_outputs())
    out["structured_outputs"] = OutputsJson(sampling.structured_outputs());
  return reader.error();
}

Json MessageJson(const v1::ChatMessage& message, Reader& reader) {
  Json out = reader.Scalars(message);
  if (!out.contains("role")) reader.Fail("role", "is missing: system, user, assistant or tool");
  for (const v1::ToolCall& call : message.tool_calls()) {
    Json function{{"name", call.name()}, {"arguments", call.arguments()}};
    Json entry{{"type", "function"}, {"function", std::move(function)}};
    if (!call.id().empty()) entry["id"] = call.id();
    out["tool_calls"].push_back(std::move(entry));
  }
  return out;
}

Json ToolJson(const v1::Tool& tool, Reader& reader) {
  Json function{{"name", tool.name()}};
  if (tool.name().empty()) reader.Fail("name", "is missing");
  if (!tool.description().empty()) function["description"] = tool.description();
  if (!tool.parameters().empty()) {
    Checked<Json> parameters = ParseBody(tool.parameters());
    if (const auto* error = std::get_if<ApiError>(&parameters)) {
      reader.Fail("parameters", StrCat("must be the text of a JSON Schema: ", error->message));
    } else {
      function["parameters"] = std::get<Json>(std::move(parameters));
    }
  }
  if (tool.has_strict()) function["strict"] = tool.strict();
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

Json FunctionJson(const std::string& name) {
  return Json{{"type", "function"}, {"function", {{"name", name}}}};
}

Json ModeJson(v1::ToolChoice::Mode mode, Reader& reader) {
  switch (mode) {
    case v1::ToolChoice::MODE_UNSPECIFIED:
    case v1::ToolChoice::MODE_AUTO:
      return "auto";
    case v1::ToolChoice::MODE_NONE:
      return "none";
    case v1::ToolChoice::MODE_REQUIRED:
      return "required";
    default:
      reader.Fail("tool_choice", StrCat("has the unknown mode ", static_cast<int>(mode)));
      return "auto";
  }
}

void AddToolChoice(const v1::ToolChoice& choice, Reader& reader, Json& out) {
  switch (choice.choice_case()) {
    case v1::ToolChoice::kMode:
      if (choice.mode() != v1::ToolChoice::MODE_UNSPECIFIED)
        out["tool_choice"] = ModeJson(choice.mode(), reader);
      break;
    case v1::ToolChoice::kFunction:
      out["tool_choice"] = FunctionJson(choice.function());
      break;
    case v1::ToolChoice::kAllowed: {
      Json tools = Json::array();
      for (const std::string& name : choice.allowed().functions())
        tools.push_back(FunctionJson(name));
      Json allowed{{"mode", ModeJson(choice.allowed().mode(), reader)}, {"tools", tools}};
      out["tool_choice"] = Json{{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
      break;
    }
    case v1::ToolChoice::CHOICE_NOT_SET:
      break;
  }
}

// What Chat and Tokenize read alike.
template <class Chat>
std::optional<ApiError> AddChat(const Chat& chat, const std::string& path, Json& out) {
  Reader reader(path);
  if (chat.messages_size() > kMessagesMax) {
    reader.Fail("messages", StrCat("may hold at most ", kMessagesMax, " messages"));
  } else if (chat.tools_size() > kToolsMax) {
    reader.Fail("tools", StrCat("may hold at most ", kToolsMax, " tools"));
  }
  if (reader.error()) return reader.error();
  out["messages"] = Json::array();
  for (int i = 0; i < chat.messages_size(); i++) {
    Reader inner(StrCat(path, "messages[", i, "]."));
    out["messages"].push_back(MessageJson(chat.messages(i), inner));
    if (inner.error()) return inner.error();
  }
  for (int i = 0; i < chat.tools_size(); i++) {
    Reader inner(StrCat(path, "tools[", i, "]."));
    out["tools"].push_back(ToolJson(chat.tools(i), inner));
    if (inner.error()) return inner.error();
  }
  if (!chat.chat_template_kwargs().empty()) {
    Checked<Json> kwargs = ParseBody(chat.chat_template_kwargs());
    if (const auto* error = std::get_if<ApiError>(&kwargs)) {
      reader.Fail("chat_template_kwargs",
                  StrCat("must be the text of a JSON object: ", error->message));
      return reader.error();
    }
    out["chat_template_kwargs"] = std::get<Json>(std::move(kwargs));
  }
  return std::nullopt;
}

bool IsSampling(std::string_view name) {
  return v1::SamplingParams::descriptor()->FindFieldByName(std::string(name)) != nullptr;
}

// Puts `to` in the place of the field `from`, in the param and where the message quotes it.
ApiError Renamed(ApiError error, std::string_view from, std::string_view to) {
  if (!error.param || !error.param->starts_with(from)) return error;
  error.param->replace(0, from.size(), to);
  for (size_t at = 0; (at = error.message.find(StrCat("'", from), at)) != std::string::npos;) {
    const size_t end = at + 1 + from.size();
    const bool whole = end < error.message.size() &&
                       std::string_view("'.[").find(error.message[end]) != std::string_view::npos;
    if (whole) error.message.replace(at + 1, from.size(), to);
    at = end;
  }
  return error;
}

ApiError WithSamplingNames(ApiError error) {
  if (!error.param) return error;
  if (*error.param == "top_logprobs")
    return Renamed(std::move(error), "top_logprobs", "sampling.logprobs");
  const std::string head = error.param->substr(0, error.param->find_first_of(".["));
  if (!IsSampling(head)) return error;
  return Renamed(std::move(error), head, StrCat("sampling.", head));
}

}  // namespace

Checked<Json> ToJson(const v1::GenerateRequest& request) {
  Reader reader;
  Json out = Json::object();
  out["stream"] = request.has_stream() ? request.stream() : true;
  if (request.has_echo()) out["echo"] = request.echo();
  if (request.has_best_of()) out["best_of"] = request.best_of();
  if (!request.suffix().empty()) out["suffix"] = request.suffix();
  if (request.prompt_case() == v1::GenerateRequest::kText) {
    out["prompt"] = request.text();
  } else if (request.prompt_case() == v1::GenerateRequest::kTokenIds) {
    out["prompt"] = Json::array();
    auto& ids = out["prompt"].get_ref<Json::array_t&>();
    ids.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
  } else {
    return Invalid("text", "there is no prompt; send 'text' or 'token_ids'");
  }
  if (auto error = AddSampling(request.sampling(), /*chat=*/false, out)) return *error;
  return out;
}

Checked<Json> ToJson(const v1::ChatRequest& request) {
  Reader reader;
  Json out = reader.Scalars(request);
  out.erase("model");
  out["stream"] = request.has_stream() ? request.stream() : true;
  if (auto error = AddChat(request, "", out)) return *error;
  AddToolChoice(request.tool_choice(), reader, out);
  if (reader.error()) return *reader.error();
  if (auto error = AddSampling(request.sampling(), /*chat=*/true, out)) return *error;
  return out;
}

Checked<Json> ToJson(const v1::EmbedRequest& request) {
  if (request.input().empty() == request.token_ids().empty())
    return Invalid("input", "send either 'input' or 'token_ids', with one entry at least");
  Reader reader;
  Json out = reader.Scalars(request);
  out.erase("model");
  if (reader.error()) return *reader.error();
  for (const v1::TokenIds& ids : request.token_ids())
    out["input"].push_back(Json::array_t(ids.ids().begin(), ids.ids().end()));
  return out;
}

Checked<Json> ToJson(const v1::TokenizeRequest::Chat& chat) {
  Reader reader("chat.");
  Json out = reader.Scalars(chat);
  if (auto error = AddChat(chat, "chat.", out)) return *error;
  return out;
}

ApiError WithFieldNames(ApiError error, const v1::GenerateRequest& request) {
  const bool text = request.prompt_case() != v1::GenerateRequest::kTokenIds;
  return WithSamplingNames(Renamed(std::move(error), "prompt", text ? "text" : "token_ids"));
}

ApiError WithFieldNames(ApiError error, const v1::ChatRequest&) {
  return WithSamplingNames(std::move(error));
}

ApiError WithFieldNames(ApiError error, const v1::EmbedRequest& request) {
  return request.input().empty() ? Renamed(std::move(error), "input", "token_ids") : error;
}

ApiError WithFieldNames(ApiError error, const v1::TokenizeRequest&) {
  if (!error.param || *error.param == "model") return error;
  const std::string head = error.param->substr(0, error.param->find_first_of(".["));
  return Renamed(std::move(error), head, StrCat("chat.", head));
}

}  // namespace staffel::api::inference
