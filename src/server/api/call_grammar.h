// Grammars of answers with calls in a model's own format: what they let through, the parser reads
// back as calls whose arguments follow the schemas. Pure.
#pragma once

#include "answer/parser.h"
#include "server/api/tool_calls.h"
#include "staffel/grammar.h"
#include "staffel/tokenizer.h"

namespace staffel::api {

// Where the choice demands a call: calls and nothing else. Otherwise free text in which a call is
// held to its tool's schema from where it begins, if the tool is strict; to any JSON object if not.
// InvalidArgument: a name that the format cannot write, or a format without calls.
Result<grammar::GrammarSpec> CallGrammar(const ToolChoice& choice, answer::CallFormat format,
                                         const Tokenizer& tokenizer);

// Puts in front of what `spec` says what the format has there: reasoning, if there may be any, and
// harmony's header of an answer.
void AddBeginning(const answer::ParserOptions& parser, const Tokenizer& tokenizer,
                  grammar::GrammarSpec* spec);

}  // namespace staffel::api
