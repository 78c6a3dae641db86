// Free text with structured parts: calls of tools within an answer (GrammarSpec::kTags).
#pragma once

#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "staffel/status.h"

namespace staffel::grammar {

// InvalidArgument: no tags, an empty trigger, a tag that begins with none of the triggers, or a
// schema that cannot be used.
Result<RuleId> ParseTags(ExprPool& pool, const GrammarSpec& spec);

}  // namespace staffel::grammar
