#include "server/kserve/http_routes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>

#include "base/strings.h"
#include "server/api/generation_request.h"
#include "server/api/prompts.h"
#include "server/kserve/http_answer.h"
#include "server/kserve/http_tensors.h"
#include "server/kserve/request.h"

namespace staffel::api::kserve {
namespace {

using Form = HttpAnswerOptions::Form;
using ModelPtr = std::shared_ptr<const ServedModel>;

constexpr std::string_view kModels = "/v2/models/";
constexpr char kVersion[] = "1";  // of every model

// Fields of the core that have other names here.
constexpr ClientName kNames[] = {{"prompt", "text_input"}};

void Fail(ResponseWriter& writer, const ApiError& error) { SendError(writer, error, ErrorText); }

// "NAME[/versions/VERSION][/ACTION]"; a name may have slashes.
struct Target {
  std::string name, version, action;
};

Target TargetOf(std::string_view path) {
  static constexpr std::array<std::string_view, 5> kActions = {"ready", "config", "infer",
                                                               "generate", "generate_stream"};
  Target target;
  path.remove_prefix(kModels.size());
  const size_t slash = path.rfind('/');
  if (slash != path.npos &&
      std::find(kActions.begin(), kActions.end(), path.substr(slash + 1)) != kActions.end()) {
    target.action = path.substr(slash + 1);
    path = path.substr(0, slash);
  }
  constexpr std::string_view kVersions = "/versions/";
  if (const size_t at = path.rfind(kVersions); at != path.npos) {
    target.version = path.substr(at + kVersions.size());
    path = path.substr(0, at);
  }
  target.name = path;
  return target;
}

Checked<ModelPtr> Find(const ModelSet& models, const Target& target) {
  auto found = FindModel(models, Json{{"model", target.name}});
  if (std::holds_alternative<ApiError>(found) || target.version.empty() ||
      target.version == kVersion)
    return found;
  ApiError error = Invalid("", StrCat("models have the version ", kVersion, " only, not '",
                                      target.version.substr(0, 40), "'"));
  error.status = 404;
  return error;
}

Json TensorsOf(const auto& infos) {
  Json out = Json::array();
  for (const TensorInfo& info : infos) {
    out.push_back(
        {{"name", info.name}, {"datatype", info.datatype}, {"shape", Json::array({info.shape})}});
  }
  return out;
}

void Metadata(Call& call, const Target& target) {
  Send(call, {{"name", target.name},
              {"versions", Json::array({kVersion})},
              {"platform", "staffel"},
              {"inputs", TensorsOf(Inputs())},
              {"outputs", TensorsOf(Outputs())}});
}

// As the model configuration extension writes it.
Json ConfigTensorsOf(const auto& infos, bool optional) {
  Json out = Json::array();
  for (const TensorInfo& info : infos) {
    Json tensor = {
        {"name", info.name},
        {"data_type", info.datatype == "BYTES" ? "TYPE_STRING" : StrCat("TYPE_", info.datatype)},
        {"dims", Json::array({info.shape})}};
    if (optional) tensor["optional"] = info.name != "text_input";
    out.push_back(std::move(tensor));
  }
  return out;
}

void Config(Call& call, const Target& target) {
  Send(call, {{"name", target.name},
              {"platform", ""},
              {"backend", "staffel"},
              {"max_batch_size", 0},
              {"input", ConfigTensorsOf(Inputs(), true)},
              {"output", ConfigTensorsOf(Outputs(), false)},
              {"model_transaction_policy", {{"decoupled", true}}}});
}

void Ready(Call& call, const ServedModel& model) {
  const Status health = model.engine->health();
  if (!health.ok()) return Fail(*call.writer, FromStatus(absl::UnavailableError(health.message())));
  call.writer->Send(200, "application/json", "");
}

void GetModel(Call call) {
  const Target target = TargetOf(call.request.path);
  auto found = Find(call.models, target);
  if (auto* error = std::get_if<ApiError>(&found)) return Fail(*call.writer, *error);
  if (target.action == "ready") return Ready(call, *std::get<ModelPtr>(found));
  if (target.action == "config") return Config(call, target);
  if (target.action.empty()) return Metadata(call, target);
  Fail(*call.writer,
       {.status = 405, .message = "this path takes POST", .headers = {{"Allow", "POST"}}});
}

// From a request to its generation.
void Start(Call& call, ModelPtr model, const InferRequest& request, HttpAnswerOptions options) {
  Checked<Completion> completion = ReadInfer(request);
  if (auto* error = std::get_if<ApiError>(&completion)) return Fail(*call.writer, *error);
  auto& [body, outputs] = std::get<Completion>(completion);
  if (options.form == Form::kEvents && !body.contains("stream")) body["stream"] = true;
  FieldReader reader(body);
  Checked<GenerationSpec> read = ReadCompletion(std::move(model), reader);
  if (auto* error = std::get_if<ApiError>(&read))
    return Fail(*call.writer, WithClientNames(std::move(*error), kNames));
  GenerationSpec& spec = std::get<GenerationSpec>(read);
  if (spec.options.stream && options.form != Form::kEvents) {
    return Fail(*call.writer,
                Invalid("stream", "'stream' needs generate_stream: this route has one response"));
  }
  if (spec.options.stream && spec.options.n > 1) {
    return Fail(*call.writer,
                Invalid("n", "'n' must be 1 with 'stream': a response tells of one answer"));
  }
  options.outputs = std::move(outputs);
  options.prompt_tokens = static_cast<uint32_t>(spec.prompts[0].tokens.size());
  spec.runner = call.runner;
  spec.sink = MakeHttpAnswer(std::move(call.writer), std::move(options));
  Generation::Start(std::move(spec));
}

void Infer(Call& call, ModelPtr model, const Target& target) {
  Checked<HttpInfer> read =
      ReadInferBody(call.request.body, call.request.header("inference-header-content-length"));
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(*call.writer, *error);
  HttpInfer& infer = std::get<HttpInfer>(read);
  Start(call, std::move(model), infer.request,
        {.model = target.name,
         .id = std::move(infer.id),
         .binary = infer.binary,
         .binary_output = std::move(infer.binary_output)});
}

void Generate(Call& call, ModelPtr model, const Target& target) {
  Checked<InferRequest> read = ReadGenerateBody(call.request.body);
  if (auto* error = std::get_if<ApiError>(&read)) return Fail(*call.writer, *error);
  Start(
      call, std::move(model), std::get<InferRequest>(read),
      {.form = target.action == "generate" ? Form::kObject : Form::kEvents, .model = target.name});
}

void PostModel(Call call) {
  const Target target = TargetOf(call.request.path);
  auto found = Find(call.models, target);
  if (auto* error = std::get_if<ApiError>(&found)) return Fail(*call.writer, *error);
  ModelPtr model = std::get<ModelPtr>(std::move(found));
  if (target.action == "infer") return Infer(call, std::move(model), target);
  if (target.action.starts_with("generate")) return Generate(call, std::move(model), target);
  Fail(*call.writer,
       {.status = 405, .message = "this path takes GET", .headers = {{"Allow", "GET, HEAD"}}});
}

void ServerMetadata(Call call) {
  Send(call, {{"name", "staffel"},
              {"extensions", Json::array({"binary_tensor_data", "generate", "model_configuration",
                                          "model_repository"})}});
}

// Every model can serve: those that wait for workers cannot.
void ServerReady(Call call) {
  if (!call.models.pending.empty()) {
    return Fail(*call.writer, FromStatus(absl::UnavailableError(StrCat(
                                  "the model '", call.models.pending[0].names[0],
                                  "' is not being served: ", call.models.pending[0].reason))));
  }
  for (const ModelPtr& model : call.models.served) {
    if (!model->engine->health().ok()) return Ready(call, *model);
  }
  call.writer->Send(200, "application/json", "");
}

void RepositoryIndex(Call call) {
  Json out = Json::array();
  const auto add = [&](const std::vector<std::string>& names, bool ready, const std::string& why) {
    for (const std::string& name : names) {
      out.push_back({{"name", name},
                     {"version", kVersion},
                     {"state", ready ? "READY" : "UNAVAILABLE"},
                     {"reason", why}});
    }
  };
  for (const ModelPtr& model : call.models.served) add(model->names, true, "");
  for (const ModelSet::Pending& pending : call.models.pending)
    add(pending.names, false, pending.reason);
  Send(call, out);
}

constexpr Field kInfer[] = {
    {.name = "id", .kind = FieldKind::kString, .note = "repeated in the answer"},
    {.name = "inputs",
     .kind = FieldKind::kArray,
     .note = "tensors with name, datatype, shape and data",
     .use = FieldUse::kRequired},
    {.name = "outputs", .kind = FieldKind::kArray, .note = "names of tensors; none: text_output"},
    {.name = "parameters", .kind = FieldKind::kObject, .note = "fields of completions, too"},
};
constexpr Field kGenerate[] = {
    {.name = "text_input",
     .kind = FieldKind::kString,
     .note = "the prompt",
     .use = FieldUse::kRequired},
    {.name = "parameters", .kind = FieldKind::kObject, .note = "fields of completions"},
};
constexpr std::string_view kErrorSchema =
    R"({"type":"object","properties":{"error":{"type":"string"}},"required":["error"]})";

constexpr RouteDoc Doc(RouteDoc doc, std::string_view answer_type = R"("object")") {
  doc.answer_type = answer_type;
  doc.error_schema = kErrorSchema;
  return doc;
}

constexpr RouteDoc kRoutes[] = {
    Doc({"GET", "/v2", "KServe: what this server is"}),
    Doc({"GET", "/v2/models/{name}", "KServe: inputs and outputs of a model"}),
    Doc({"POST", "/v2/models/{name}/infer", "KServe: an answer as tensors", kInfer}),
    Doc({"POST", "/v2/models/{name}/generate", "Triton: an answer as an object", kGenerate}),
    Doc({"POST",
         "/v2/models/{name}/generate_stream",
         "Triton: the same as events",
         kGenerate,
         {},
         true}),
    Doc({"POST", "/v2/repository/index", "Triton: the models"}, R"("array")"),
};

}  // namespace

void AddRoutes(Service& service, Router& router) {
  // Also while models are loading.
  router.Handle("GET", "/v2/health/live", [](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->Send(200, "application/json", "");
  });
  service.Add(router, "GET", "/v2/health/ready", ServerReady, ErrorText);
  service.Add(router, "GET", "/v2", ServerMetadata, ErrorText);
  service.Add(router, "GET", "/v2/models/*", GetModel, ErrorText);
  service.Add(router, "POST", "/v2/models/*", PostModel, ErrorText);
  service.Add(router, "POST", "/v2/repository/index", RepositoryIndex, ErrorText);
  router.ShapeErrors("/v2/*", ErrorText);
}

std::span<const RouteDoc> RouteDocs() { return kRoutes; }

}  // namespace staffel::api::kserve
