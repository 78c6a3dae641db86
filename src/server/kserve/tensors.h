// Tensors of proto/kserve.proto from messages, and into them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kserve.pb.h"
#include "server/api/json_parse.h"
#include "server/kserve/request.h"

namespace staffel::api::kserve {

// Inputs from `contents` or raw_input_contents, parameters and the names of outputs. Refused, with
// the tensor's name as param: shapes that do not agree with the elements, types that the protocol
// does not have, texts that are not UTF-8.
Checked<InferRequest> FromMessage(const ::inference::ModelInferRequest& message);

// Appends an output with its elements to raw_output_contents.
void AddBytes(std::string_view name, const std::vector<std::string>& elements,
              ::inference::ModelInferResponse& response);
void AddFloats(std::string_view name, const std::vector<float>& elements,
               ::inference::ModelInferResponse& response);
void AddCounts(std::string_view name, const std::vector<uint32_t>& elements,
               ::inference::ModelInferResponse& response);

}  // namespace staffel::api::kserve
