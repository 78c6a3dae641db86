#include "server/llama/routes.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "server/api/prompts.h"
#include "server/http_message.h"
#include "server/llama/answer.h"
#include "server/llama/request.h"

namespace staffel::api::llama {
namespace {

using ModelPtr = std::shared_ptr<const ServedModel>;
using Reader = Checked<CompletionRequest> (*)(ModelPtr model, const Json& body);

void Fail(Call& call, const ApiError& error) { SendError(*call.writer, error, ErrorText); }

void Start(Call& call, Reader read_request) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return Fail(call, *error);
  auto& [body, model] = std::get<ModelRequest>(asked);
  Checked<CompletionRequest> read = read_request(std::move(model), body);
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(call, *error);
  auto& [spec, answer] = std::get<CompletionRequest>(read);
  spec.runner = call.runner;
  spec.sink = MakeAnswer(std::move(call.writer), spec, std::move(answer));
  Generation::Start(std::move(spec));
}

void Completion(Call call) { Start(call, ReadCompletionRequest); }
void Infill(Call call) { Start(call, ReadInfillRequest); }

// [{"index", "embedding": [[...]]}]: a list of one vector, as where there is one for each token.
std::string EmbeddingText(const Embeddings& embeddings) {
  std::string out = "[";
  for (size_t i = 0; i < embeddings.vectors.size(); i++) {
    StrAppend(out, i > 0 ? "," : "", "{\"index\":", i, ",\"embedding\":[");
    AppendVector(out, embeddings.vectors[i]);
    out += "]}";
  }
  return out + "]";
}

void Embedding(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return Fail(call, *error);
  auto& [body, model] = std::get<ModelRequest>(asked);
  Checked<EmbeddingSpec> read = ReadEmbeddingRequest(std::move(model), body);
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(call, *error);
  AnswerEmbedding(std::move(call), std::get<EmbeddingSpec>(std::move(read)), EmbeddingText,
                  ErrorText);
}

void ApplyTemplate(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return Fail(call, *error);
  const auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  Checked<RenderedChat> chat = RenderChat(*model, reader);
  if (auto* error = std::get_if<ApiError>(&chat)) return Fail(call, *error);
  Send(call, {{"prompt", std::get<RenderedChat>(chat).prompt.text}});
}

// The value of `key` in "a=b&c=d"; absent: null.
Json Parameter(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=')
      return PercentDecode(pair.substr(key.size() + 1)).value_or("");
  }
  return nullptr;
}

// The model of routes without a body: "?model=NAME", or the only one.
Checked<ModelPtr> QueriedModel(const Call& call) {
  return FindModel(call.models, {{"model", Parameter(call.request.query, "model")}});
}

std::string NameOf(const Tokenizer& tokenizer, TokenId token) {
  return token < 0 ? "" : std::string(tokenizer.TokenBytes(token, /*special=*/true));
}

Json DefaultSettings(const ServedModel& model) {
  const Json defaults = Defaults();
  FieldReader reader(defaults);
  Json settings = SettingsOf(ReadGenerationOptions(reader, *model.tokenizer));
  settings["seed"] = UINT32_MAX;  // random
  return settings;
}

void Props(Call call) {
  Checked<ModelPtr> found = QueriedModel(call);
  if (auto* error = std::get_if<ApiError>(&found)) return Fail(call, *error);
  const ServedModel& model = *std::get<ModelPtr>(found);
  const TokenizerSpec& spec = model.tokenizer->spec();
  Send(call, {{"default_generation_settings",
               {{"n_ctx", model.limits.max_model_len}, {"params", DefaultSettings(model)}}},
              {"total_slots", model.max_sequences},
              {"model_alias", model.names[0]},
              {"model_path", model.names[0]},
              {"chat_template", model.facts.chat_template},
              {"bos_token", NameOf(*model.tokenizer, spec.bos)},
              {"eos_token", NameOf(*model.tokenizer, spec.eos)},
              {"modalities", {{"vision", false}, {"audio", false}}},
              {"build_info", "staffel"},
              {"is_sleeping", false}});
}

// Sequences have no fixed slots here: as many of them as run are shown as busy.
void Slots(Call call) {
  Checked<ModelPtr> found = QueriedModel(call);
  if (auto* error = std::get_if<ApiError>(&found)) return Fail(call, *error);
  const ServedModel& model = *std::get<ModelPtr>(found);
  const int running = model.engine->stats().running;
  const Json wish = Parameter(call.request.query, "fail_on_no_slot");
  if (!wish.is_null() && wish != "0" && running >= model.max_sequences) {
    return Fail(call, FromStatus(absl::UnavailableError("no slot is free; try again")));
  }
  Json slots = Json::array();
  for (int i = 0; i < model.max_sequences; i++) {
    slots.push_back({{"id", i},
                     {"n_ctx", model.limits.max_model_len},
                     {"speculative", false},
                     {"is_processing", i < running}});
  }
  Send(call, slots);
}

}  // namespace

void AddRoutes(Service& service, Router& router) {
  service.Add(router, "POST", "/completion", Completion, ErrorText);
  service.Add(router, "POST", "/completions", Completion, ErrorText);
  service.Add(router, "POST", "/infill", Infill, ErrorText);
  service.Add(router, "POST", "/embedding", Embedding, ErrorText);
  service.Add(router, "POST", "/embeddings", Embedding, ErrorText);
  service.Add(router, "POST", "/apply-template", ApplyTemplate, ErrorText);
  service.Add(router, "GET", "/props", Props, ErrorText);
  service.Add(router, "GET", "/slots", Slots, ErrorText);
}

}  // namespace staffel::api::llama
