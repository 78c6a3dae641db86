// The methods of staffel.v1.Inference over an engine that a test drives and a call that records.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "inference.pb.h"
#include "server/inference/methods.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api::inference {

template <class Response>
class RecordingCall final : public GrpcCall {
 public:
  const std::string& request_id() const override { return request_id_; }
  void Begin() override { begun = true; }
  bool Write(const google::protobuf::MessageLite& message) override {
    STAFFEL_CHECK(ends == 0) << "a message after the end";
    messages.emplace_back();
    STAFFEL_CHECK(messages.back().ParseFromString(message.SerializeAsString()));
    return static_cast<int>(messages.size()) < slow_after;
  }
  void Finish() override { ends++; }
  void Fail(const HttpError& failure) override {
    ends++;
    error = failure;
  }
  void OnDisconnect(std::function<void()> callback) override { disconnect = std::move(callback); }

  std::string param() const { return error && error->param ? *error->param : ""; }
  std::string message() const { return error ? error->message : ""; }
  int status() const { return error ? error->status : ends == 1 ? 200 : 0; }

  std::vector<Response> messages;
  std::optional<HttpError> error;
  int ends = 0, slow_after = 1 << 30;
  bool begun = false;
  std::function<void()> disconnect;

 private:
  const std::string request_id_ = "r1";
};

struct InferenceWorld : ApiWorld {
  using ApiWorld::ApiWorld;

  template <class Response, class Request>
  std::shared_ptr<RecordingCall<Response>> Call(const std::string& name, const Request& request) {
    auto call = std::make_shared<RecordingCall<Response>>();
    for (const GrpcMethod& method : Methods(service)) {
      if (method.path == "/staffel.v1.Inference/" + name)
        method.handle(request.SerializeAsString(), call);
    }
    return call;
  }
  auto Generate(const v1::GenerateRequest& request) {
    return Call<v1::GenerateResponse>("Generate", request);
  }
  auto Chat(const v1::ChatRequest& request) { return Call<v1::ChatResponse>("Chat", request); }
};

inline v1::GenerateRequest Prompt(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

inline v1::ChatRequest Says(const std::string& text) {
  v1::ChatRequest request;
  request.add_messages()->set_role("user");
  request.mutable_messages(0)->set_content(text);
  return request;
}

}  // namespace staffel::api::inference
