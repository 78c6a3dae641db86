// KServe's JSON form of a request, with Triton's extension for binary tensors. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "server/api/json_parse.h"
#include "server/kserve/request.h"

namespace staffel::api::kserve {

struct HttpInfer {
  InferRequest request;
  std::string id;
  bool binary = false;                        // outputs that do not say
  std::map<std::string, bool> binary_output;  // of those that do
};

// `header_length`: Inference-Header-Content-Length, the bytes of JSON in front of the binary
// tensors, or "" where all is JSON. Refused, with the tensor's name as param: shapes that do not
// agree with the elements, types that the protocol does not have, texts that are not UTF-8.
Checked<HttpInfer> ReadInferBody(std::string_view body, std::string_view header_length);

// A request of Triton's generate extension: an object of inputs by name; everything else, and the
// members of `parameters`, are parameters.
Checked<InferRequest> ReadGenerateBody(std::string_view body);

}  // namespace staffel::api::kserve
