// Bodies of /v1/responses in the internal form of a request: chat completions' field names
// (server/api/generation_request.h). Pure.
#pragma once

#include "server/api/json_parse.h"

namespace staffel::api::openai {

struct ResponsesRequest {
  Json chat;    // the same request as a chat
  Json echoed;  // the request's fields that every response object repeats
  bool logprobs = false;
};

// The server keeps nothing between requests: fields that refer to something kept, and tools that it
// would have to run, are refused. Errors name the client's field.
Checked<ResponsesRequest> ReadResponses(const Json& body);

}  // namespace staffel::api::openai
