#include "server/ollama/routes.h"

#include <utility>

#include "base/strings.h"
#include "server/api/fields.h"
#include "server/ollama/answer.h"
#include "server/ollama/fields.h"
#include "server/ollama/models.h"
#include "server/ollama/request.h"

namespace staffel::api::ollama {
namespace {

using ModelPtr = std::shared_ptr<const ServedModel>;
using Reader = Checked<GenerationSpec> (*)(ModelPtr model, const Json& body);

// Clients ask for it to know what they may send: the version of Ollama whose fields are served.
constexpr char kVersion[] = R"({"version":"0.12.11"})";

void Fail(Call& call, const ApiError& error) { SendError(*call.writer, error, ErrorText); }

struct Asked {
  Json body;
  ModelPtr model;
  std::string name;  // as the client wrote it
};

Checked<Asked> Read(const Call& call) {
  Checked<Json> parsed = ParseBody(call.request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Json& body = std::get<Json>(parsed);
  auto found = FindNamed(call.models, body);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  ModelPtr& model = std::get<ModelPtr>(found);
  const auto given = body.find("model");
  std::string name = given != body.end() && given->is_string() ? given->get<std::string>()
                                                               : Tagged(model->names[0]);
  return Asked{std::move(body), std::move(model), std::move(name)};
}

void Answer(Call call, Reader read_request, bool chat) {
  Checked<Asked> read = Read(call);
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(call, *error);
  Asked& asked = std::get<Asked>(read);
  AnswerOptions options = {.model = std::move(asked.name), .chat = chat};
  if (IsLookUp(asked.body)) {
    FieldReader reader(asked.body);
    CheckFields(reader, SharedFields());
    CheckFields(reader, chat ? ChatFields() : GenerateFields());
    if (!reader.ok()) return Fail(call, *reader.error());
    return SendLookUp(*call.writer, options);
  }
  Checked<GenerationSpec> made = read_request(std::move(asked.model), asked.body);
  if (auto* error = std::get_if<ApiError>(&made)) return Fail(call, *error);
  GenerationSpec& spec = std::get<GenerationSpec>(made);
  spec.token_pieces = spec.options.logprobs;
  // A raw prompt is no conversation that could go on.
  options.context = !chat && asked.body.value("raw", Json()) != true;
  spec.gather = options.context;
  spec.runner = call.runner;
  spec.sink = MakeAnswer(std::move(call.writer), spec, std::move(options));
  Generation::Start(std::move(spec));
}

void Chat(Call call) { Answer(std::move(call), ReadChatRequest, /*chat=*/true); }
void Generate(Call call) { Answer(std::move(call), ReadGenerateRequest, /*chat=*/false); }

using EmbeddingText = std::string (*)(const Embeddings& embeddings, const std::string& model);

void AnswerWith(Call call, Checked<EmbeddingSpec> (*read_request)(ModelPtr, const Json&),
                EmbeddingText text) {
  Checked<Asked> read = Read(call);
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(call, *error);
  Asked& asked = std::get<Asked>(read);
  Checked<EmbeddingSpec> made = read_request(std::move(asked.model), asked.body);
  if (auto* error = std::get_if<ApiError>(&made)) return Fail(call, *error);
  EmbeddingSpec& spec = std::get<EmbeddingSpec>(made);
  if (spec.inputs.empty())
    return call.writer->Send(200, "application/json", text(Embeddings(), asked.name));
  AnswerEmbedding(
      std::move(call), std::move(spec),
      [text, name = std::move(asked.name)](const Embeddings& embeddings) {
        return text(embeddings, name);
      },
      ErrorText);
}

void Embed(Call call) { AnswerWith(std::move(call), ReadEmbedRequest, EmbedText); }
void EarlierEmbeddings(Call call) {
  AnswerWith(std::move(call), ReadEmbeddingsRequest, EarlierEmbeddingText);
}

void Tags(Call call) { Send(call, TagsOf(call.models)); }
void Running(Call call) { Send(call, RunningOf(call.models)); }

void Show(Call call) {
  Checked<Asked> read = Read(call);
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(call, *error);
  const Asked& asked = std::get<Asked>(read);
  FieldReader reader(asked.body);
  CheckFields(reader, ShowFields());
  if (!reader.ok()) return Fail(call, *reader.error());
  Send(call, ShowOf(*asked.model));
}

// Clients pull what they are about to use: done, where it is served.
void Pull(Call call) {
  Checked<Asked> read = Read(call);
  if (auto* error = std::get_if<ApiError>(&read)) {
    if (error->status == 404) StrAppend(error->message, "; it cannot load others");
    return Fail(call, *error);
  }
  FieldReader reader(std::get<Asked>(read).body);
  CheckFields(reader, PullFields());
  if (!reader.ok()) return Fail(call, *reader.error());
  const Json done = {{"status", "success"}};
  if (!reader.Bool("stream").value_or(true)) return Send(call, done);
  call.writer->BeginStream({}, StreamFraming::kLines);
  call.writer->WriteEvent(done.dump());
  call.writer->EndStream();
}

void Refuse(Call& call, const char* why) { Fail(call, FromStatus(absl::UnimplementedError(why))); }

void NoChanges(Call call) {
  Refuse(call,
         "this server serves the models that it was started with (staffel serve, staffel master); "
         "they cannot be created, copied, pushed or deleted over its API");
}

// Needs no model.
void AddFixed(Router& router, const char* path, const char* type, const char* text) {
  router.Handle("GET", path, [type, text](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->Send(200, type, text);
  });
}

}  // namespace

void AddRoutes(Service& service, Router& router) {
  router.ShapeErrors("/api/*", ErrorText);
  AddFixed(router, "/", "text/plain; charset=utf-8", "Ollama is running");
  AddFixed(router, "/api/version", "application/json", kVersion);
  const auto add = [&](const char* method, const char* path, Service::Handler handler) {
    service.Add(router, method, path, handler, ErrorText);
  };
  add("POST", "/api/chat", Chat);
  add("POST", "/api/generate", Generate);
  add("GET", "/api/tags", Tags);
  add("GET", "/api/ps", Running);
  add("POST", "/api/show", Show);
  add("POST", "/api/pull", Pull);
  add("POST", "/api/embed", Embed);
  add("POST", "/api/embeddings", EarlierEmbeddings);
  for (const char* path : {"/api/create", "/api/copy", "/api/push", "/api/blobs/*"})
    add("POST", path, NoChanges);
  add("DELETE", "/api/delete", NoChanges);
}

}  // namespace staffel::api::ollama
