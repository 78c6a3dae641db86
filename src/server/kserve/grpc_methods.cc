#include "server/kserve/grpc_methods.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <variant>

#include "base/strings.h"
#include "kserve.pb.h"
#include "server/api/generation_request.h"
#include "server/api/prompts.h"
#include "server/grpc/error.h"
#include "server/grpc/message.h"
#include "server/kserve/grpc_answer.h"
#include "server/kserve/request.h"
#include "server/kserve/tensors.h"

namespace staffel::api::kserve {
namespace {

using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;
using ::inference::ModelStreamInferResponse;

constexpr char kVersion[] = "1";  // of every model

// Fields of the core that have other names here.
constexpr ClientName kNames[] = {{"prompt", "text_input"}};

std::string PathOf(const char* method) { return StrCat("/", kServiceName, "/", method); }

Checked<std::shared_ptr<const ServedModel>> Find(const Service& service, const std::string& name,
                                                 const std::string& version) {
  const std::shared_ptr<const ModelSet> models = service.models();
  if (models == nullptr)
    return FromStatus(absl::UnavailableError("the model is loading; try again in a moment"));
  auto found = FindModel(*models, name.empty() ? Json::object() : Json{{"model", name}});
  if (std::holds_alternative<ApiError>(found) || version.empty() || version == kVersion)
    return found;
  ApiError error = Invalid("model_version", StrCat("models have the version ", kVersion,
                                                   " only, not '", version.substr(0, 40), "'"));
  error.status = 404;
  return error;
}

// Reads the request and starts its generation, or fails `output`.
void Infer(const Service& service, const ModelInferRequest& message, bool may_stream,
           std::unique_ptr<InferOutput> output) {
  auto found = Find(service, message.model_name(), message.model_version());
  if (auto* error = std::get_if<ApiError>(&found)) return output->Fail(*error);
  Checked<InferRequest> request = FromMessage(message);
  if (auto* error = std::get_if<ApiError>(&request)) return output->Fail(*error);
  Checked<Completion> completion = ReadInfer(std::get<InferRequest>(request));
  if (auto* error = std::get_if<ApiError>(&completion)) return output->Fail(*error);
  auto& [body, outputs] = std::get<Completion>(completion);
  FieldReader reader(body);
  Checked<GenerationSpec> read =
      ReadCompletion(std::get<std::shared_ptr<const ServedModel>>(std::move(found)), reader);
  if (auto* error = std::get_if<ApiError>(&read))
    return output->Fail(WithClientNames(std::move(*error), kNames));
  GenerationSpec& spec = std::get<GenerationSpec>(read);
  if (spec.options.stream && !may_stream) {
    return output->Fail(
        Invalid("stream", "'stream' needs ModelStreamInfer: ModelInfer has one response"));
  }
  if (spec.options.stream && spec.options.n > 1)
    return output->Fail(
        Invalid("n", "'n' must be 1 with 'stream': a response tells of one answer"));
  AnswerOptions options{.outputs = std::move(outputs),
                        .stream = spec.options.stream,
                        .prompt_tokens = static_cast<uint32_t>(spec.prompts[0].tokens.size())};
  options.envelope.set_model_name(message.model_name().empty() ? spec.model->names[0]
                                                               : message.model_name());
  options.envelope.set_model_version(kVersion);
  options.envelope.set_id(message.id());
  spec.runner = service.runner();
  spec.sink = MakeAnswer(std::move(output), std::move(options));
  Generation::Start(std::move(spec));
}

class UnaryOutput final : public InferOutput {
 public:
  explicit UnaryOutput(std::shared_ptr<GrpcCall> call) : call_(std::move(call)) {}
  bool Write(const ModelInferResponse& response) override { return call_->Write(response); }
  void End() override { call_->Finish(); }
  void Fail(const ApiError& error) override { call_->Fail(error); }
  void OnDisconnect(std::function<void()> callback) override {
    call_->OnDisconnect(std::move(callback));
  }

 private:
  const std::shared_ptr<GrpcCall> call_;
};

// One ModelStreamInfer: its requests run side by side, each ends with its last response or an
// error_message. The call ends when the client sends no more and all are through.
class InferStream final : public GrpcStreamHandler,
                          public std::enable_shared_from_this<InferStream> {
 public:
  InferStream(const Service* service, std::shared_ptr<GrpcCall> call)
      : service_(service), call_(std::move(call)) {}

  // Once, when there is a shared pointer to it.
  void Begin() {
    call_->OnDisconnect([weak = weak_from_this()] {
      if (const auto stream = weak.lock()) stream->Disconnected();
    });
  }

  void OnMessage(std::string bytes) override;
  void OnEnd() override {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_ = true;
    FinishIfThrough(lock);
  }

 private:
  class Output;

  void Disconnected() {
    std::map<uint64_t, std::function<void()>> callbacks;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      gone_ = true;
      callbacks.swap(callbacks_);
    }
    for (const auto& [number, callback] : callbacks) callback();
  }
  void FinishIfThrough(std::unique_lock<std::mutex>& lock) {
    if (!ended_ || open_ > 0) return;
    lock.unlock();
    call_->Finish();
  }

  const Service* const service_;
  const std::shared_ptr<GrpcCall> call_;
  std::mutex mutex_;
  // Guarded by mutex_:
  uint64_t next_ = 0;
  int open_ = 0;  // requests
  bool ended_ = false, gone_ = false;
  std::map<uint64_t, std::function<void()>> callbacks_;  // by request
};

class InferStream::Output final : public InferOutput {
 public:
  Output(std::shared_ptr<InferStream> stream, uint64_t number, std::string id)
      : stream_(std::move(stream)), number_(number), id_(std::move(id)) {}

  ~Output() override {
    if (!ended_) Fail({.status = 500, .message = "The request was given up without an answer."});
  }

  bool Write(const ModelInferResponse& response) override {
    ModelStreamInferResponse message;
    *message.mutable_infer_response() = response;
    return stream_->call_->Write(message);
  }

  void End() override {
    ended_ = true;
    std::function<void()> dropped;  // outside of the lock
    std::unique_lock<std::mutex> lock(stream_->mutex_);
    const auto callback = stream_->callbacks_.find(number_);
    if (callback != stream_->callbacks_.end()) {
      dropped = std::move(callback->second);
      stream_->callbacks_.erase(callback);
    }
    stream_->open_--;
    stream_->FinishIfThrough(lock);
  }

  // The stream goes on with the other requests.
  void Fail(const ApiError& error) override {
    ModelStreamInferResponse message;
    message.set_error_message(
        StrCat(GrpcCodeName(GrpcStatusOf(error).error_code()), ": ", error.message));
    message.mutable_infer_response()->set_id(id_);
    SetFinal(true, *message.mutable_infer_response());
    stream_->call_->Write(message);
    End();
  }

  void OnDisconnect(std::function<void()> callback) override {
    {
      std::lock_guard<std::mutex> lock(stream_->mutex_);
      if (!stream_->gone_) {
        stream_->callbacks_[number_] = std::move(callback);
        return;
      }
    }
    callback();
  }

 private:
  const std::shared_ptr<InferStream> stream_;
  const uint64_t number_;
  const std::string id_;
  bool ended_ = false;
};

void InferStream::OnMessage(std::string bytes) {
  ModelInferRequest message;
  if (const auto error = ReadMessage(bytes, message)) return call_->Fail(*error);
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    number = next_++;
    open_++;
  }
  auto output = std::make_unique<Output>(shared_from_this(), number, message.id());
  Infer(*service_, message, /*may_stream=*/true, std::move(output));
}

// A method that answers at once.
template <class Request, class Response>
GrpcMethod Quick(const char* name, bool open,
                 std::function<std::optional<ApiError>(const Request&, Response&)> answer) {
  GrpcMethod method{.path = PathOf(name), .open = open, .quick = true};
  method.handle = [answer = std::move(answer)](const std::string& bytes,
                                               const std::shared_ptr<GrpcCall>& call) {
    Request request;
    if (const auto error = ReadMessage(bytes, request)) return call->Fail(*error);
    Response response;
    if (const auto error = answer(request, response)) return call->Fail(*error);
    call->Write(response);
    call->Finish();
  };
  return method;
}

void AddTensor(const TensorInfo& info, ::inference::ModelMetadataResponse::TensorMetadata& out) {
  out.set_name(std::string(info.name));
  out.set_datatype(std::string(info.datatype));
  out.add_shape(info.shape);
}

std::vector<GrpcMethod> HealthMethods(const Service& service, const std::string& version,
                                      std::function<bool()> ready) {
  using namespace ::inference;  // the messages
  std::vector<GrpcMethod> methods;
  methods.push_back(Quick<ServerLiveRequest, ServerLiveResponse>(
      "ServerLive", /*open=*/true, [](const auto&, auto& response) -> std::optional<ApiError> {
        response.set_live(true);
        return std::nullopt;
      }));
  methods.push_back(Quick<ServerReadyRequest, ServerReadyResponse>(
      "ServerReady", /*open=*/true,
      [ready](const auto&, auto& response) -> std::optional<ApiError> {
        response.set_ready(ready());
        return std::nullopt;
      }));
  methods.push_back(Quick<ModelReadyRequest, ModelReadyResponse>(
      "ModelReady", /*open=*/false,
      [&service, ready](const auto& request, auto& response) -> std::optional<ApiError> {
        const auto found = Find(service, request.name(), request.version());
        response.set_ready(!std::holds_alternative<ApiError>(found) && ready());
        return std::nullopt;
      }));
  methods.push_back(Quick<ServerMetadataRequest, ServerMetadataResponse>(
      "ServerMetadata", /*open=*/false,
      [version](const auto&, auto& response) -> std::optional<ApiError> {
        response.set_name("staffel");
        response.set_version(version);
        return std::nullopt;
      }));
  methods.push_back(Quick<ModelMetadataRequest, ModelMetadataResponse>(
      "ModelMetadata", /*open=*/false,
      [&service](const auto& request, auto& response) -> std::optional<ApiError> {
        auto found = Find(service, request.name(), request.version());
        if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
        const auto& model = std::get<std::shared_ptr<const ServedModel>>(found);
        response.set_name(request.name().empty() ? model->names[0] : request.name());
        response.add_versions(kVersion);
        response.set_platform("staffel");
        for (const TensorInfo& info : Inputs()) AddTensor(info, *response.add_inputs());
        for (const TensorInfo& info : Outputs()) AddTensor(info, *response.add_outputs());
        return std::nullopt;
      }));
  return methods;
}

}  // namespace

std::vector<GrpcMethod> Methods(const Service& service, std::string version,
                                std::function<bool()> ready) {
  std::vector<GrpcMethod> methods = HealthMethods(service, version, std::move(ready));
  GrpcMethod infer{.path = PathOf("ModelInfer")};
  infer.handle = [&service](const std::string& bytes, std::shared_ptr<GrpcCall> call) {
    ModelInferRequest message;
    if (const auto error = ReadMessage(bytes, message)) return call->Fail(*error);
    Infer(service, message, /*may_stream=*/false, std::make_unique<UnaryOutput>(std::move(call)));
  };
  methods.push_back(std::move(infer));
  GrpcMethod stream{.path = PathOf("ModelStreamInfer")};
  stream.stream = [&service](std::shared_ptr<GrpcCall> call) {
    auto handler = std::make_shared<InferStream>(&service, std::move(call));
    handler->Begin();
    return handler;
  };
  methods.push_back(std::move(stream));
  return methods;
}

}  // namespace staffel::api::kserve
