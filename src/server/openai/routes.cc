#include "server/openai/routes.h"

#include <atomic>
#include <utility>

#include "base/strings.h"
#include "server/api/generation_request.h"
#include "server/api/json_text.h"
#include "server/api/prompts.h"
#include "server/openai/answer.h"
#include "server/openai/embeddings.h"
#include "server/openai/fields.h"
#include "server/openai/response_format.h"
#include "server/openai/responses_routes.h"

namespace staffel::api::openai {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

void AppendModel(std::string& out, const ServedModel& model, std::string_view name) {
  out += "{\"id\":";
  AppendJsonString(out, name);
  StrAppend(out, ",\"object\":\"model\",\"created\":", model.created_unix_s,
            ",\"owned_by\":\"staffel\",\"root\":");
  AppendJsonString(out, model.names[0]);
  StrAppend(out, ",\"parent\":null,\"max_model_len\":", model.limits.max_model_len, "}");
}

// The text of the last message, for `echo`.
std::string LastContent(const Json& messages) {
  const auto content = messages.back().find("content");  // an assistant's may be absent
  return content != messages.back().end() && content->is_string() ? content->get<std::string>()
                                                                  : "";
}

FormatOptions FormatOf(const GenerationSpec& spec, std::string id, bool echo) {
  return {.id = std::move(id),
          .model = spec.model->names[0],
          .created_unix_s = UnixSeconds(),
          .logprobs = spec.options.logprobs,
          .echo_logprobs = echo && spec.options.logprobs,
          .prompt_logprobs = spec.options.prompt_logprobs,
          .return_token_ids = spec.options.return_token_ids,
          .tokens_as_ids = spec.options.return_tokens_as_token_ids,
          .timings = spec.options.timings_per_token,
          .usage_in_chunks = spec.options.include_usage,
          .tokenizer = spec.model->tokenizer.get()};
}

void Start(GenerationSpec spec, Call& call, std::unique_ptr<ResponseFormat> format) {
  spec.runner = call.runner;
  spec.sink = MakeAnswer(std::move(call.writer), spec.options, std::move(format));
  Generation::Start(std::move(spec));
}

void Chat(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  CheckFields(reader, SharedFields());
  CheckFields(reader, ChatFields());
  const bool echo = reader.Bool("echo").value_or(false);
  if (const Json* modalities = reader.Array("modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    reader.Fail("modalities", "'modalities' must be [\"text\"]: this model answers with text");
  }
  Checked<GenerationSpec> read = ReadChat(std::move(model), reader);
  if (auto* error = std::get_if<ApiError>(&read)) return SendError(*call.writer, *error);
  GenerationSpec& spec = std::get<GenerationSpec>(read);
  if (echo) spec.prompts[0].echo_text = LastContent(body["messages"]);

  static std::atomic<uint64_t> count{0};
  auto format = MakeChatFormat(
      FormatOf(spec, StrCat("chatcmpl-", call.request.request_id, "-", ++count), false));
  Start(std::move(spec), call, std::move(format));
}

void Completions(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  CheckFields(reader, SharedFields());
  CheckFields(reader, CompletionFields());
  Checked<GenerationSpec> read = ReadCompletion(std::move(model), reader);
  if (auto* error = std::get_if<ApiError>(&read)) return SendError(*call.writer, *error);
  GenerationSpec& spec = std::get<GenerationSpec>(read);

  static std::atomic<uint64_t> count{0};
  auto format =
      MakeCompletionFormat(FormatOf(spec, StrCat("cmpl-", call.request.request_id, "-", ++count),
                                    reader.Bool("echo").value_or(false)));
  Start(std::move(spec), call, std::move(format));
}

void Models(Call call) {
  std::string out;
  for (const auto& model : call.models.served) {
    for (const std::string& name : model->names) {
      if (!out.empty()) out += ",";
      AppendModel(out, *model, name);
    }
  }
  call.writer->Send(200, "application/json", StrCat("{\"object\":\"list\",\"data\":[", out, "]}"));
}

void Model(Call call) {
  std::string name = call.request.path.substr(kModelPrefix.size());
  auto found = FindModel(call.models, Json{{"model", name}});
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*call.writer, *error);
  std::string out;
  AppendModel(out, *std::get<std::shared_ptr<const ServedModel>>(found), name);
  call.writer->Send(200, "application/json", out);
}

void Render(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  const auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  Checked<RenderedChat> rendered = RenderChat(*model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered)) return SendError(*call.writer, *error);
  const RenderedChat& chat = std::get<RenderedChat>(rendered);
  std::string out = "{\"prompt\":";
  AppendJsonString(out, chat.prompt.text);
  StrAppend(out, ",\"count\":", chat.tokens.size(), ",\"tokens\":", IdsJson(chat.tokens));
  call.writer->Send(200, "application/json", out + "}");
}

}  // namespace

void AddRoutes(Service& service, Router& router) {
  service.Add(router, "POST", "/v1/chat/completions", Chat);
  service.Add(router, "POST", "/v1/completions", Completions);
  service.Add(router, "POST", "/v1/responses", Responses);
  service.Add(router, "POST", "/v1/embeddings", Embeddings);
  service.Add(router, "GET", "/v1/models", Models);
  service.Add(router, "GET", "/v1/models/*", Model);
  service.Add(router, "POST", "/v1/chat/completions/render", Render);
}

}  // namespace staffel::api::openai
