#include "server/openai/api.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "base/strings.h"
#include "server/openai/api_error.h"
#include "server/openai/json_text.h"
#include "server/openai/output_grammar.h"
#include "server/openai/prompts.h"

namespace staffel::openai {
namespace {

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string IdsJson(absl::Span<const TokenId> tokens) {
  std::string out = "[";
  for (TokenId token : tokens) StrAppend(out, out.size() > 1 ? "," : "", token);
  return out + "]";
}

constexpr std::string_view kModelPrefix = "/v1/models/";

void AppendModel(std::string& out, const ServedModel& model, std::string_view name) {
  out += "{\"id\":";
  AppendJsonString(out, name);
  StrAppend(out, ",\"object\":\"model\",\"created\":", model.created_unix_s,
            ",\"owned_by\":\"staffel\",\"root\":");
  AppendJsonString(out, model.names[0]);
  StrAppend(out, ",\"parent\":null,\"max_model_len\":", model.limits.max_model_len, "}");
}

// Fields of text completions that this version cannot honour.
void RefuseCompletionFields(FieldReader& reader, int n) {
  if (reader.String("suffix").value_or("") != "") {
    reader.Fail("suffix", "'suffix' (fill in the middle) is not supported by this version");
  }
  if (reader.Int("best_of", 1, kChoicesMax).value_or(n) != n) {
    reader.Fail("best_of", "'best_of' other than 'n' is not supported by this version");
  }
}

void ReadChatLogprobs(FieldReader& reader, GenerationSpec& spec) {
  spec.logprobs = reader.Bool("logprobs").value_or(false);
  std::optional<int64_t> top = reader.Int("top_logprobs", 0, kTopLogprobsMax);
  if (top && *top > 0 && !spec.logprobs) {
    reader.Fail("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true");
  }
  if (spec.logprobs) spec.options.sampling.top_logprobs = static_cast<int>(top.value_or(0));
}

void ReadMaxTokens(FieldReader& reader, GenerationOptions& options, int min) {
  std::optional<int64_t> max_tokens = reader.Int("max_tokens", min, INT64_MAX);
  std::optional<int64_t> newer = reader.Int("max_completion_tokens", min, INT64_MAX);
  options.max_tokens = newer ? newer : max_tokens;
}

}  // namespace

void Api::Register(Router& router) {
  Add(router, "POST", "/v1/chat/completions", &Api::Chat);
  Add(router, "POST", "/v1/completions", &Api::Completions);
  Add(router, "GET", "/v1/models", &Api::Models);
  Add(router, "GET", "/v1/models/*", &Api::Model);
  Add(router, "POST", "/tokenize", &Api::Tokenize);
  Add(router, "POST", "/detokenize", &Api::Detokenize);
  Add(router, "POST", "/v1/chat/completions/render", &Api::Render);
}

void Api::SetModels(std::shared_ptr<const ModelSet> models) {
  std::lock_guard<std::mutex> lock(mutex_);
  models_ = std::move(models);
}

std::shared_ptr<const ModelSet> Api::models() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return models_;
}

void Api::Add(Router& router, const char* method, const char* path, Handler handler) {
  router.Handle(method, path, [this, handler](HttpRequest request, Writer writer) {
    std::shared_ptr<const ModelSet> models = this->models();
    if (models == nullptr) {
      return SendError(
          *writer,
          FromStatus(absl::UnavailableError("the model is loading; try again in a moment")));
    }
    // A body can be megabytes of JSON and text: not on the thread that serves sockets.
    runner_->Post([this, handler, models = std::move(models), request = std::move(request),
                   writer = std::move(writer)]() mutable {
      (this->*handler)(*models, std::move(request), std::move(writer));
    });
  });
}

void Api::Chat(const ModelSet& models, HttpRequest request, Writer writer) {
  Checked<Json> parsed = ParseBody(request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return SendError(*writer, *error);
  const Json& body = std::get<Json>(parsed);
  auto found = FindModel(models, body);
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*writer, *error);
  const auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  FieldReader reader(body);
  GenerationSpec spec;
  spec.options = ReadGenerationOptions(reader, *model->tokenizer);
  ReadOutputGrammar(reader, model->grammars.get(), spec.options);
  ReadChatLogprobs(reader, spec);
  ReadMaxTokens(reader, spec.options, 1);
  bool echo = reader.Bool("echo").value_or(false);
  if (const Json* modalities = reader.Array("modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    reader.Fail("modalities", "'modalities' must be [\"text\"]: this model answers with text");
  }
  if (!reader.ok()) return SendError(*writer, *reader.error());
  Checked<RenderedChat> rendered = RenderChat(*model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered)) return SendError(*writer, *error);
  RenderedChat& chat = std::get<RenderedChat>(rendered);
  if (auto error = CheckPromptLength(*model, chat.tokens.size(), 1, "messages"))
    return SendError(*writer, *error);

  static std::atomic<uint64_t> count{0};
  spec.model = model;
  spec.writer = std::move(writer);
  spec.runner = runner_;
  spec.max_tokens_default = model->limits.max_model_len;
  std::string said;
  if (echo) {
    const Json& last = body["messages"].back();  // one at least, as RenderChat has found
    const auto content = last.find("content");   // an assistant's may be absent
    if (content != last.end() && content->is_string()) said = *content;
  }
  spec.prompts.push_back({std::move(chat.tokens), std::move(said)});
  spec.format =
      MakeChatFormat({StrCat("chatcmpl-", request.request_id, "-", ++count), model->names[0],
                      UnixSeconds(), spec.logprobs, spec.options.return_token_ids,
                      spec.options.include_usage, model->tokenizer.get()});
  Generation::Start(std::move(spec));
}

void Api::Completions(const ModelSet& models, HttpRequest request, Writer writer) {
  Checked<Json> parsed = ParseBody(request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return SendError(*writer, *error);
  const Json& body = std::get<Json>(parsed);
  auto found = FindModel(models, body);
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*writer, *error);
  const auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  FieldReader reader(body);
  GenerationSpec spec;
  spec.options = ReadGenerationOptions(reader, *model->tokenizer);
  ReadOutputGrammar(reader, model->grammars.get(), spec.options);
  RefuseCompletionFields(reader, spec.options.n);
  std::optional<int64_t> logprobs = reader.Int("logprobs", 0, kTopLogprobsMax);
  spec.logprobs = logprobs.has_value();
  if (logprobs) spec.options.sampling.top_logprobs = static_cast<int>(*logprobs);
  bool echo = reader.Bool("echo").value_or(false);
  ReadMaxTokens(reader, spec.options, echo ? 0 : 1);
  if (!reader.ok()) return SendError(*writer, *reader.error());
  Checked<std::vector<GenerationPrompt>> prompts = ReadPrompts(*model, reader);
  if (auto* error = std::get_if<ApiError>(&prompts)) return SendError(*writer, *error);
  spec.prompts = std::get<std::vector<GenerationPrompt>>(std::move(prompts));
  int answer_min = spec.options.max_tokens == 0 ? 0 : 1;
  for (GenerationPrompt& prompt : spec.prompts) {
    if (auto error = CheckPromptLength(*model, prompt.tokens.size(), answer_min, "prompt"))
      return SendError(*writer, *error);
    if (!echo) prompt.echo_text.clear();
  }
  spec.echo_logprobs = echo && spec.logprobs;

  static std::atomic<uint64_t> count{0};
  spec.model = model;
  spec.writer = std::move(writer);
  spec.runner = runner_;
  spec.format =
      MakeCompletionFormat({StrCat("cmpl-", request.request_id, "-", ++count), model->names[0],
                            UnixSeconds(), spec.logprobs, spec.options.return_token_ids,
                            spec.options.include_usage, model->tokenizer.get()});
  Generation::Start(std::move(spec));
}

void Api::Models(const ModelSet& models, HttpRequest, Writer writer) {
  std::string out;
  for (const auto& model : models.served) {
    for (const std::string& name : model->names) {
      if (!out.empty()) out += ",";
      AppendModel(out, *model, name);
    }
  }
  writer->Send(200, "application/json", StrCat("{\"object\":\"list\",\"data\":[", out, "]}"));
}

void Api::Model(const ModelSet& models, HttpRequest request, Writer writer) {
  std::string name = request.path.substr(kModelPrefix.size());
  auto found = FindModel(models, Json{{"model", name}});
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*writer, *error);
  std::string out;
  AppendModel(out, *std::get<std::shared_ptr<const ServedModel>>(found), name);
  writer->Send(200, "application/json", out);
}

void Api::Tokenize(const ModelSet& models, HttpRequest request, Writer writer) {
  Checked<Json> parsed = ParseBody(request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return SendError(*writer, *error);
  const Json& body = std::get<Json>(parsed);
  auto found = FindModel(models, body);
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*writer, *error);
  const auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  FieldReader reader(body);
  bool add_special = reader.Bool("add_special_tokens").value_or(true);
  bool parse_special = reader.Bool("parse_special").value_or(false);
  bool with_text = reader.Bool("return_token_strs").value_or(false);
  std::vector<TokenId> tokens;
  if (reader.Get("messages") != nullptr) {
    Checked<RenderedChat> rendered = RenderChat(*model, reader);
    if (auto* error = std::get_if<ApiError>(&rendered)) return SendError(*writer, *error);
    tokens = std::get<RenderedChat>(std::move(rendered)).tokens;
  } else {
    std::optional<std::string> text = reader.String("prompt");
    if (!text && reader.ok())
      reader.Fail("prompt", "'prompt' is missing; send a string, or 'messages'");
    if (!reader.ok()) return SendError(*writer, *reader.error());
    tokens = model->tokenizer->Encode(*text, parse_special, add_special);
  }
  std::string out =
      StrCat("{\"count\":", tokens.size(), ",\"max_model_len\":", model->limits.max_model_len,
             ",\"tokens\":", IdsJson(tokens));
  if (with_text) {
    out += ",\"token_strs\":[";
    for (size_t i = 0; i < tokens.size(); i++) {
      if (i > 0) out += ',';
      AppendJsonString(out, model->tokenizer->TokenBytes(tokens[i], /*special=*/true));
    }
    out += ']';
  }
  writer->Send(200, "application/json", out + "}");
}

void Api::Detokenize(const ModelSet& models, HttpRequest request, Writer writer) {
  Checked<Json> parsed = ParseBody(request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return SendError(*writer, *error);
  const Json& body = std::get<Json>(parsed);
  auto found = FindModel(models, body);
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*writer, *error);
  const auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  FieldReader reader(body);
  auto ids = reader.IntArray("tokens", 0, model->tokenizer->vocab_size() - 1);
  if (!ids && reader.ok()) reader.Fail("tokens", "'tokens' is missing; send an array of token ids");
  if (!reader.ok()) return SendError(*writer, *reader.error());
  std::vector<TokenId> tokens(ids->begin(), ids->end());
  std::string out = "{\"prompt\":";
  AppendJsonString(out, model->tokenizer->Decode(tokens, /*special=*/true));
  writer->Send(200, "application/json", out + "}");
}

void Api::Render(const ModelSet& models, HttpRequest request, Writer writer) {
  Checked<Json> parsed = ParseBody(request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return SendError(*writer, *error);
  const Json& body = std::get<Json>(parsed);
  auto found = FindModel(models, body);
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*writer, *error);
  const auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  FieldReader reader(body);
  Checked<RenderedChat> rendered = RenderChat(*model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered)) return SendError(*writer, *error);
  const RenderedChat& chat = std::get<RenderedChat>(rendered);
  std::string out = "{\"prompt\":";
  AppendJsonString(out, chat.prompt.text);
  StrAppend(out, ",\"count\":", chat.tokens.size(), ",\"tokens\":", IdsJson(chat.tokens));
  writer->Send(200, "application/json", out + "}");
}

}  // namespace staffel::openai
