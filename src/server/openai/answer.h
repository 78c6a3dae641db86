// An answer in the shape of the OpenAI API: one JSON document, or server-sent events that end with
// [DONE].
#pragma once

#include <memory>

#include "server/api/answer_sink.h"
#include "server/api/generation_options.h"
#include "server/openai/response_format.h"

namespace staffel::api::openai {

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       const GenerationOptions& options,
                                       std::unique_ptr<ResponseFormat> format);

}  // namespace staffel::api::openai
