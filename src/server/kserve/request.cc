#include "server/kserve/request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/strings.h"

namespace staffel::api::kserve {
namespace {

enum class Use : uint8_t {
  kField,     // one element, a field of the core
  kList,      // any number of strings, a field of the core
  kSampling,  // the text of a JSON object with fields of the core
  kExclude,   // whether the prompt is left out of the answer
  kOutput,    // asks for an output
  kOne,       // must be 1: other values mean what there is not
  kIgnored,
};

struct Input {
  std::string_view name, datatype;
  Use use = Use::kField;
  std::string_view target = {};  // the field, or the output; "": of the same name
};

constexpr Input kInputs[] = {
    {"text_input", "BYTES", Use::kField, "prompt"},
    {"stream", "BOOL"},
    {"sampling_parameters", "BYTES", Use::kSampling},
    {"exclude_input_in_output", "BOOL", Use::kExclude},
    {"max_tokens", "INT32"},
    {"min_tokens", "INT32"},
    {"min_length", "INT32", Use::kField, "min_tokens"},
    {"temperature", "FP32"},
    {"top_p", "FP32"},
    {"top_k", "INT32"},
    {"min_p", "FP32"},
    {"presence_penalty", "FP32"},
    {"frequency_penalty", "FP32"},
    {"repetition_penalty", "FP32"},
    {"seed", "INT64"},
    {"random_seed", "UINT64", Use::kField, "seed"},
    {"ignore_eos", "BOOL"},
    {"n", "INT32"},
    {"stop", "BYTES", Use::kList},
    {"stop_words", "BYTES", Use::kList, "stop"},
    {"bad_words", "BYTES", Use::kList},
    {"return_finish_reason", "BOOL", Use::kOutput, "finish_reason"},
    {"return_cumulative_logprob", "BOOL", Use::kOutput, "cumulative_logprob"},
    {"return_num_input_tokens", "BOOL", Use::kOutput, "num_input_tokens"},
    {"return_num_output_tokens", "BOOL", Use::kOutput, "num_output_tokens"},
    {"beam_width", "INT32", Use::kOne},
    {"end_id", "INT32", Use::kIgnored},  // the model's own are known
    {"pad_id", "INT32", Use::kIgnored},
    {"length_penalty", "FP32", Use::kIgnored},  // of beams
};

constexpr TensorInfo kOutputs[] = {{"text_output", "BYTES", -1},
                                   {"finish_reason", "BYTES", -1},
                                   {"cumulative_logprob", "FP32", -1},
                                   {"num_input_tokens", "UINT32", 1},
                                   {"num_output_tokens", "UINT32", -1}};

// Parameters that are the protocol's or the transport's, and no fields.
bool IsOfProtocol(std::string_view name) {
  return name.starts_with("triton_") || name.starts_with("sequence_") ||
         name.starts_with("binary_data") || name == "priority" || name == "timeout" ||
         name == "headers" || name == "content-type";
}

const Input* Find(std::string_view name) {
  const auto found = std::find_if(std::begin(kInputs), std::end(kInputs),
                                  [&](const Input& input) { return input.name == name; });
  return found == std::end(kInputs) ? nullptr : found;
}

class Reader {
 public:
  explicit Reader(const InferRequest& request) : request_(request) {}

  Checked<Completion> Read() {
    for (const Tensor& tensor : request_.inputs) {
      const Input* input = Find(tensor.name);
      if (input == nullptr) {
        Fail(tensor.name, StrCat("there is no input '", tensor.name.substr(0, 64),
                                 "'; metadata lists those that there are"));
        break;
      }
      ReadInput(*input, tensor);
    }
    for (const auto& [name, value] : request_.parameters.items()) {
      if (!IsOfProtocol(name)) ReadParameter(name, value);
    }
    ReadOutputs();
    if (!error_ && !out_.body.contains("prompt"))
      Fail("text_input", "the input 'text_input' is missing; it has the prompt");
    if (error_) return *std::move(error_);
    return std::move(out_);
  }

 private:
  void Fail(std::string_view param, std::string message) {
    if (!error_) error_ = Invalid(param, std::move(message));
  }

  void ReadInput(const Input& input, const Tensor& tensor) {
    if ((input.datatype == "BYTES") != (tensor.datatype == "BYTES")) {
      return Fail(tensor.name, StrCat("the input '", tensor.name, "' must be of the type ",
                                      input.datatype, ", it is ", tensor.datatype.substr(0, 20)));
    }
    if (input.use == Use::kList) {
      Json texts = Json::array();
      for (const Json& text : tensor.values) {
        if (text != "") texts.push_back(text);  // clients send [""] for none
      }
      return Set(input, tensor.name, std::move(texts));
    }
    if (tensor.values.size() != 1) {
      return Fail(tensor.name, StrCat("the input '", tensor.name,
                                      "' must have one element, it has ", tensor.values.size()));
    }
    Apply(input, tensor.name, tensor.values[0]);
  }

  // Parameters are the fields of the core under their own names, too.
  void ReadParameter(const std::string& name, const Json& value) {
    if (const Input* input = Find(name)) return Apply(*input, name, value);
    if (name != "model" && name != "prompt" && name != "echo") SetField(name, value);
  }

  void Apply(const Input& input, const std::string& name, const Json& value) {
    switch (input.use) {
      case Use::kField:
      case Use::kList:
        return Set(input, name, value);
      case Use::kSampling:
        return ReadSampling(name, value);
      case Use::kExclude:
        if (!IsBool(name, value)) return;
        return SetField("echo", !value.get<bool>());
      case Use::kOutput:
        if (IsBool(name, value) && value.get<bool>()) wished_.push_back(input.target);
        return;
      case Use::kOne:
        if (value != 1)
          Fail(name, StrCat("'", name, "' must be 1: this server has no beam search"));
        return;
      case Use::kIgnored:
        return;
    }
  }

  bool IsBool(const std::string& name, const Json& value) {
    if (value.is_boolean()) return true;
    Fail(name, StrCat("'", name, "' must be true or false, it is ", TypeName(value)));
    return false;
  }

  void ReadSampling(const std::string& name, const Json& value) {
    if (!value.is_string())
      return Fail(name, StrCat("'", name, "' must be the text of a JSON object"));
    Checked<Json> parsed = ParseBody(value.get_ref<const std::string&>());
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      return Fail(name, StrCat("'", name, "' must be the text of a JSON object: ", error->message));
    }
    for (const auto& [key, item] : std::get<Json>(parsed).items()) ReadParameter(key, item);
  }

  void Set(const Input& input, const std::string& name, Json value) {
    const std::string field(input.target.empty() ? input.name : input.target);
    if (out_.body.contains(field)) {
      return Fail(name, StrCat("'", name, "' is there twice, or under two names"));
    }
    // Seeds are 64 bits, whatever their sign.
    if (field == "seed" && value.is_number_unsigned())
      value = static_cast<int64_t>(value.get<uint64_t>());
    out_.body[field] = std::move(value);
  }
  void SetField(const std::string& field, Json value) {
    if (!out_.body.contains(field)) out_.body[field] = std::move(value);
  }

  void ReadOutputs() {
    for (const std::string& name : request_.outputs) {
      const bool known = std::any_of(std::begin(kOutputs), std::end(kOutputs),
                                     [&](const TensorInfo& info) { return info.name == name; });
      if (!known) {
        return Fail(name, StrCat("there is no output '", name.substr(0, 64),
                                 "'; metadata lists those that there are"));
      }
      wished_.push_back(name);
    }
    if (request_.outputs.empty()) wished_.emplace_back("text_output");
    for (const TensorInfo& info : kOutputs) {
      if (std::find(wished_.begin(), wished_.end(), info.name) != wished_.end())
        out_.outputs.emplace_back(info.name);
    }
    if (std::find(wished_.begin(), wished_.end(), "cumulative_logprob") != wished_.end())
      SetField("logprobs", 0);
  }

  const InferRequest& request_;
  Completion out_{.body = Json::object(), .outputs = {}};
  std::vector<std::string_view> wished_;
  std::optional<ApiError> error_;
};

}  // namespace

Checked<Completion> ReadInfer(const InferRequest& request) { return Reader(request).Read(); }

std::vector<TensorInfo> Inputs() {
  std::vector<TensorInfo> inputs;
  for (const Input& input : kInputs)
    inputs.push_back({input.name, input.datatype, input.use == Use::kList ? -1 : 1});
  return inputs;
}

std::span<const TensorInfo> Outputs() { return kOutputs; }

}  // namespace staffel::api::kserve
