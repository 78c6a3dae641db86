// Bodies of the Anthropic Messages API in the internal form of a request: OpenAI's field names
// (server/api/generation_request.h). Pure.
#pragma once

#include "server/api/json_parse.h"

namespace staffel::api::anthropic {

// The chat that a body of /v1/messages or /v1/messages/count_tokens asks for. A conversation that
// ends with the assistant is continued from there. Errors name the client's field; fields that
// would change the answer and that cannot be honoured are refused.
Checked<Json> ReadMessages(const Json& body, bool max_tokens_required);

}  // namespace staffel::api::anthropic
