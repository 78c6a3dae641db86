#include "server/anthropic/routes.h"

#include <atomic>
#include <utility>

#include "base/strings.h"
#include "server/anthropic/answer.h"
#include "server/anthropic/request.h"
#include "server/api/generation_request.h"
#include "server/api/prompts.h"

namespace staffel::api::anthropic {
namespace {

constexpr ClientName kNames[] = {{"stop", "stop_sequences"}, {"response_format", "output_config"}};

// The body as a chat of OpenAI's names, and the model that it names.
struct Asked {
  Json chat;
  std::shared_ptr<const ServedModel> model;
};

Checked<Asked> Read(const Call& call, bool max_tokens_required) {
  Checked<ModelRequest> request = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&request)) return std::move(*error);
  auto& [body, model] = std::get<ModelRequest>(request);
  Checked<Json> chat = ReadMessages(body, max_tokens_required);
  if (auto* error = std::get_if<ApiError>(&chat)) return std::move(*error);
  return Asked{std::get<Json>(std::move(chat)), std::move(model)};
}

void Messages(Call call) {
  Checked<Asked> read = Read(call, /*max_tokens_required=*/true);
  if (auto* error = std::get_if<ApiError>(&read)) return SendMessagesError(*call.writer, *error);
  Asked& asked = std::get<Asked>(read);
  FieldReader reader(asked.chat);
  Checked<GenerationSpec> made = ReadChat(asked.model, reader);
  if (auto* error = std::get_if<ApiError>(&made))
    return SendMessagesError(*call.writer, WithClientNames(std::move(*error), kNames));
  GenerationSpec& spec = std::get<GenerationSpec>(made);

  static std::atomic<uint64_t> count{0};
  spec.runner = call.runner;
  spec.sink = MakeAnswer(std::move(call.writer),
                         {.id = StrCat("msg_", call.request.request_id, "-", ++count),
                          .model = asked.model->names[0],
                          .prompt_tokens = static_cast<int64_t>(spec.prompts[0].tokens.size()),
                          .stream = spec.options.stream});
  Generation::Start(std::move(spec));
}

void CountTokens(Call call) {
  Checked<Asked> read = Read(call, /*max_tokens_required=*/false);
  if (auto* error = std::get_if<ApiError>(&read)) return SendMessagesError(*call.writer, *error);
  Asked& asked = std::get<Asked>(read);
  FieldReader reader(asked.chat);
  Checked<RenderedChat> rendered = RenderChat(*asked.model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered))
    return SendMessagesError(*call.writer, WithClientNames(std::move(*error), kNames));
  call.writer->Send(
      200, "application/json",
      StrCat("{\"input_tokens\":", std::get<RenderedChat>(rendered).tokens.size(), "}"));
}

}  // namespace

void AddRoutes(Service& service, Router& router) {
  service.Add(router, "POST", "/v1/messages", Messages, ErrorText);
  service.Add(router, "POST", "/v1/messages/count_tokens", CountTokens, ErrorText);
  router.ShapeErrors("/v1/messages/*", ErrorText);
}

}  // namespace staffel::api::anthropic
