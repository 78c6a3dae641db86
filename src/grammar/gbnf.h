// Grammars as llama.cpp (GBNF) and XGrammar (EBNF) write them: `name ::= …`, alternatives with |,
// "literals", [classes], ( ), * + ? {m,n}, . for any character, # comments; the text is what `root`
// says. A rule goes on over lines that do not begin a rule.
#pragma once

#include <string_view>

#include "grammar/expr.h"
#include "staffel/status.h"

namespace staffel::grammar {

// The rule `root`. InvalidArgument: malformed (the message says where), `root` or another rule is
// missing, a rule is defined twice.
Result<RuleId> ParseGbnf(ExprPool& pool, std::string_view source);

}  // namespace staffel::grammar
