// The `input` of /v1/responses as chat messages. Pure.
#pragma once

#include "server/api/json_parse.h"

namespace staffel::api::openai {

// A string, or items: messages, function calls and their outputs, reasoning. What one turn of the
// assistant consists of (reasoning, text, calls) becomes one message. Appends to `messages`; an
// error is left in the reader.
void ReadResponsesInput(FieldReader& reader, Json& messages);

}  // namespace staffel::api::openai
