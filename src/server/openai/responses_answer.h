// An answer in the shape of the Responses API: one response object, or its events from
// response.created to response.completed. Runs of content, reasoning and each call are items.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/api/answer_sink.h"
#include "server/api/json_parse.h"
#include "staffel/tokenizer.h"

namespace staffel::api::openai {

struct ResponsesOptions {
  std::string id;  // without a prefix; unique in this server
  std::string model;
  int64_t created_unix_s = 0;
  Json echoed;  // ResponsesRequest::echoed
  bool stream = false;
  bool logprobs = false;
  std::shared_ptr<const Tokenizer> tokenizer;
};

std::unique_ptr<AnswerSink> MakeResponsesAnswer(std::shared_ptr<ResponseWriter> writer,
                                                ResponsesOptions options);

}  // namespace staffel::api::openai
