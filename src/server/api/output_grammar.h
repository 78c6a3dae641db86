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

// Sets options.sampling.grammar, and ignore_eos off with it: a text that is complete ends. One
// field at most may ask for a format. An error, also of what `grammars` cannot honour, is left in
// `reader`; grammars may be null: then every format is refused.
void ReadOutputGrammar(FieldReader& reader, grammar::Grammars* grammars,
                       GenerationOptions& options);

// The same for a specification that is there already; an error names `field`.
std::optional<ApiError> SetGrammar(grammar::GrammarSpec spec, grammar::Grammars* grammars,
                                   const std::string& field, GenerationOptions& options);

}  // namespace staffel::api
