#include "server/kserve/grpc_answer.h"

#include <utility>

#include "server/kserve/part.h"
#include "server/kserve/tensors.h"

namespace staffel::api::kserve {
namespace {

using ::inference::ModelInferResponse;

class Answer final : public AnswerSink {
 public:
  Answer(std::unique_ptr<InferOutput> output, AnswerOptions options)
      : output_(std::move(output)), options_(std::move(options)) {}

  bool BeginStream() override { return true; }

  bool OpenChoice(const ChoiceResult& choice) override {
    return choice.echo_text.empty() || Write({{.text = choice.echo_text}}, /*last=*/false);
  }

  bool WritePiece(int, const Piece& piece) override {
    return Write({PartOf(piece, logprob_)}, piece.finish.has_value());
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage&) override {
    if (!options_.stream) Write(PartsOf(choices), /*last=*/true);
    output_->End();
  }

  void Fail(const ApiError& error) override { output_->Fail(error); }

  void OnDisconnect(std::function<void()> callback) override {
    output_->OnDisconnect(std::move(callback));
  }

 private:
  bool Write(const std::vector<Part>& parts, bool last) {
    ModelInferResponse response = options_.envelope;
    SetFinal(last, response);
    for (const std::string& name : options_.outputs) AddOutput(name, parts, response);
    return output_->Write(response);
  }

  void AddOutput(const std::string& name, const std::vector<Part>& parts,
                 ModelInferResponse& response) const {
    std::vector<std::string> texts;
    std::vector<float> logprobs;
    std::vector<uint32_t> counts;
    for (const Part& part : parts) {
      texts.push_back(name == "finish_reason" ? part.finish : part.text);
      logprobs.push_back(part.logprob);
      counts.push_back(part.tokens);
    }
    if (name == "cumulative_logprob") return AddFloats(name, logprobs, response);
    if (name == "num_input_tokens") return AddCounts(name, {options_.prompt_tokens}, response);
    if (name == "num_output_tokens") return AddCounts(name, counts, response);
    AddBytes(name, texts, response);
  }

  const std::unique_ptr<InferOutput> output_;
  const AnswerOptions options_;
  float logprob_ = 0;  // of the streamed choice so far
};

}  // namespace

void SetFinal(bool last, ModelInferResponse& response) {
  static const std::string kName = "triton_final_response";
  (*response.mutable_parameters())[kName].set_bool_param(last);
}

std::unique_ptr<AnswerSink> MakeAnswer(std::unique_ptr<InferOutput> output, AnswerOptions options) {
  return std::make_unique<Answer>(std::move(output), std::move(options));
}

}  // namespace staffel::api::kserve
