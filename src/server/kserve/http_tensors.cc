#include "server/kserve/http_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "server/kserve/raw_values.h"

namespace staffel::api::kserve {
namespace {

// Elements by the protocol's shape; -1: it is none, or too large.
int64_t CountOf(const Json* shape) {
  if (shape == nullptr) return -1;
  int64_t count = 1;
  for (const Json& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > kElementsMax) return -1;
    count *= size.get<int64_t>();
    if (count > kElementsMax) return -1;
  }
  return count;
}

// Nested arrays in a row; false: more than there may be.
bool Flatten(const Json& value, Json& out) {
  if (!value.is_array()) {
    out.push_back(value);
    return static_cast<int64_t>(out.size()) <= kElementsMax;
  }
  return std::all_of(value.begin(), value.end(),
                     [&](const Json& item) { return Flatten(item, out); });
}

bool HasType(std::string_view type, const Json& value) {
  if (type == "BYTES") return value.is_string();
  if (type == "BOOL") return value.is_boolean();
  return type.starts_with("FP") ? value.is_number() : value.is_number_integer();
}

class BodyReader {
 public:
  BodyReader(const Json& body, std::string_view binary) : body_(body), binary_(binary) {}

  Checked<HttpInfer> Read() {
    FieldReader reader(body_);
    out_.id = reader.String("id").value_or("");
    if (const Json* parameters = reader.Object("parameters")) {
      out_.request.parameters = *parameters;
      FieldReader fields(*parameters, "parameters.");
      out_.binary = fields.Bool("binary_data_output").value_or(false);
      if (!fields.ok()) return *fields.error();
    }
    const Json* inputs = reader.Array("inputs");
    if (inputs == nullptr) reader.Fail("inputs", "'inputs' is missing; send an array of tensors");
    const Json* outputs = reader.Array("outputs");
    if (!reader.ok()) return *reader.error();
    for (const Json& input : *inputs) {
      if (auto error = ReadInput(input)) return *std::move(error);
    }
    if (outputs != nullptr) {
      for (const Json& output : *outputs) {
        if (auto error = ReadOutput(output)) return *std::move(error);
      }
    }
    if (!binary_.empty())
      return Invalid("", StrCat("the body has ", binary_.size(), " bytes behind its last tensor"));
    return std::move(out_);
  }

 private:
  std::optional<ApiError> ReadInput(const Json& input) {
    if (!input.is_object()) return Invalid("inputs", "'inputs' must hold objects");
    FieldReader reader(input, "inputs.");
    Tensor tensor{.name = reader.String("name").value_or(""),
                  .datatype = reader.String("datatype").value_or("")};
    const int64_t count = CountOf(reader.Array("shape"));
    const Json* data = reader.Array("data");
    std::optional<int64_t> size;
    const Json* parameters = reader.Object("parameters");
    if (parameters != nullptr)
      size = FieldReader(*parameters).Int("binary_data_size", 0, INT64_MAX);
    if (!reader.ok()) return reader.error();
    if (tensor.name.empty()) return Invalid("inputs", "'inputs' must hold tensors with a name");
    if (count < 0)
      return WrongInput(tensor.name,
                        StrCat("must have a shape of at most ", kElementsMax, " elements"));
    if ((data == nullptr) == !size)
      return WrongInput(tensor.name, "must have either 'data' or the parameter 'binary_data_size'");
    std::optional<bool> fits;
    if (size) {
      if (static_cast<uint64_t>(*size) > binary_.size())
        return WrongInput(tensor.name, "has fewer bytes in the body than its 'binary_data_size'");
      fits = LoadRaw(tensor.datatype, binary_.substr(0, *size), count, tensor.values);
      binary_.remove_prefix(*size);
    } else {
      fits = TakeData(tensor.datatype, *data, count, tensor.values);
    }
    if (!fits)
      return WrongInput(tensor.name,
                        StrCat("has the unknown type ", tensor.datatype.substr(0, 20)));
    if (!*fits) {
      return WrongInput(tensor.name, StrCat("does not have the ", count, " elements of the type ",
                                            tensor.datatype, " that its shape says"));
    }
    if (auto error = CheckValues(tensor)) return error;
    out_.request.inputs.push_back(std::move(tensor));
    return std::nullopt;
  }

  static std::optional<bool> TakeData(std::string_view type, const Json& data, int64_t count,
                                      Json& values) {
    Json none = Json::array();
    if (!LoadRaw(type, "", 0, none)) return std::nullopt;
    return Flatten(data, values) && static_cast<int64_t>(values.size()) == count &&
           std::all_of(values.begin(), values.end(),
                       [&](const Json& value) { return HasType(type, value); });
  }

  std::optional<ApiError> ReadOutput(const Json& output) {
    if (!output.is_object()) return Invalid("outputs", "'outputs' must hold objects");
    FieldReader reader(output, "outputs.");
    const auto name = reader.String("name");
    if (!name) reader.Fail("name", "'outputs.name' is missing");
    if (const Json* parameters = reader.Object("parameters")) {
      FieldReader fields(*parameters, "outputs.parameters.");
      if (const auto binary = fields.Bool("binary_data"); binary && name)
        out_.binary_output[*name] = *binary;
      if (!fields.ok()) return fields.error();
    }
    if (!reader.ok()) return reader.error();
    out_.request.outputs.push_back(*name);
    return std::nullopt;
  }

  const Json& body_;
  std::string_view binary_;  // what has not been read
  HttpInfer out_;
};

}  // namespace

Checked<HttpInfer> ReadInferBody(std::string_view body, std::string_view header_length) {
  std::string_view binary;
  if (!header_length.empty()) {
    size_t length = 0;
    const char* end = header_length.data() + header_length.size();
    const auto parsed = std::from_chars(header_length.data(), end, length);
    if (parsed.ec != std::errc() || parsed.ptr != end || length > body.size()) {
      return Invalid("", StrCat("Inference-Header-Content-Length must be a number up to the ",
                                body.size(), " bytes of the body"));
    }
    binary = body.substr(length);
    body = body.substr(0, length);
  }
  Checked<Json> parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return BodyReader(std::get<Json>(parsed), binary).Read();
}

Checked<InferRequest> ReadGenerateBody(std::string_view body) {
  Checked<Json> parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  FieldReader reader(std::get<Json>(parsed));
  InferRequest request;
  if (const Json* parameters = reader.Object("parameters")) request.parameters = *parameters;
  if (!reader.ok()) return *reader.error();
  const std::vector<TensorInfo> known = Inputs();
  for (const auto& [name, value] : reader.object().items()) {
    if (name == "parameters" || value.is_null()) continue;
    const auto input = std::find_if(known.begin(), known.end(),
                                    [&](const TensorInfo& info) { return info.name == name; });
    if (input == known.end()) {
      request.parameters[name] = value;
      continue;
    }
    Tensor tensor{.name = name, .datatype = std::string(input->datatype)};
    if (!Flatten(value, tensor.values))
      return WrongInput(name, StrCat("must have at most ", kElementsMax, " elements"));
    for (const Json& item : tensor.values) {
      if (!HasType(tensor.datatype, item)) {
        return WrongInput(
            name, StrCat("must be of the type ", tensor.datatype, ", it is ", TypeName(item)));
      }
    }
    request.inputs.push_back(std::move(tensor));
  }
  return request;
}

}  // namespace staffel::api::kserve
