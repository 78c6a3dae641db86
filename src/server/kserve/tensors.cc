#include "server/kserve/tensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "server/grpc/message.h"
#include "text/utf8.h"

namespace staffel::api::kserve {
namespace {

using ::inference::InferParameter;
using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;
using InputMessage = ModelInferRequest::InferInputTensor;

static_assert(std::endian::native == std::endian::little, "raw contents are little-endian");

constexpr int64_t kElementsMax = 4096;  // of one tensor: they are texts and parameters, no data

ApiError Wrong(const std::string& name, std::string_view what) {
  return Invalid(name, StrCat("the input '", name.substr(0, 64), "' ", what));
}

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

template <class T>
T Load(std::string_view raw, int64_t index) {
  T value;
  std::memcpy(&value, raw.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
bool LoadAll(std::string_view raw, int64_t count, Json& values) {
  if (raw.size() != static_cast<size_t>(count) * sizeof(T)) return false;
  for (int64_t i = 0; i < count; i++) {
    const T value = Load<T>(raw, i);
    if constexpr (std::is_same_v<T, float>) {
      values.push_back(WidenFloat(value));
    } else {
      values.push_back(value);
    }
  }
  return true;
}

bool LoadBools(std::string_view raw, int64_t count, Json& values) {
  if (raw.size() != static_cast<size_t>(count)) return false;
  for (const char byte : raw) values.push_back(byte != 0);
  return true;
}

bool LoadTexts(std::string_view raw, int64_t count, Json& values) {
  for (int64_t i = 0; i < count; i++) {
    if (raw.size() < sizeof(uint32_t)) return false;
    const auto size = Load<uint32_t>(raw, 0);
    raw.remove_prefix(sizeof(uint32_t));
    if (raw.size() < size) return false;
    values.push_back(std::string(raw.substr(0, size)));
    raw.remove_prefix(size);
  }
  return raw.empty();
}

// nullopt: the protocol has no such type.
std::optional<bool> LoadRaw(std::string_view type, std::string_view raw, int64_t count,
                            Json& values) {
  if (type == "BYTES") return LoadTexts(raw, count, values);
  if (type == "BOOL") return LoadBools(raw, count, values);
  if (type == "INT8") return LoadAll<int8_t>(raw, count, values);
  if (type == "INT16") return LoadAll<int16_t>(raw, count, values);
  if (type == "INT32") return LoadAll<int32_t>(raw, count, values);
  if (type == "INT64") return LoadAll<int64_t>(raw, count, values);
  if (type == "UINT8") return LoadAll<uint8_t>(raw, count, values);
  if (type == "UINT16") return LoadAll<uint16_t>(raw, count, values);
  if (type == "UINT32") return LoadAll<uint32_t>(raw, count, values);
  if (type == "UINT64") return LoadAll<uint64_t>(raw, count, values);
  if (type == "FP32") return LoadAll<float>(raw, count, values);
  if (type == "FP64") return LoadAll<double>(raw, count, values);
  return std::nullopt;
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

bool IsUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

std::optional<ApiError> CheckValues(const Tensor& tensor) {
  for (const Json& value : tensor.values) {
    if (value.is_string() && !IsUtf8(value.get_ref<const std::string&>()))
      return Wrong(tensor.name, "is not UTF-8");
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
      return Wrong(tensor.name, "must be a finite number");
  }
  return std::nullopt;
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
void AddNumbers(std::string_view name, const char* type, const std::vector<T>& elements,
                ModelInferResponse& response) {
  std::string raw(elements.size() * sizeof(T), '\0');
  if (!elements.empty()) std::memcpy(raw.data(), elements.data(), raw.size());
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
      return Wrong(tensor.name, StrCat("must have a shape of at most ", kElementsMax, " elements"));
    const std::optional<bool> fits =
        raw ? LoadRaw(tensor.datatype, message.raw_input_contents(i), count, tensor.values)
            : TakeContents(tensor.datatype, input, count, tensor.values);
    if (!fits)
      return Wrong(tensor.name, StrCat("has the unknown type ", tensor.datatype.substr(0, 20)));
    if (!*fits) {
      return Wrong(tensor.name, StrCat("does not have the ", count, " elements of the type ",
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
  std::string raw;
  for (const std::string& element : elements) {
    const auto size = static_cast<uint32_t>(element.size());
    raw.append(reinterpret_cast<const char*>(&size), sizeof(size));
    raw += element;
  }
  AddOutput(name, "BYTES", elements.size(), std::move(raw), response);
}

void AddFloats(std::string_view name, const std::vector<float>& elements,
               ModelInferResponse& response) {
  AddNumbers(name, "FP32", elements, response);
}

void AddCounts(std::string_view name, const std::vector<uint32_t>& elements,
               ModelInferResponse& response) {
  AddNumbers(name, "UINT32", elements, response);
}

}  // namespace staffel::api::kserve
