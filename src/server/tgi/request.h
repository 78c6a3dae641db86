// From a body of text-generation-inference to what the engine is asked for.
#pragma once

#include <memory>

#include "server/api/generation.h"
#include "server/api/json_parse.h"
#include "server/tgi/answer.h"

namespace staffel::api::tgi {

struct Asked {
  GenerationSpec spec;  // without sink and runner
  AnswerOptions answer;
};

// Errors are in the names of the client.
Checked<Asked> ReadGenerate(std::shared_ptr<const ServedModel> model, const Json& body,
                            bool stream);

}  // namespace staffel::api::tgi
