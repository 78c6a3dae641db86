// An answer in the shape of text-generation-inference: one object, or an event for each token, of
// which the last has the whole text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/api/answer_sink.h"
#include "staffel/tokenizer.h"

namespace staffel::api::tgi {

struct AnswerOptions {
  bool stream = false;
  bool details = false;
  bool in_list = false;          // a whole answer is the only item of an array
  int top_tokens = 0;            // so many of the likeliest beside each token
  std::string full_text_prefix;  // of generated_text
  std::optional<uint64_t> seed;  // of drawn answers
  std::shared_ptr<const Tokenizer> tokenizer;
};

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       AnswerOptions options);

// {"error", "error_type"}.
std::string ErrorText(const ApiError& error);
// The same as an answer, with text-generation-inference's status: 422 for what is wrong with a
// request, 424 for a generation that failed.
void SendTgiError(ResponseWriter& writer, const ApiError& error);

}  // namespace staffel::api::tgi
