#include "server/inference/methods.h"

#include <atomic>
#include <string>
#include <utility>
#include <variant>

#include "base/strings.h"
#include "inference.pb.h"
#include "server/api/embedding_request.h"
#include "server/api/generation_request.h"
#include "server/api/prompts.h"
#include "server/grpc/message.h"
#include "server/inference/answer.h"
#include "server/inference/request.h"
#include "text/utf8.h"

namespace staffel::api::inference {
namespace {

// One call with its message.
template <class Request>
struct Asked {
  Request request;
  std::shared_ptr<const ModelSet> models;  // of the moment the call came
  TaskRunner* runner = nullptr;
  std::shared_ptr<GrpcCall> call;
};

template <class Request>
GrpcMethod Method(const char* name, const Service& service, void (*handler)(Asked<Request>)) {
  GrpcMethod method{.path = StrCat("/", kServiceName, "/", name)};
  method.handle = [&service, handler](const std::string& bytes, std::shared_ptr<GrpcCall> call) {
    Asked<Request> asked;
    if (const auto error = ReadMessage(bytes, asked.request)) return call->Fail(*error);
    asked.models = service.models();
    if (asked.models == nullptr) {
      return call->Fail(
          FromStatus(absl::UnavailableError("the model is loading; try again in a moment")));
    }
    asked.runner = service.runner();
    asked.call = std::move(call);
    handler(std::move(asked));
  };
  return method;
}

// The model that a message names; empty where there is only one.
Checked<std::shared_ptr<const ServedModel>> Find(const ModelSet& models, const std::string& name) {
  return FindModel(models, name.empty() ? Json::object() : Json{{"model", name}});
}

AnswerOptions AnswerOptionsOf(const GenerationSpec& spec, const GrpcCall& call) {
  static std::atomic<uint64_t> count{0};
  return {.id = StrCat(call.request_id(), "-", ++count),
          .created_unix_s = UnixSeconds(),
          .model = spec.model,
          .stream = spec.options.stream,
          .logprobs = spec.options.logprobs,
          .return_token_ids = spec.options.return_token_ids};
}

using SinkMaker = std::unique_ptr<AnswerSink> (*)(std::shared_ptr<GrpcCall>, AnswerOptions);

template <class Request>
void Start(Checked<GenerationSpec> read, Asked<Request>& asked, SinkMaker make_sink) {
  if (auto* error = std::get_if<ApiError>(&read))
    return asked.call->Fail(WithFieldNames(std::move(*error), asked.request));
  GenerationSpec& spec = std::get<GenerationSpec>(read);
  spec.runner = asked.runner;
  AnswerOptions options = AnswerOptionsOf(spec, *asked.call);
  spec.sink = make_sink(std::move(asked.call), std::move(options));
  Generation::Start(std::move(spec));
}

void Generate(Asked<v1::GenerateRequest> asked) {
  auto found = Find(*asked.models, asked.request.model());
  if (auto* error = std::get_if<ApiError>(&found)) return asked.call->Fail(*error);
  auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  // Not made into JSON only to be refused. How much is cut is known later.
  const size_t ids = static_cast<size_t>(asked.request.token_ids().ids_size());
  if (!asked.request.sampling().has_truncate_prompt_tokens()) {
    if (auto error = CheckPromptLength(*model, ids, 0, "token_ids"))
      return asked.call->Fail(*error);
  }
  Checked<Json> body = ToJson(asked.request);
  if (auto* error = std::get_if<ApiError>(&body)) return asked.call->Fail(*error);
  FieldReader reader(std::get<Json>(body));
  Start(ReadCompletion(std::move(model), reader), asked, MakeGenerateAnswer);
}

void Chat(Asked<v1::ChatRequest> asked) {
  auto found = Find(*asked.models, asked.request.model());
  if (auto* error = std::get_if<ApiError>(&found)) return asked.call->Fail(*error);
  Checked<Json> body = ToJson(asked.request);
  if (auto* error = std::get_if<ApiError>(&body)) return asked.call->Fail(*error);
  FieldReader reader(std::get<Json>(body));
  Checked<GenerationSpec> read =
      ReadChat(std::get<std::shared_ptr<const ServedModel>>(std::move(found)), reader);
  auto* spec = std::get_if<GenerationSpec>(&read);
  if (spec != nullptr && asked.request.echo())
    spec->prompts[0].echo_text = asked.request.messages().rbegin()->content();
  Start(std::move(read), asked, MakeChatAnswer);
}

void Embed(Asked<v1::EmbedRequest> asked) {
  auto found = Find(*asked.models, asked.request.model());
  if (auto* error = std::get_if<ApiError>(&found)) return asked.call->Fail(*error);
  auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
  Checked<Json> body = ToJson(asked.request);
  if (auto* error = std::get_if<ApiError>(&body)) return asked.call->Fail(*error);
  FieldReader reader(std::get<Json>(body));
  std::string name = model->names[0];
  Checked<EmbeddingSpec> read = ReadEmbedding(std::move(model), reader);
  if (auto* error = std::get_if<ApiError>(&read))
    return asked.call->Fail(WithFieldNames(std::move(*error), asked.request));
  EmbeddingSpec& spec = std::get<EmbeddingSpec>(read);
  spec.runner = asked.runner;
  spec.on_disconnect = [call = asked.call](std::function<void()> callback) {
    call->OnDisconnect(std::move(callback));
  };
  spec.done = [call = std::move(asked.call),
               name = std::move(name)](const Checked<Embeddings>& result) {
    if (const auto* error = std::get_if<ApiError>(&result)) return call->Fail(*error);
    call->Write(ToMessage(std::get<Embeddings>(result), name));
    call->Finish();
  };
  StartEmbedding(std::move(spec));
}

void Tokenize(Asked<v1::TokenizeRequest> asked) {
  const v1::TokenizeRequest& request = asked.request;
  auto found = Find(*asked.models, request.model());
  if (auto* error = std::get_if<ApiError>(&found)) return asked.call->Fail(*error);
  const ServedModel& model = *std::get<std::shared_ptr<const ServedModel>>(found);
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  std::vector<TokenId> tokens;
  if (request.input_case() == v1::TokenizeRequest::kChat) {
    Checked<Json> body = ToJson(request.chat());
    if (auto* error = std::get_if<ApiError>(&body)) return asked.call->Fail(*error);
    std::get<Json>(body)["add_special_tokens"] = add_special;
    FieldReader reader(std::get<Json>(body));
    Checked<RenderedChat> rendered = RenderChat(model, reader);
    if (auto* error = std::get_if<ApiError>(&rendered))
      return asked.call->Fail(WithFieldNames(std::move(*error), request));
    tokens = std::get<RenderedChat>(std::move(rendered)).tokens;
  } else if (request.input_case() == v1::TokenizeRequest::kText) {
    tokens = model.tokenizer->Encode(request.text(), request.parse_special(), add_special);
  } else {
    return asked.call->Fail(Invalid("text", "there is no input; send 'text' or 'chat'"));
  }
  v1::TokenizeResponse response;
  response.mutable_tokens()->Assign(tokens.begin(), tokens.end());
  response.set_count(static_cast<uint32_t>(tokens.size()));
  response.set_max_model_len(static_cast<uint32_t>(model.limits.max_model_len));
  if (request.return_token_strs()) {
    for (const TokenId token : tokens) {
      const std::string_view bytes = model.tokenizer->TokenBytes(token, /*special=*/true);
      response.add_token_strs(bytes.data(), bytes.size());
    }
  }
  asked.call->Write(response);
  asked.call->Finish();
}

void Detokenize(Asked<v1::DetokenizeRequest> asked) {
  auto found = Find(*asked.models, asked.request.model());
  if (auto* error = std::get_if<ApiError>(&found)) return asked.call->Fail(*error);
  const Tokenizer& tokenizer = *std::get<std::shared_ptr<const ServedModel>>(found)->tokenizer;
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(asked.request.tokens_size()));
  for (const uint32_t id : asked.request.tokens()) {
    if (id >= static_cast<uint32_t>(tokenizer.vocab_size())) {
      return asked.call->Fail(
          Invalid("tokens", StrCat("'tokens' must hold token ids from 0 to ",
                                   tokenizer.vocab_size() - 1, ", it holds ", id)));
    }
    tokens.push_back(static_cast<TokenId>(id));
  }
  v1::DetokenizeResponse response;
  response.set_prompt(ToValidUtf8(tokenizer.Decode(tokens, /*special=*/true)));
  asked.call->Write(response);
  asked.call->Finish();
}

void Models(Asked<v1::ModelsRequest> asked) {
  v1::ModelsResponse response;
  for (const auto& served : asked.models->served) {
    for (const std::string& name : served->names) {
      v1::Model& model = *response.add_models();
      model.set_id(name);
      model.set_root(served->names[0]);
      model.set_created(served->created_unix_s);
      model.set_max_model_len(static_cast<uint32_t>(served->limits.max_model_len));
    }
  }
  asked.call->Write(response);
  asked.call->Finish();
}

}  // namespace

std::vector<GrpcMethod> Methods(const Service& service) {
  return {Method("Generate", service, Generate),     Method("Chat", service, Chat),
          Method("Embed", service, Embed),           Method("Tokenize", service, Tokenize),
          Method("Detokenize", service, Detokenize), Method("Models", service, Models)};
}

}  // namespace staffel::api::inference
