#include "server/ollama/request.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "server/api/embedding_request.h"
#include "server/api/fields.h"
#include "server/api/generation_request.h"
#include "server/api/prompts.h"
#include "server/ollama/fields.h"

namespace staffel::api::ollama {
namespace {

constexpr ClientName kOptionNames[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"stop", "stop"},
    {"repetition_penalty", "repeat_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
};

// For errors.
constexpr ClientName kNames[] = {
    {"temperature", "options.temperature"},
    {"top_k", "options.top_k"},
    {"top_p", "options.top_p"},
    {"min_p", "options.min_p"},
    {"seed", "options.seed"},
    {"stop", "options.stop"},
    {"max_tokens", "options.num_predict"},
    {"repetition_penalty", "options.repeat_penalty"},
    {"presence_penalty", "options.presence_penalty"},
    {"frequency_penalty", "options.frequency_penalty"},
    {"response_format", "format"},
    {"reasoning_effort", "think"},
};

constexpr std::string_view kLatest = ":latest";

// Ollama's own defaults; clients that send no value expect them.
Json Defaults() { return {{"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.9}, {"stream", true}}; }

void ReadOptions(FieldReader& reader, Json& fields) {
  const Json* options = reader.Object("options");
  if (options == nullptr || !reader.ok()) return;
  CopyFields(*options, kOptionNames, fields);
  FieldReader option(*options, "options.");
  const int64_t count = option.Int("num_predict", INT32_MIN, INT32_MAX).value_or(-1);
  if (count > 0) fields["max_tokens"] = count;
  const int64_t seed = option.Int("seed", -1, INT64_MAX).value_or(-1);
  if (seed >= 0) fields["seed"] = seed;
  if (option.Int("repeat_last_n", -1, INT32_MAX) == 0) {
    for (const char* penalty : {"presence_penalty", "frequency_penalty"}) fields[penalty] = 0.0;
    fields["repetition_penalty"] = 1.0;
  }
}

void ReadFormat(FieldReader& reader, Json& fields) {
  const Json* format = reader.Get("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    fields["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    fields["response_format"] = {{"type", "json_schema"},
                                 {"json_schema", {{"name", "format"}, {"schema", *format}}}};
  } else {
    reader.Fail("format", "'format' must be \"json\" or a JSON Schema");
  }
}

void ReadThink(FieldReader& reader, Json& fields) {
  const Json* think = reader.Get("think");
  if (think == nullptr) return;
  if (!think->is_boolean() && *think != "low" && *think != "medium" && *think != "high")
    return reader.Fail("think", "'think' must be true, false, \"low\", \"medium\" or \"high\"");
  const bool on = !think->is_boolean() || think->get<bool>();
  fields["chat_template_kwargs"] = {{"enable_thinking", on}};
  if (think->is_string()) fields["reasoning_effort"] = *think;
}

// What both routes have.
void ReadShared(FieldReader& reader, Json& fields) {
  CheckFields(reader, SharedFields());
  if (const auto stream = reader.Bool("stream")) fields["stream"] = *stream;
  ReadOptions(reader, fields);
  ReadFormat(reader, fields);
}

void ReadLogprobs(FieldReader& reader, bool chat, Json& fields) {
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  const auto top = reader.Int("top_logprobs", 0, kTopLogprobsMax);
  if (top.value_or(0) > 0 && !logprobs)
    return reader.Fail("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true");
  if (!logprobs) return;
  if (chat) {
    fields["logprobs"] = true;
    fields["top_logprobs"] = top.value_or(0);
  } else {
    fields["logprobs"] = top.value_or(0);
  }
}

// Ollama's messages have calls without ids, and results that name the function.
class Conversation {
 public:
  explicit Conversation(FieldReader& reader) : reader_(reader) {}

  void Add(const Json& message, size_t index) {
    const std::string at = StrCat("messages[", index, "]");
    if (!message.is_object())
      return reader_.Fail(at, StrCat("'", at, "' must be an object, it is ", TypeName(message)));
    Json out = {{"role", message.value("role", Json())},
                {"content", message.value("content", Json())}};
    if (out["content"].is_null()) out["content"] = "";
    const Json images = message.value("images", Json());
    if (!images.is_null() && !images.empty()) {
      const std::string path = StrCat(at, ".images");
      return reader_.Fail(path, StrCat("'", path, "' is not supported: this model reads text"));
    }
    const Json thinking = message.value("thinking", Json());
    if (thinking.is_string() && thinking != "") out["reasoning_content"] = thinking;
    if (const auto calls = message.find("tool_calls"); calls != message.end() && !calls->is_null())
      AddCalls(*calls, StrCat(at, ".tool_calls"), out);
    if (out["role"] == "tool") AddResult(message, out);
    messages_.push_back(std::move(out));
  }

  Json messages() && { return std::move(messages_); }

 private:
  void AddCalls(const Json& calls, const std::string& path, Json& out) {
    if (!calls.is_array())
      return reader_.Fail(path, StrCat("'", path, "' must be an array, it is ", TypeName(calls)));
    for (const Json& call : calls) {
      const auto function = call.is_object() ? call.find("function") : call.end();
      if (!call.is_object() || function == call.end() || !function->is_object() ||
          !function->contains("name") || !(*function)["name"].is_string()) {
        return reader_.Fail(path,
                            StrCat("'", path, "' must hold function with name and arguments"));
      }
      const Json arguments = function->value("arguments", Json::object());
      const Json given = call.value("id", Json());
      const std::string id =
          given.is_string() ? given.get<std::string>() : StrCat("call_", ++calls_);
      const Json& name = (*function)["name"];
      out["tool_calls"].push_back(
          {{"id", id},
           {"type", "function"},
           {"function", {{"name", name}, {"arguments", arguments.dump()}}}});
      open_.push_back({id, name.get<std::string>()});
    }
  }

  // The result of the first open call of that name, or of the first open one.
  void AddResult(const Json& message, Json& out) {
    Json name = message.value("tool_name", Json());
    if (name.is_null()) name = message.value("name", Json());
    if (name.is_string()) out["name"] = name;
    const Json id = message.value("tool_call_id", Json());
    auto call = std::find_if(open_.begin(), open_.end(), [&](const auto& open) {
      return id.is_string() ? id == open.first : name == open.second;
    });
    if (call == open_.end() && !id.is_string()) call = open_.begin();
    if (id.is_string()) {
      out["tool_call_id"] = id;
    } else if (call != open_.end()) {
      out["tool_call_id"] = call->first;
    }
    if (call != open_.end()) open_.erase(call);
  }

  FieldReader& reader_;
  Json messages_ = Json::array();
  int calls_ = 0;
  std::vector<std::pair<std::string, std::string>> open_;  // calls without a result: id, name
};

Checked<GenerationSpec> ReadAsChat(std::shared_ptr<const ServedModel> model, const Json& fields) {
  FieldReader mapped(fields);
  Checked<GenerationSpec> spec = ReadChat(std::move(model), mapped);
  if (auto* error = std::get_if<ApiError>(&spec)) return WithClientNames(std::move(*error), kNames);
  return spec;
}

// Text as it is, or in front of a gap.
Checked<GenerationSpec> ReadAsText(std::shared_ptr<const ServedModel> model, Json fields) {
  FieldReader mapped(fields);
  const int context = model->limits.max_model_len;
  Checked<GenerationSpec> spec = ReadCompletion(std::move(model), mapped);
  if (auto* error = std::get_if<ApiError>(&spec)) return WithClientNames(std::move(*error), kNames);
  std::get<GenerationSpec>(spec).max_tokens_default = context;
  return spec;
}

// Puts an earlier conversation in front.
std::optional<ApiError> Prepend(const std::vector<int64_t>& context, GenerationSpec& spec) {
  std::vector<TokenId>& tokens = spec.prompts[0].tokens;
  const TokenizerSpec& vocabulary = spec.model->tokenizer->spec();
  // Which begins with bos itself.
  if (vocabulary.add_bos && !tokens.empty() && tokens[0] == vocabulary.bos)
    tokens.erase(tokens.begin());
  tokens.insert(tokens.begin(), context.begin(), context.end());
  return CheckPromptLength(*spec.model, tokens.size(), 1, "prompt");
}

std::string Text(const Json& body, const char* name) {
  const auto value = body.find(name);
  return value != body.end() && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace

Checked<std::shared_ptr<const ServedModel>> FindNamed(const ModelSet& models, const Json& body) {
  Json name = body.value("model", Json());
  const bool earlier = name.is_null() && body.contains("name");
  if (earlier) name = body["name"];
  const auto serves = [&](const std::string& wanted) {
    const auto has = [&](const auto& names) {
      return std::find(names.begin(), names.end(), wanted) != names.end();
    };
    return std::any_of(models.served.begin(), models.served.end(),
                       [&](const auto& model) { return has(model->names); }) ||
           std::any_of(models.pending.begin(), models.pending.end(),
                       [&](const auto& pending) { return has(pending.names); });
  };
  if (name.is_string()) {
    const std::string given = name.get<std::string>();
    std::string other = StrCat(given, kLatest);
    if (given.ends_with(kLatest)) other = given.substr(0, given.size() - kLatest.size());
    if (!serves(given) && serves(other)) name = other;
  }
  auto found = FindModel(models, {{"model", std::move(name)}});
  if (auto* error = std::get_if<ApiError>(&found); error != nullptr && earlier) {
    constexpr ClientName kEarlier[] = {{"model", "name"}};
    return WithClientNames(std::move(*error), kEarlier);
  }
  return found;
}

Checked<GenerationSpec> ReadChatRequest(std::shared_ptr<const ServedModel> model,
                                        const Json& body) {
  FieldReader reader(body);
  Json fields = Defaults();
  ReadShared(reader, fields);
  CheckFields(reader, ChatFields());
  ReadThink(reader, fields);
  ReadLogprobs(reader, /*chat=*/true, fields);
  if (const Json* tools = reader.Array("tools"); tools != nullptr && !tools->empty())
    fields["tools"] = *tools;
  Conversation conversation(reader);
  if (const Json* messages = reader.Array("messages")) {
    for (size_t i = 0; i < messages->size() && reader.ok(); i++)
      conversation.Add((*messages)[i], i);
  }
  if (!reader.ok()) return *reader.error();
  fields["messages"] = std::move(conversation).messages();
  // What the assistant has begun to say goes on.
  if (!fields["messages"].empty() && fields["messages"].back()["role"] == "assistant" &&
      !fields["messages"].back().contains("tool_calls")) {
    fields["continue_final_message"] = true;
    fields["add_generation_prompt"] = false;
  }
  return ReadAsChat(std::move(model), fields);
}

Checked<GenerationSpec> ReadGenerateRequest(std::shared_ptr<const ServedModel> model,
                                            const Json& body) {
  FieldReader reader(body);
  Json fields = Defaults();
  ReadShared(reader, fields);
  CheckFields(reader, GenerateFields());
  const bool raw = reader.Bool("raw").value_or(false);
  const std::string suffix = Text(body, "suffix"), system = Text(body, "system");
  const auto context = reader.IntArray("context", 0, model->tokenizer->vocab_size() - 1);
  // A model without a template is asked with the prompt alone.
  const bool text = raw || !suffix.empty() || model->chat_template == nullptr;
  if (text && !system.empty())
    reader.Fail("system", "'system' needs a chat template; it cannot go with raw or suffix");
  if (text && context && !context->empty())
    reader.Fail("context", "'context' needs a chat template; it cannot go with raw or suffix");
  ReadLogprobs(reader, /*chat=*/!text, fields);
  if (!text) ReadThink(reader, fields);
  if (!reader.ok()) return *reader.error();
  if (text) {
    fields["prompt"] = Text(body, "prompt");
    if (!suffix.empty()) fields["suffix"] = suffix;
    return ReadAsText(std::move(model), std::move(fields));
  }
  if (!system.empty()) fields["messages"].push_back({{"role", "system"}, {"content", system}});
  fields["messages"].push_back({{"role", "user"}, {"content", Text(body, "prompt")}});
  Checked<GenerationSpec> spec = ReadAsChat(std::move(model), fields);
  if (auto* read = std::get_if<GenerationSpec>(&spec); read != nullptr && context) {
    if (auto error = Prepend({context->begin(), context->end()}, *read)) return *std::move(error);
  }
  return spec;
}

namespace {

Checked<EmbeddingSpec> ReadInput(std::shared_ptr<const ServedModel> model, const Json* input,
                                 const char* name, Json fields) {
  // Nothing in, nothing out.
  if (input == nullptr || *input == "" || *input == Json::array()) {
    EmbeddingSpec nothing;
    nothing.model = std::move(model);
    return nothing;
  }
  fields["input"] = *input;
  FieldReader mapped(fields);
  Checked<EmbeddingSpec> spec = ReadEmbedding(std::move(model), mapped);
  const ClientName names[] = {{"input", name}};
  if (auto* error = std::get_if<ApiError>(&spec)) return WithClientNames(std::move(*error), names);
  return spec;
}

}  // namespace

Checked<EmbeddingSpec> ReadEmbedRequest(std::shared_ptr<const ServedModel> model,
                                        const Json& body) {
  FieldReader reader(body);
  CheckFields(reader, EmbedFields());
  Json fields = {{"truncate", reader.Bool("truncate").value_or(true)}};
  const int64_t dimensions = reader.Int("dimensions", 0, INT32_MAX).value_or(0);
  if (dimensions > 0) fields["dimensions"] = dimensions;
  if (!reader.ok()) return *reader.error();
  return ReadInput(std::move(model), reader.Get("input"), "input", std::move(fields));
}

Checked<EmbeddingSpec> ReadEmbeddingsRequest(std::shared_ptr<const ServedModel> model,
                                             const Json& body) {
  FieldReader reader(body);
  CheckFields(reader, EmbeddingsFields());
  if (!reader.ok()) return *reader.error();
  return ReadInput(std::move(model), reader.Get("prompt"), "prompt",
                   {{"truncate", true}, {"normalize", false}});
}

bool IsLookUp(const Json& body) {
  if (const auto messages = body.find("messages"); messages != body.end())
    return messages->is_null() || (messages->is_array() && messages->empty());
  return (!body.contains("prompt") || body["prompt"].is_null() || body["prompt"] == "") &&
         Text(body, "suffix").empty();
}

}  // namespace staffel::api::ollama
