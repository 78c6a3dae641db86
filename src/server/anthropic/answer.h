// An answer in the shape of the Anthropic Messages API: one message, or named events from
// message_start to message_stop. Runs of content, reasoning and each call are content blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/api/answer_sink.h"

namespace staffel::api::anthropic {

struct AnswerOptions {
  std::string id;  // "msg_..."
  std::string model;
  int64_t prompt_tokens = 0;
  bool stream = false;
};

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       AnswerOptions options);

// {"type": "error", "error": {"type", "message"}} with the status's word for the type.
std::string ErrorText(const ApiError& error);
void SendMessagesError(ResponseWriter& writer, const ApiError& error);

}  // namespace staffel::api::anthropic
