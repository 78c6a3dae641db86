#include "server/kserve/http_answer.h"

#include <utility>

#include "base/strings.h"
#include "server/api/json_parse.h"
#include "server/kserve/part.h"
#include "server/kserve/raw_values.h"
#include "server/kserve/request.h"

namespace staffel::api::kserve {
namespace {

using Form = HttpAnswerOptions::Form;

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, HttpAnswerOptions options)
      : HttpSink(std::move(writer)), options_(std::move(options)) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream();
    return true;
  }

  bool OpenChoice(const ChoiceResult& choice) override {
    return choice.echo_text.empty() || WriteEvent({.text = choice.echo_text});
  }

  bool WritePiece(int, const Piece& piece) override { return WriteEvent(PartOf(piece, logprob_)); }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage&) override {
    if (streaming_) return writer().EndStream();
    const std::vector<Part> parts = PartsOf(choices);
    if (options_.form == Form::kTensors) return SendTensors(parts);
    if (options_.form == Form::kEvents) {  // one, where a stream was not asked for
      writer().BeginStream();
      writer().WriteEvent(Dump(Object(parts)));
      return writer().EndStream();
    }
    writer().Send(200, "application/json", Dump(Object(parts)));
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendError(writer(), error, ErrorText);
    writer().WriteEvent(ErrorText(error));
    writer().EndStream();
  }

 private:
  Json Envelope() const {
    Json out = {{"model_name", options_.model}, {"model_version", "1"}};
    if (!options_.id.empty()) out["id"] = options_.id;
    return out;
  }

  // The elements of an output.
  Json Values(const std::string& name, const std::vector<Part>& parts) const {
    if (name == "num_input_tokens") return Json::array({options_.prompt_tokens});
    Json values = Json::array();
    for (const Part& part : parts) {
      if (name == "finish_reason") {
        values.push_back(part.finish);
      } else if (name == "cumulative_logprob") {
        values.push_back(part.logprob);
      } else if (name == "num_output_tokens") {
        values.push_back(part.tokens);
      } else {
        values.push_back(part.text);
      }
    }
    return values;
  }

  // One element is no list.
  Json Object(const std::vector<Part>& parts) const {
    Json out = Envelope();
    for (const std::string& name : options_.outputs) {
      Json values = Values(name, parts);
      out[name] = values.size() == 1 ? Json(values[0]) : std::move(values);
    }
    return out;
  }

  bool WriteEvent(Part part) { return writer().WriteEvent(Dump(Object({std::move(part)}))); }

  static std::string_view TypeOf(const std::string& name) {
    for (const TensorInfo& info : Outputs()) {
      if (info.name == name) return info.datatype;
    }
    return "BYTES";
  }

  static std::string Raw(std::string_view type, const Json& values) {
    std::string raw;
    for (const Json& value : values) {
      if (type == "FP32") {
        AppendRaw(raw, value.get<float>());
      } else if (type == "UINT32") {
        AppendRaw(raw, value.get<uint32_t>());
      } else {
        AppendRaw(raw, value.get_ref<const std::string&>());
      }
    }
    return raw;
  }

  void SendTensors(const std::vector<Part>& parts) {
    Json out = Envelope();
    out["outputs"] = Json::array();
    std::string binary;
    for (const std::string& name : options_.outputs) {
      const std::string_view type = TypeOf(name);
      Json values = Values(name, parts);
      Json output = {{"name", name}, {"datatype", type}, {"shape", {values.size()}}};
      const auto said = options_.binary_output.find(name);
      if (said != options_.binary_output.end() ? said->second : options_.binary) {
        const std::string raw = Raw(type, values);
        output["parameters"] = {{"binary_data_size", raw.size()}};
        binary += raw;
      } else {
        output["data"] = std::move(values);
      }
      out["outputs"].push_back(std::move(output));
    }
    const std::string json = Dump(out);
    if (binary.empty()) return writer().Send(200, "application/json", json);
    writer().Send(200, "application/octet-stream", json + binary,
                  {{"Inference-Header-Content-Length", StrCat(json.size())}});
  }

  const HttpAnswerOptions options_;
  bool streaming_ = false;
  float logprob_ = 0;  // of the streamed choice so far
};

}  // namespace

std::unique_ptr<AnswerSink> MakeHttpAnswer(std::shared_ptr<ResponseWriter> writer,
                                           HttpAnswerOptions options) {
  return std::make_unique<Answer>(std::move(writer), std::move(options));
}

std::string ErrorText(const ApiError& error) { return Dump({{"error", error.message}}); }

}  // namespace staffel::api::kserve
