// The two shapes of an answer, chat.completion and text_completion, whole and as stream chunks.
// Pure: values in, JSON out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/answer_sink.h"
#include "staffel/request.h"
#include "staffel/tokenizer.h"

namespace staffel::api::openai {

struct FormatOptions {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::string model;
  int64_t created_unix_s = 0;
  bool logprobs = false;
  bool echo_logprobs = false;          // those of the prompt's tokens in front of the others
  std::optional<int> prompt_logprobs;  // vLLM's prompt_logprobs, with so many of the likeliest
  bool return_token_ids = false;
  bool tokens_as_ids = false;    // tokens in log-probabilities are written "token_id:17"
  bool timings = false;          // llama-server's, in chunks and whole answers
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

}  // namespace staffel::api::openai
