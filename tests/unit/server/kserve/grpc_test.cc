#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "base/check.h"
#include "kserve.pb.h"
#include "server/kserve/grpc_methods.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api::kserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Request = ::inference::ModelInferRequest;
using Response = ::inference::ModelInferResponse;
using StreamResponse = ::inference::ModelStreamInferResponse;

class Recorder final : public GrpcCall {
 public:
  const std::string& request_id() const override { return request_id_; }
  void Begin() override {}
  bool Write(const google::protobuf::MessageLite& message) override {
    STAFFEL_CHECK(ends == 0) << "a message after the end";
    messages.push_back(message.SerializeAsString());
    return true;
  }
  void Finish() override { ends++; }
  void Fail(const HttpError& failure) override {
    ends++;
    error = failure;
  }
  void OnDisconnect(std::function<void()> callback) override { disconnect = std::move(callback); }

  template <class Message>
  Message message(size_t i) const {
    Message out;
    STAFFEL_CHECK(out.ParseFromString(messages.at(i)));
    return out;
  }

  std::vector<std::string> messages;
  std::optional<HttpError> error;
  int ends = 0;
  std::function<void()> disconnect;

 private:
  const std::string request_id_ = "r1";
};

struct World : ApiWorld {
  World() {
    for (GrpcMethod& method : Methods(service, "1.2.3", [this] { return ready; }))
      methods[method.path.substr(method.path.rfind('/') + 1)] = std::move(method);
  }
  template <class Message>
  std::shared_ptr<Recorder> Call(const std::string& name, const Message& message) {
    auto call = std::make_shared<Recorder>();
    methods.at(name).handle(message.SerializeAsString(), call);
    return call;
  }
  std::shared_ptr<Recorder> Infer(const Request& request) { return Call("ModelInfer", request); }

  bool ready = true;
  std::map<std::string, GrpcMethod> methods;
};

void AddText(const std::string& name, const std::string& text, Request& request) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents(text);
}

Request Prompt(const std::string& text, const std::string& id = "") {
  Request request;
  request.set_model_name("tiny");
  request.set_id(id);
  AddText("text_input", text, request);
  return request;
}

// The texts of a BYTES output.
std::vector<std::string> Texts(const Response& response, const std::string& name) {
  for (int i = 0; i < response.outputs_size(); i++) {
    if (response.outputs(i).name() != name) continue;
    std::vector<std::string> texts;
    std::string_view raw = response.raw_output_contents(i);
    while (!raw.empty()) {
      uint32_t size = 0;
      std::memcpy(&size, raw.data(), sizeof(size));
      texts.emplace_back(raw.substr(sizeof(size), size));
      raw.remove_prefix(sizeof(size) + size);
    }
    EXPECT_THAT(response.outputs(i).shape(), ElementsAre(texts.size()));
    return texts;
  }
  return {};
}

template <class T>
std::vector<T> Numbers(const Response& response, const std::string& name) {
  for (int i = 0; i < response.outputs_size(); i++) {
    if (response.outputs(i).name() != name) continue;
    const std::string& raw = response.raw_output_contents(i);
    std::vector<T> numbers(raw.size() / sizeof(T));
    std::memcpy(numbers.data(), raw.data(), raw.size());
    return numbers;
  }
  return {};
}

TEST(Kserve, ModelInferAnswersWhole) {
  World world;
  Request request = Prompt("hi", "17");
  (*request.mutable_parameters())["max_tokens"].set_int64_param(9);
  (*request.mutable_parameters())["temperature"].set_double_param(0.25);
  (*request.mutable_parameters())["n"].set_uint64_param(2);
  for (const char* name : {"text_output", "finish_reason", "cumulative_logprob", "num_input_tokens",
                           "num_output_tokens"})
    request.add_outputs()->set_name(name);
  auto call = world.Infer(request);
  ASSERT_FALSE(call->error) << call->error->message;
  EXPECT_EQ(world.engine->requests.at(0).max_tokens, 9);
  EXPECT_EQ(world.engine->requests[0].sampling.temperature, 0.25f);
  world.engine->Say("abc", FinishReason::kLength, 0, 0);
  world.engine->Say("d", FinishReason::kStop, 0, 1);
  ASSERT_THAT(call->messages, SizeIs(1));
  EXPECT_EQ(call->ends, 1);
  const auto response = call->message<Response>(0);
  EXPECT_EQ(response.id(), "17");
  EXPECT_EQ(response.model_name(), "tiny");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_THAT(Texts(response, "text_output"), ElementsAre("abc", "d"));
  EXPECT_THAT(Texts(response, "finish_reason"), ElementsAre("length", "stop"));
  EXPECT_THAT(Numbers<float>(response, "cumulative_logprob"), ElementsAre(-1.5f, -0.5f));
  EXPECT_THAT(Numbers<uint32_t>(response, "num_input_tokens"), ElementsAre(2u));
  EXPECT_THAT(Numbers<uint32_t>(response, "num_output_tokens"), ElementsAre(3u, 1u));
}

TEST(Kserve, RawContents) {
  World world;
  Request request;
  const auto add = [&](const char* name, const char* type, const std::string& raw) {
    auto& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype(type);
    for (int i : {1, 1}) input.add_shape(i);
    request.add_raw_input_contents(raw);
  };
  const auto bytes = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  add("text_input", "BYTES", bytes(uint32_t{2}) + "hi");
  add("temperature", "FP32", bytes(0.3f));
  add("max_tokens", "INT32", bytes(int32_t{5}));
  add("ignore_eos", "BOOL", std::string(1, '\1'));
  add("random_seed", "UINT64", bytes(uint64_t{12}));
  auto call = world.Infer(request);
  ASSERT_FALSE(call->error) << call->error->message;
  const GenerateRequest& got = world.engine->requests.at(0);
  EXPECT_THAT(got.prompt, ElementsAre('h', 'i'));
  EXPECT_EQ(got.sampling.temperature, 0.3f);
  EXPECT_EQ(got.max_tokens, 5);
  EXPECT_EQ(got.sampling.seed, 12u);
  EXPECT_THAT(got.stop_tokens, IsEmpty());
}

TEST(Kserve, WrongTensorsAreNamed) {
  struct Case {
    const char* param;
    const char* says;
    std::function<void(Request&)> spoil;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto add_float = [](Request& r, float value) {
    auto& input = *r.add_inputs();
    input.set_name("temperature");
    input.set_datatype("FP32");
    input.add_shape(1);
    input.mutable_contents()->add_fp32_contents(value);
  };
  const Case cases[] = {
      {"text_input", "2 elements", [](auto& r) { r.mutable_inputs(0)->set_shape(0, 2); }},
      {"text_input", "shape", [](auto& r) { r.mutable_inputs(0)->set_shape(0, -1); }},
      {"text_input", "shape", [](auto& r) { r.mutable_inputs(0)->set_shape(0, INT64_MAX); }},
      {"text_input", "unknown type FP16",
       [](auto& r) { r.mutable_inputs(0)->set_datatype("FP16"); }},
      {"text_input", "UTF-8",
       [](auto& r) {
         *r.mutable_inputs(0)->mutable_contents()->mutable_bytes_contents(0) = "\xC3(";
       }},
      {"text_input", "1 elements", [](auto& r) { r.add_raw_input_contents("\xFF\xFF\xFF\xFFhi"); }},
      {"raw_input_contents", "1 inputs, it has 2",
       [](auto& r) {
         for (int i = 0; i < 2; i++) r.add_raw_input_contents("");
       }},
      {"temperature", "between 0 and 2, it is 2.1", [=](auto& r) { add_float(r, 2.1f); }},
      {"temperature", "finite", [=](auto& r) { add_float(r, nan); }},
      {"stream", "ModelStreamInfer",
       [](auto& r) { (*r.mutable_parameters())["stream"].set_bool_param(true); }},
      {"text_input", "context",
       [](auto& r) {
         *r.mutable_inputs(0)->mutable_contents()->mutable_bytes_contents(0) =
             std::string(200, 'x');
       }},
  };
  for (const Case& wrong : cases) {
    World world;
    Request request = Prompt("hi");
    wrong.spoil(request);
    auto call = world.Infer(request);
    ASSERT_TRUE(call->error) << wrong.says;
    EXPECT_EQ(call->error->status, 400);
    EXPECT_EQ(call->error->param, wrong.param);
    EXPECT_THAT(call->error->message, HasSubstr(wrong.says));
    EXPECT_THAT(world.engine->requests, IsEmpty());
  }
}

TEST(Kserve, ModelsAndVersionsThatThereAreNot) {
  World world;
  Request request = Prompt("hi");
  request.set_model_name("huge");
  EXPECT_EQ(world.Infer(request)->error->status, 404);
  request.set_model_name("alias");
  request.set_model_version("2");
  EXPECT_EQ(world.Infer(request)->error->status, 404);
  request.set_model_version("1");
  EXPECT_FALSE(world.Infer(request)->error);
}

// One ModelStreamInfer call.
struct Stream {
  explicit Stream(World& world)
      : call(std::make_shared<Recorder>()),
        handler(world.methods.at("ModelStreamInfer").stream(call)) {}
  void Send(const Request& request) { handler->OnMessage(request.SerializeAsString()); }
  StreamResponse response(size_t i) const { return call->message<StreamResponse>(i); }
  std::shared_ptr<Recorder> call;
  std::shared_ptr<GrpcStreamHandler> handler;
};

bool IsFinal(const StreamResponse& response) {
  return response.infer_response().parameters().at("triton_final_response").bool_param();
}

TEST(Kserve, StreamsPiecesOfSeveralRequests) {
  World world;
  Stream stream(world);
  Request first = Prompt("a", "1"), second = Prompt("b", "2");
  (*first.mutable_parameters())["stream"].set_bool_param(true);
  stream.Send(first);
  stream.Send(second);
  stream.handler->OnEnd();
  ASSERT_THAT(world.engine->requests, SizeIs(2));
  world.engine->Say("x", std::nullopt, 0);
  world.engine->Say("whole", FinishReason::kStop, 1);
  EXPECT_EQ(stream.call->ends, 0);
  world.engine->Say("y", FinishReason::kLength, 0);
  ASSERT_THAT(stream.call->messages, SizeIs(3));
  EXPECT_EQ(stream.response(0).infer_response().id(), "1");
  EXPECT_THAT(Texts(stream.response(0).infer_response(), "text_output"), ElementsAre("x"));
  EXPECT_FALSE(IsFinal(stream.response(0)));
  EXPECT_EQ(stream.response(1).infer_response().id(), "2");
  EXPECT_THAT(Texts(stream.response(1).infer_response(), "text_output"), ElementsAre("whole"));
  EXPECT_TRUE(IsFinal(stream.response(1)));
  EXPECT_THAT(Texts(stream.response(2).infer_response(), "text_output"), ElementsAre("y"));
  EXPECT_TRUE(IsFinal(stream.response(2)));
  EXPECT_EQ(stream.call->ends, 1);
  EXPECT_FALSE(stream.call->error);
}

TEST(Kserve, AnErrorEndsItsRequestOnly) {
  World world;
  Stream stream(world);
  Request wrong = Prompt("a", "1");
  (*wrong.mutable_parameters())["temperature"].set_double_param(9);
  stream.Send(wrong);
  ASSERT_THAT(stream.call->messages, SizeIs(1));
  EXPECT_THAT(stream.response(0).error_message(), HasSubstr("INVALID_ARGUMENT: 'temperature'"));
  EXPECT_EQ(stream.response(0).infer_response().id(), "1");
  stream.Send(Prompt("b", "2"));
  world.engine->Say("fine", FinishReason::kStop);
  EXPECT_THAT(Texts(stream.response(1).infer_response(), "text_output"), ElementsAre("fine"));
  EXPECT_EQ(stream.call->ends, 0);
  stream.handler->OnEnd();
  EXPECT_EQ(stream.call->ends, 1);
}

TEST(Kserve, AClientThatLeavesCancelsAll) {
  World world;
  Stream stream(world);
  for (const char* id : {"1", "2"}) stream.Send(Prompt("a", id));
  world.engine->Say("done", FinishReason::kStop, 0);
  stream.call->disconnect();
  EXPECT_THAT(world.engine->cancelled,
              ElementsAre(std::make_pair(world.engine->requests[1].id, -1)));
  stream.Send(Prompt("a", "3"));  // was on its way
  EXPECT_THAT(world.engine->cancelled, SizeIs(2));
}

TEST(Kserve, HealthAndMetadata) {
  World world;
  for (const char* name : {"ServerLive", "ServerReady"}) EXPECT_TRUE(world.methods.at(name).open);
  EXPECT_FALSE(world.methods.at("ModelMetadata").open);
  const auto ready = [&] {
    return world.Call("ServerReady", ::inference::ServerReadyRequest())
        ->message<::inference::ServerReadyResponse>(0)
        .ready();
  };
  const auto model_ready = [&](const std::string& name) {
    ::inference::ModelReadyRequest request;
    request.set_name(name);
    return world.Call("ModelReady", request)->message<::inference::ModelReadyResponse>(0).ready();
  };
  EXPECT_TRUE(world.Call("ServerLive", ::inference::ServerLiveRequest())
                  ->message<::inference::ServerLiveResponse>(0)
                  .live());
  EXPECT_TRUE(ready());
  EXPECT_TRUE(model_ready("alias"));
  EXPECT_FALSE(model_ready("huge"));
  world.ready = false;
  EXPECT_FALSE(ready());
  EXPECT_FALSE(model_ready("alias"));
  const auto server = world.Call("ServerMetadata", ::inference::ServerMetadataRequest())
                          ->message<::inference::ServerMetadataResponse>(0);
  EXPECT_EQ(server.name(), "staffel");
  EXPECT_EQ(server.version(), "1.2.3");
  ::inference::ModelMetadataRequest request;
  request.set_name("tiny");
  const auto model =
      world.Call("ModelMetadata", request)->message<::inference::ModelMetadataResponse>(0);
  EXPECT_THAT(model.versions(), ElementsAre("1"));
  EXPECT_EQ(model.inputs(0).name(), "text_input");
  EXPECT_EQ(model.outputs(0).name(), "text_output");
  request.set_name("huge");
  EXPECT_EQ(world.Call("ModelMetadata", request)->error->status, 404);
}

}  // namespace
}  // namespace staffel::api::kserve
