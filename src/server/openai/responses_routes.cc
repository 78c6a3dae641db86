#include "server/openai/responses_routes.h"

#include <atomic>
#include <utility>

#include "base/strings.h"
#include "server/api/generation_request.h"
#include "server/api/prompts.h"
#include "server/openai/responses_answer.h"
#include "server/openai/responses_request.h"

namespace staffel::api::openai {
namespace {

constexpr ClientName kNames[] = {{"messages", "input"},
                                 {"max_completion_tokens", "max_output_tokens"},
                                 {"response_format", "text.format"},
                                 {"reasoning_effort", "reasoning.effort"}};

}  // namespace

void Responses(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  auto& [body, model] = std::get<ModelRequest>(asked);
  Checked<ResponsesRequest> read = ReadResponses(body);
  if (auto* error = std::get_if<ApiError>(&read)) return SendError(*call.writer, *error);
  ResponsesRequest& request = std::get<ResponsesRequest>(read);
  FieldReader reader(request.chat);
  Checked<GenerationSpec> made = ReadChat(std::move(model), reader);
  if (auto* error = std::get_if<ApiError>(&made))
    return SendError(*call.writer, WithClientNames(std::move(*error), kNames));
  GenerationSpec& spec = std::get<GenerationSpec>(made);

  static std::atomic<uint64_t> count{0};
  spec.runner = call.runner;
  spec.sink = MakeResponsesAnswer(std::move(call.writer),
                                  {.id = StrCat(call.request.request_id, "-", ++count),
                                   .model = spec.model->names[0],
                                   .created_unix_s = UnixSeconds(),
                                   .echoed = std::move(request.echoed),
                                   .stream = spec.options.stream,
                                   .logprobs = request.logprobs,
                                   .tokenizer = spec.model->tokenizer});
  Generation::Start(std::move(spec));
}

}  // namespace staffel::api::openai
