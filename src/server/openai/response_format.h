// The two shapes of an answer, chat.completion and text_completion, whole and as stream chunks.
// Pure: values in, JSON out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/openai/choice_decoder.h"
#include "staffel/request.h"
#include "staffel/tokenizer.h"

namespace staffel::openai {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// A complete choice, for answers that are not streamed.
struct ChoiceResult {
  int index = 0;
  Piece all;                         // text, tokens and finish of the whole answer
  std::string echo_text;             // put before the text
  absl::Span<const TokenId> prompt;  // of this choice
  const std::vector<PromptLogprob>* prompt_logprobs = nullptr;  // with echo and logprobs
};

struct FormatOptions {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::string model;
  int64_t created_unix_s = 0;
  bool logprobs = false;
  bool return_token_ids = false;
  bool usage_in_chunks = false;  // "usage": null on all chunks but the last
  const Tokenizer* tokenizer = nullptr;
};

class ResponseFormat {
 public:
  virtual ~ResponseFormat() = default;
  // Data of the event that opens a choice; "" for none.
  virtual std::string OpenChunk(const ChoiceResult& choice) const = 0;
  // Data of an event with new text, tokens or the finish of a choice.
  virtual std::string PieceChunk(int index, const Piece& piece) = 0;
  virtual std::string UsageChunk(const Usage& usage) const = 0;
  virtual std::string Whole(const std::vector<ChoiceResult>& choices, const Usage& usage) const = 0;
};

std::unique_ptr<ResponseFormat> MakeChatFormat(FormatOptions options);
std::unique_ptr<ResponseFormat> MakeCompletionFormat(FormatOptions options);

std::string_view FinishName(FinishReason reason);  // "stop", "length", "abort", "error"

}  // namespace staffel::openai
