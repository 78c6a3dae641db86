// Free text with structured parts: calls of tools within an answer (GrammarSpec::kTags).
#pragma once

#include <string_view>

#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "staffel/status.h"

namespace staffel::grammar {

// InvalidArgument: no tags, an empty trigger, a tag that begins with none of the triggers, or a
// schema that cannot be used.
Result<RuleId> ParseTags(ExprPool& pool, const GrammarSpec& spec);

// Free text up to the first occurrence of a literal (UTF-8, or a control token), and that.
ExprId TextUntil(ExprPool& pool, std::string_view marker);

}  // namespace staffel::grammar
