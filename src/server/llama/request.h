// Bodies of /completion and /infill in the internal form of a request. Pure.
#pragma once

#include <memory>

#include "server/api/embedding.h"
#include "server/api/generation.h"
#include "server/api/json_parse.h"
#include "server/api/served_model.h"
#include "server/llama/answer.h"

namespace staffel::api::llama {

struct CompletionRequest {
  GenerationSpec spec;  // without sink and runner
  AnswerOptions answer;
};

// Errors name the client's field; fields that would change the answer and that cannot be honoured
// are refused.
Checked<CompletionRequest> ReadCompletionRequest(std::shared_ptr<const ServedModel> model,
                                                 const Json& body);
// The answer belongs between `input_prefix` and `input_suffix`.
Checked<CompletionRequest> ReadInfillRequest(std::shared_ptr<const ServedModel> model,
                                             const Json& body);

// Texts under `content` or `input`.
Checked<EmbeddingSpec> ReadEmbeddingRequest(std::shared_ptr<const ServedModel> model,
                                            const Json& body);

// What requests are drawn with when they say nothing: llama-server's own defaults, since clients
// that send no value expect them.
Json Defaults();

}  // namespace staffel::api::llama
