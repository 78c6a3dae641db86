// Answers of the KServe routes: tensors as JSON or behind it in binary form, or the plain objects
// of Triton's generate extension.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/api/answer_sink.h"

namespace staffel::api::kserve {

struct HttpAnswerOptions {
  enum class Form : uint8_t { kTensors, kObject, kEvents };
  Form form = Form::kTensors;
  std::string model;
  std::string id;                    // the client's; "": none
  std::vector<std::string> outputs;  // names
  bool binary = false;               // tensors that are not named here:
  std::map<std::string, bool> binary_output;
  uint32_t prompt_tokens = 0;
};

std::unique_ptr<AnswerSink> MakeHttpAnswer(std::shared_ptr<ResponseWriter> writer,
                                           HttpAnswerOptions options);

// {"error": message}.
std::string ErrorText(const ApiError& error);

}  // namespace staffel::api::kserve
