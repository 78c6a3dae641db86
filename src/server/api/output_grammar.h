// Fields that say what an answer must look like: response_format (OpenAI), structured_outputs and
// guided_* (vLLM), grammar and json_schema (llama-server).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/api/generation_options.h"
#include "server/api/json_parse.h"
#include "staffel/grammar.h"

namespace staffel::api {

// The format that a request asks for, and the field that does.
struct OutputWish {
  grammar::GrammarSpec spec;
  std::string field;
};

// One field at most may ask for a format; an error is left in `reader`.
std::optional<OutputWish> ReadOutputWish(FieldReader& reader);

// Sets options.sampling.grammar, and ignore_eos off with it: a text that is complete ends. An error
// names `field`: what `grammars` cannot honour; grammars may be null, then every format is refused.
std::optional<ApiError> SetGrammar(grammar::GrammarSpec spec, grammar::Grammars* grammars,
                                   const std::string& field, GenerationOptions& options);

}  // namespace staffel::api
