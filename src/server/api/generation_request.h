// From a request's fields to what the engine is asked for. The fields are OpenAI's (docs/api.md); a
// front with other names builds an object of them, and passes errors through WithClientNames.
#pragma once

#include "server/api/generation.h"
#include "server/api/json_parse.h"
#include "server/api/served_model.h"

namespace staffel::api {

// Both leave the sink and the runner of the spec to the caller; errors name the field.

// One conversation: messages, tools, template fields, sampling, output grammar, limits.
Checked<GenerationSpec> ReadChat(std::shared_ptr<const ServedModel> model, FieldReader& reader);

// Raw prompts (`prompt`), with echo and log-probabilities of prompts.
Checked<GenerationSpec> ReadCompletion(std::shared_ptr<const ServedModel> model,
                                       FieldReader& reader);

}  // namespace staffel::api
