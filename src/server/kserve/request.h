// What KServe's protocol asks of a model that generates text: named tensors and parameters, with
// the names that Triton's backends for LLMs (vLLM, TensorRT-LLM) have for them. Whatever carries
// them (JSON, messages) makes values of these types. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/json_parse.h"

namespace staffel::api::kserve {

struct Tensor {
  std::string name;
  std::string datatype;         // "BYTES", "INT32", ...
  Json values = Json::array();  // all elements in a row; those of BYTES are strings
};

struct InferRequest {
  std::vector<Tensor> inputs;
  Json parameters = Json::object();  // scalars by name
  std::vector<std::string> outputs;  // names; none: text_output and what inputs ask for
};

// The request in the core's words.
struct Completion {
  Json body;                         // for ReadCompletion
  std::vector<std::string> outputs;  // of kOutputs, text_output first
};

// Refused, with the tensor's name as param: inputs that there are not, twice, with more or fewer
// elements than they may have; outputs that there are not.
Checked<Completion> ReadInfer(const InferRequest& request);

// For metadata. Shapes: -1: any number of elements, 1: one.
struct TensorInfo {
  std::string_view name, datatype;
  int shape = 1;
};
std::vector<TensorInfo> Inputs();
std::span<const TensorInfo> Outputs();

}  // namespace staffel::api::kserve
