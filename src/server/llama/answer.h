// An answer of llama-server's /completion: an object (an array of them for several prompts or
// choices), or events, of which the last of each choice has "stop": true.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api/answer_sink.h"
#include "server/api/generation.h"
#include "server/http.h"

namespace staffel::api::llama {

// {"error": {"code": 404, "message", "type"}}.
std::string ErrorText(const ApiError& error);

// How a request is drawn, in the names of /completion.
Json SettingsOf(const GenerationOptions& options);

struct AnswerOptions {
  bool return_tokens = false;
  bool probabilities = false;  // n_probs > 0
  bool return_progress = false;
  std::vector<std::string> response_fields;  // empty: all
};

// Reads model and options of `spec`. Streams need GenerationSpec::token_pieces.
std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       const GenerationSpec& spec, AnswerOptions options);

}  // namespace staffel::api::llama
