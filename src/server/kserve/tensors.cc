#include "server/kserve/tensors.h"

#include <optional>
#include <utility>

#include "base/strings.h"
#include "server/grpc/message.h"
#include "server/kserve/raw_values.h"

namespace staffel::api::kserve {
namespace {

using ::inference::InferParameter;
using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;
using InputMessage = ModelInferRequest::InferInputTensor;

// Elements by the protocol's shape; -1: it is no shape, or too large.
int64_t CountOf(const InputMessage& input) {
  int64_t count = 1;
  for (const int64_t size : input.shape()) {
    if (size < 0 || size > kElementsMax) return -1;
    count *= size;
    if (count > kElementsMax) return -1;
  }
  return count;
}

template <class List>
bool Take(const List& list, int64_t count, Json& values) {
  if (list.size() != count) return false;
  for (const auto& value : list) values.push_back(value);
  return true;
}

std::optional<bool> TakeContents(std::string_view type, const InputMessage& input, int64_t count,
                                 Json& values) {
  const ::inference::InferTensorContents& contents = input.contents();
  if (type == "BYTES") return Take(contents.bytes_contents(), count, values);
  if (type == "BOOL") return Take(contents.bool_contents(), count, values);
  if (type == "INT8" || type == "INT16" || type == "INT32")
    return Take(contents.int_contents(), count, values);
  if (type == "INT64") return Take(contents.int64_contents(), count, values);
  if (type == "UINT8" || type == "UINT16" || type == "UINT32")
    return Take(contents.uint_contents(), count, values);
  if (type == "UINT64") return Take(contents.uint64_contents(), count, values);
  if (type == "FP64") return Take(contents.fp64_contents(), count, values);
  if (type != "FP32") return std::nullopt;
  if (contents.fp32_contents_size() != count) return false;
  for (const float value : contents.fp32_contents()) values.push_back(WidenFloat(value));
  return true;
}

Json ValueOf(const InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return parameter.bool_param();
    case InferParameter::kInt64Param:
      return parameter.int64_param();
    case InferParameter::kUint64Param:
      return parameter.uint64_param();
    case InferParameter::kDoubleParam:
      return parameter.double_param();
    case InferParameter::kStringParam:
      return parameter.string_param();
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      return nullptr;
  }
  return nullptr;
}

void AddOutput(std::string_view name, const char* type, size_t count, std::string raw,
               ModelInferResponse& response) {
  ModelInferResponse::InferOutputTensor& output = *response.add_outputs();
  output.set_name(std::string(name));
  output.set_datatype(type);
  output.add_shape(static_cast<int64_t>(count));
  *response.add_raw_output_contents() = std::move(raw);
}

template <class T>
void AddElements(std::string_view name, const char* type, const std::vector<T>& elements,
                 ModelInferResponse& response) {
  std::string raw;
  for (const T& element : elements) AppendRaw(raw, element);
  AddOutput(name, type, elements.size(), std::move(raw), response);
}

}  // namespace

Checked<InferRequest> FromMessage(const ModelInferRequest& message) {
  InferRequest request;
  const bool raw = message.raw_input_contents_size() > 0;
  if (raw && message.raw_input_contents_size() != message.inputs_size()) {
    return Invalid(
        "raw_input_contents",
        StrCat("'raw_input_contents' must have one entry for each of the ", message.inputs_size(),
               " inputs, it has ", message.raw_input_contents_size()));
  }
  for (int i = 0; i < message.inputs_size(); i++) {
    const InputMessage& input = message.inputs(i);
    Tensor tensor{.name = input.name(), .datatype = input.datatype()};
    const int64_t count = CountOf(input);
    if (count < 0)
      return WrongInput(tensor.name,
                        StrCat("must have a shape of at most ", kElementsMax, " elements"));
    const std::optional<bool> fits =
        raw ? LoadRaw(tensor.datatype, message.raw_input_contents(i), count, tensor.values)
            : TakeContents(tensor.datatype, input, count, tensor.values);
    if (!fits)
      return WrongInput(tensor.name,
                        StrCat("has the unknown type ", tensor.datatype.substr(0, 20)));
    if (!*fits) {
      return WrongInput(tensor.name, StrCat("does not have the ", count, " elements of the type ",
                                            tensor.datatype, " that its shape says"));
    }
    if (auto error = CheckValues(tensor)) return *std::move(error);
    request.inputs.push_back(std::move(tensor));
  }
  for (const auto& [name, value] : message.parameters()) request.parameters[name] = ValueOf(value);
  for (const auto& output : message.outputs()) request.outputs.push_back(output.name());
  return request;
}

void AddBytes(std::string_view name, const std::vector<std::string>& elements,
              ModelInferResponse& response) {
  AddElements(name, "BYTES", elements, response);
}

void AddFloats(std::string_view name, const std::vector<float>& elements,
               ModelInferResponse& response) {
  AddElements(name, "FP32", elements, response);
}

void AddCounts(std::string_view name, const std::vector<uint32_t>& elements,
               ModelInferResponse& response) {
  AddElements(name, "UINT32", elements, response);
}

}  // namespace staffel::api::kserve
