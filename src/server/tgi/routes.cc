#include "server/tgi/routes.h"

#include <algorithm>
#include <utility>

#include "server/api/prompts.h"
#include "server/api/text_tokens.h"
#include "server/tgi/answer.h"
#include "server/tgi/request.h"

namespace staffel::api::tgi {
namespace {

void Answer(Call& call, ModelRequest request, bool stream, bool in_list) {
  Checked<Asked> read = ReadGenerate(std::move(request.model), request.body, stream);
  if (auto* error = std::get_if<ApiError>(&read)) return SendTgiError(*call.writer, *error);
  Asked& asked = std::get<Asked>(read);
  asked.answer.in_list = in_list;
  asked.spec.runner = call.runner;
  asked.spec.sink = MakeAnswer(std::move(call.writer), std::move(asked.answer));
  Generation::Start(std::move(asked.spec));
}

void Generate(Call call) {
  Checked<ModelRequest> read = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&read)) return SendTgiError(*call.writer, *error);
  Answer(call, std::get<ModelRequest>(std::move(read)), /*stream=*/false, /*in_list=*/false);
}

void GenerateStream(Call call) {
  Checked<ModelRequest> read = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&read)) return SendTgiError(*call.writer, *error);
  Answer(call, std::get<ModelRequest>(std::move(read)), /*stream=*/true, /*in_list=*/false);
}

// The form of hosted endpoints: `stream` is a field, and a whole answer is in a list.
void Root(Call call) {
  Checked<ModelRequest> read = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&read)) return SendTgiError(*call.writer, *error);
  ModelRequest& request = std::get<ModelRequest>(read);
  FieldReader reader(request.body);
  const bool stream = reader.Bool("stream").value_or(false);
  if (!reader.ok()) return SendTgiError(*call.writer, *reader.error());
  Answer(call, std::move(request), stream, /*in_list=*/true);
}

void ChatTokenize(Call call) {
  Checked<ModelRequest> read = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&read)) return SendTgiError(*call.writer, *error);
  const auto& [body, model] = std::get<ModelRequest>(read);
  FieldReader reader(body);
  Checked<RenderedChat> rendered = RenderChat(*model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered)) return SendTgiError(*call.writer, *error);
  const RenderedChat& chat = std::get<RenderedChat>(rendered);
  const Json answer = {
      {"tokenize_response", TokensInText(*model->tokenizer, chat.prompt.text, chat.tokens)},
      {"templated_text", chat.prompt.text}};
  call.writer->Send(200, "application/json", answer.dump());
}

void Info(Call call) {
  auto found = FindModel(call.models, Json::object());
  if (auto* error = std::get_if<ApiError>(&found)) return SendTgiError(*call.writer, *error);
  const ServedModel& model = *std::get<std::shared_ptr<const ServedModel>>(found);
  const EngineLimits& limits = model.limits;
  const Json answer = {
      {"model_id", model.names[0]},
      {"model_sha", model.facts.digest.empty() ? Json() : Json(model.facts.digest)},
      {"model_pipeline_tag", "text-generation"},
      {"max_concurrent_requests", limits.max_queue},
      {"max_best_of", kChoicesMax},
      {"max_stop_sequences", kStopsMax},
      {"max_input_tokens", std::min(limits.max_model_len - 1, limits.kv_capacity_tokens)},
      {"max_total_tokens", limits.max_model_len},
      {"router", "staffel"}};
  call.writer->Send(200, "application/json", answer.dump());
}

}  // namespace

void AddRoutes(Service& service, Router& router) {
  service.Add(router, "POST", "/generate", Generate, ErrorText);
  service.Add(router, "POST", "/generate_stream", GenerateStream, ErrorText);
  service.Add(router, "POST", "/", Root, ErrorText);
  service.Add(router, "POST", "/chat_tokenize", ChatTokenize, ErrorText);
  service.Add(router, "GET", "/info", Info, ErrorText);
}

}  // namespace staffel::api::tgi
