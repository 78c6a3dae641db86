#include "server/openai/answer.h"

#include <string>
#include <utility>
#include <vector>

namespace staffel::api::openai {
namespace {

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, const GenerationOptions& options,
         std::unique_ptr<ResponseFormat> format)
      : HttpSink(std::move(writer)),
        usage_asked_for_(options.include_usage),
        stream_(options.stream),
        format_(std::move(format)) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream();
    return true;
  }

  bool OpenChoice(const ChoiceResult& choice) override {
    const std::string data = format_->OpenChunk(choice);
    return data.empty() || writer().WriteEvent(data);
  }

  // The finish comes in a chunk of its own.
  bool WritePiece(int index, const Piece& piece) override {
    if (!piece.finish) return writer().WriteEvent(format_->PieceChunk(index, piece));
    if (!piece.text.empty() || !piece.deltas.empty() || !piece.tokens.empty()) {
      Piece text;
      text.text = piece.text;
      text.deltas = piece.deltas;
      text.tokens = piece.tokens;
      text.usage = piece.usage;
      if (!writer().WriteEvent(format_->PieceChunk(index, text))) return false;
    }
    Piece last = piece;
    last.text.clear();
    last.deltas.clear();
    last.tokens.clear();
    return writer().WriteEvent(format_->PieceChunk(index, last));
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) override {
    if (!stream_) return writer().Send(200, "application/json", format_->Whole(choices, usage));
    if (usage_asked_for_) writer().WriteEvent(format_->UsageChunk(usage));
    End();
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendError(writer(), error);
    writer().WriteEvent(ErrorBody(error));
    End();
  }

 private:
  void End() {
    writer().WriteEvent("[DONE]");
    writer().EndStream();
  }

  const bool usage_asked_for_, stream_;
  const std::unique_ptr<ResponseFormat> format_;
  bool streaming_ = false;
};

}  // namespace

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       const GenerationOptions& options,
                                       std::unique_ptr<ResponseFormat> format) {
  return std::make_unique<Answer>(std::move(writer), options, std::move(format));
}

}  // namespace staffel::api::openai
