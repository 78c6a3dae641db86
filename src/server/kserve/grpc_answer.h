// Answers to ModelInfer and ModelStreamInfer as messages.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kserve.pb.h"
#include "server/api/answer_sink.h"

namespace staffel::api::kserve {

// Where the responses to one request go. One of End and Fail is the last call.
class InferOutput {
 public:
  virtual ~InferOutput() = default;
  // False: the client is gone or too slow.
  virtual bool Write(const ::inference::ModelInferResponse& response) = 0;
  virtual void End() = 0;
  virtual void Fail(const ApiError& error) = 0;
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

struct AnswerOptions {
  ::inference::ModelInferResponse envelope;  // model, version and id
  std::vector<std::string> outputs;          // names, text_output first where it is wished
  bool stream = false;
  uint32_t prompt_tokens = 0;
};

// Sets the parameter triton_final_response, which each response has.
void SetFinal(bool last, ::inference::ModelInferResponse& response);

std::unique_ptr<AnswerSink> MakeAnswer(std::unique_ptr<InferOutput> output, AnswerOptions options);

}  // namespace staffel::api::kserve
