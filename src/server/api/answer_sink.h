// The seam between the core and the fronts: where the answer to one request goes, whatever its wire
// format. Fronts implement it: SSE, lines of JSON, one JSON document, a gRPC stream.
//
// A front, in full:
//  1. finds the model (ReadModelRequest in prompts.h);
//  2. reads its request into a GenerationSpec. The internal form of a request is a JSON object of
//     OpenAI's field names (generation_request.h): templates read messages and tools in just that
//     shape, so a front with other names builds such an object in memory, no text is made of it;
//     WithClientNames puts the front's own names into errors;
//  3. gives the spec its sink and calls Generation::Start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/api/api_error.h"
#include "server/api/choice_decoder.h"
#include "server/api/usage.h"
#include "server/http.h"
#include "staffel/request.h"

namespace staffel::api {

// One of the n answers to a prompt.
struct ChoiceResult {
  int index = 0;                     // prompt * n + number of the answer
  Piece all;                         // so far: see AnswerSink
  int completion_tokens = 0;         // drawn so far, stop tokens included
  std::string echo_text;             // of the caller, put before the text
  absl::Span<const TokenId> prompt;  // of this choice; lives as long as the generation
  const std::vector<PromptLogprob>* prompt_logprobs = nullptr;  // where they were asked for
};

// Calls come from one thread at a time. Either Complete or Fail is the last one, and comes exactly
// once. Writing functions return false when the client is gone or too slow; the generation is then
// cancelled, and still ends with Complete or Fail.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;

  // The next three only where GenerationOptions::stream is set.
  // The request is queued: pieces will come.
  virtual bool BeginStream() = 0;
  // Before the first piece of a choice; before its prompt is computed unless the prompt's
  // log-probabilities are asked for.
  virtual bool OpenChoice(const ChoiceResult&) { return true; }
  // Never empty. The last piece of a choice has `finish`, and may have text and tokens too.
  virtual bool WritePiece(int index, const Piece& piece) = 0;

  // All choices, in order of their index. Whole answers hold everything; streamed ones have
  // `finish` and the reason, and the rest only with GenerationSpec::gather.
  virtual void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) = 0;
  // Also instead of BeginStream.
  virtual void Fail(const ApiError& error) = 0;

  // As ResponseWriter::OnDisconnect.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

// A sink whose answer goes to an HTTP client.
class HttpSink : public AnswerSink {
 public:
  explicit HttpSink(std::shared_ptr<ResponseWriter> writer) : writer_(std::move(writer)) {}
  void OnDisconnect(std::function<void()> callback) override {
    writer_->OnDisconnect(std::move(callback));
  }

 protected:
  ResponseWriter& writer() { return *writer_; }

 private:
  const std::shared_ptr<ResponseWriter> writer_;
};

}  // namespace staffel::api
