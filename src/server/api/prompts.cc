#include "server/api/prompts.h"

#include <algorithm>
#include <ctime>

#include "base/strings.h"
#include "text/chat_template.h"

namespace staffel::api {
namespace {

std::tm LocalTime() {
  std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

bool IsTokenArray(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

// Reads one prompt after the other.
class PromptReader {
 public:
  PromptReader(const ServedModel& model, const PromptForm& form)
      : tokenizer_(*model.tokenizer), form_(form) {}

  std::optional<ApiError> Read(const Json* prompts) {
    if (prompts == nullptr)
      return Wrong("is missing; send a string, token ids, or a list of either");
    if (prompts->is_string() || IsTokenArray(*prompts)) return Add(*prompts);
    if (!prompts->is_array())
      return Wrong(StrCat("must be a string or an array, it is ", TypeName(*prompts)));
    if (prompts->empty()) return Empty();
    if (prompts->size() > static_cast<size_t>(form_.count_max))
      return Wrong(StrCat("may hold at most ", form_.count_max, " ", form_.field, "s"));
    for (const Json& item : *prompts) {
      if (auto error = Add(item)) return error;
    }
    return std::nullopt;
  }
  std::vector<GenerationPrompt> Take() { return std::move(prompts_); }

 private:
  ApiError Wrong(std::string_view what) const {
    return Invalid(form_.field, StrCat("'", form_.field, "' ", what));
  }
  ApiError Empty() const {
    return Wrong(
        "has no tokens; send at least one character that the model's vocabulary can express");
  }

  std::optional<ApiError> Add(const Json& item) {
    GenerationPrompt prompt;
    if (item.is_string()) {
      prompt.is_text = true;
      prompt.echo_text = item.get<std::string>();
      prompt.tokens = tokenizer_.Encode(prompt.echo_text, !form_.plain, form_.add_special);
    } else if (item.is_array()) {
      if (auto error = ReadIds(item, prompt.tokens)) return error;
      prompt.echo_text = tokenizer_.Decode(prompt.tokens, /*special=*/true);
    } else {
      return Wrong(StrCat("must hold strings or lists of token ids, it holds ", TypeName(item)));
    }
    if (prompt.tokens.empty()) return Empty();
    prompts_.push_back(std::move(prompt));
    return std::nullopt;
  }

  std::optional<ApiError> ReadIds(const Json& ids, std::vector<TokenId>& tokens) const {
    for (const Json& id : ids) {
      const bool fits =
          id.is_number_integer() &&
          (id.is_number_unsigned() ? id.get<uint64_t>() <= INT32_MAX : id.get<int64_t>() >= 0);
      if (!fits || id.get<int64_t>() >= tokenizer_.vocab_size()) {
        return Wrong(StrCat("must hold token ids from 0 to ", tokenizer_.vocab_size() - 1, "; ",
                            id.dump().substr(0, 40), " is not one"));
      }
      tokens.push_back(id.get<TokenId>());
    }
    return std::nullopt;
  }

  const Tokenizer& tokenizer_;
  const PromptForm& form_;
  std::vector<GenerationPrompt> prompts_;
};

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "'a', 'b'": the first name of each model.
std::string NamesOf(const ModelSet& models) {
  std::string out;
  const auto add = [&](const std::string& name) {
    StrAppend(out, out.empty() ? "'" : ", '", name, "'");
  };
  for (const auto& model : models.served) add(model->names[0]);
  for (const ModelSet::Pending& pending : models.pending) add(pending.names[0]);
  return out;
}

Status NotServed(const ModelSet::Pending& pending) {
  return absl::UnavailableError(
      StrCat("the model '", pending.names[0], "' is not being served: ", pending.reason));
}

}  // namespace

Checked<std::shared_ptr<const ServedModel>> FindModel(const ModelSet& models, const Json& body) {
  const size_t count = models.served.size() + models.pending.size();
  auto it = body.find("model");
  if (it == body.end() || it->is_null()) {
    if (count != 1) {
      return Invalid("model", StrCat("'model' is missing; this server has ", NamesOf(models)));
    }
    if (!models.served.empty()) return models.served.front();
    return FromStatus(NotServed(models.pending.front()));
  }
  if (!it->is_string())
    return Invalid("model", StrCat("'model' must be a string, it is ", TypeName(*it)));
  const auto& name = it->get_ref<const std::string&>();
  for (const auto& model : models.served) {
    if (Contains(model->names, name)) return model;
  }
  for (const ModelSet::Pending& pending : models.pending) {
    if (Contains(pending.names, name)) return FromStatus(NotServed(pending));
  }
  ApiError error = Invalid("model", StrCat("there is no model '", name.substr(0, 100),
                                           "' here; this server has ", NamesOf(models)));
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

Checked<ModelRequest> ReadModelRequest(const ModelSet& models, const std::string& body) {
  Checked<Json> parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto found = FindModel(models, std::get<Json>(parsed));
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  return ModelRequest{std::get<Json>(std::move(parsed)),
                      std::get<std::shared_ptr<const ServedModel>>(std::move(found))};
}

namespace {

// The request's own template, or the model's. A template writes control tokens, so one that comes
// from a client is taken only where the operator trusts clients with that.
Checked<std::shared_ptr<const ChatTemplate>> TemplateOf(const ServedModel& model,
                                                        FieldReader& reader) {
  const auto source = reader.String("chat_template");
  if (!reader.ok()) return *reader.error();
  if (!source) {
    if (model.chat_template == nullptr) return Invalid("messages", model.chat_template_problem);
    return model.chat_template;
  }
  if (!model.request_templates) {
    return Invalid("chat_template",
                   "'chat_template' is not taken from requests here; the operator can allow it "
                   "(--trust-request-chat-template) or set one for all (--chat-template)");
  }
  if (source->size() > kTemplateBytesMax) {
    return Invalid("chat_template",
                   StrCat("'chat_template' may have at most ", kTemplateBytesMax, " bytes"));
  }
  auto parsed = ChatTemplate::Parse(*source, SpecialTokensOf(*model.tokenizer));
  if (!parsed.ok()) {
    return Invalid("chat_template", StrCat("'chat_template' cannot be used: ",
                                           std::string(parsed.status().message())));
  }
  return std::shared_ptr<const ChatTemplate>(*std::move(parsed));
}

}  // namespace

Checked<RenderedChat> RenderChat(const ServedModel& model, FieldReader& reader) {
  Checked<std::shared_ptr<const ChatTemplate>> found = TemplateOf(model, reader);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const ChatTemplate& chat_template = *std::get<std::shared_ptr<const ChatTemplate>>(found);
  ChatInput input = ReadChatInput(reader, chat_template.content_form() == ContentForm::kParts);
  ReasoningWish reasoning = ReadReasoning(reader, model.formats.reasoning);
  if (!reader.ok()) return *reader.error();
  for (const auto& [name, value] : reasoning.template_kwargs.items()) {
    if (!input.template_kwargs.contains(name)) input.template_kwargs[name] = value;
  }
  ChatOptions options;
  options.tools = &input.tool_choice.tools;
  options.kwargs = &input.template_kwargs;
  options.add_generation_prompt = input.add_generation_prompt;
  options.continue_final_message = input.continue_final_message;
  options.now = LocalTime();
  Result<PromptText> prompt = chat_template.Render(input.messages, options);
  if (!prompt.ok()) {
    // The client's own template is the client's mistake.
    if (reader.Get("chat_template") != nullptr) {
      return Invalid("chat_template",
                     StrCat("'chat_template' failed: ", std::string(prompt.status().message())));
    }
    return FromStatus(prompt.status(), "messages");
  }
  RenderedChat chat;
  chat.tool_choice = std::move(input.tool_choice);
  chat.reasoning = std::move(reasoning);
  chat.prompt = *std::move(prompt);
  chat.tokens =
      model.tokenizer->Encode(chat.prompt, reader.Bool("add_special_tokens").value_or(true));
  if (chat.tokens.empty())
    return Invalid("messages", "the rendered prompt has no tokens; give a message with text");
  return chat;
}

Checked<std::vector<GenerationPrompt>> ReadPrompts(const ServedModel& model, const PromptForm& form,
                                                   FieldReader& reader) {
  PromptReader prompts(model, form);
  if (auto error = prompts.Read(reader.Get(form.field))) return *std::move(error);
  return prompts.Take();
}

std::optional<ApiError> CheckPromptLength(const ServedModel& model, size_t prompt_tokens,
                                          int answer_tokens_min, std::string_view param) {
  const EngineLimits& limits = model.limits;
  std::string message;
  if (prompt_tokens + answer_tokens_min > static_cast<size_t>(limits.max_model_len)) {
    message = StrCat("the prompt has ", prompt_tokens, " tokens, but this model's context is ",
                     limits.max_model_len, " tokens including the answer; shorten the prompt");
  } else if (prompt_tokens > static_cast<size_t>(limits.kv_capacity_tokens)) {
    message = StrCat("the prompt has ", prompt_tokens, " tokens, but this server's KV cache holds ",
                     limits.kv_capacity_tokens, "; shorten the prompt");
  } else {
    return std::nullopt;
  }
  ApiError error = Invalid(param, std::move(message));
  error.code = "context_length_exceeded";
  return error;
}

}  // namespace staffel::api
