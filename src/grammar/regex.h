// Regular expressions as ECMA-262 (22.2.1, with the u flag) has them, less what no finite automaton
// can do: look-around, back-references and \b are refused. Lazy quantifiers say the same language
// as greedy ones. \d and \w are ASCII, \s is ECMA's white space, . is all but line terminators;
// \p{L}, \p{Lu} … take the general categories of Unicode; (?: ) and (?<name> ) are groups.
// ^ and $ may stand where a text can begin and end: at the edges of alternatives.
#pragma once

#include <string_view>

#include "grammar/expr.h"
#include "staffel/status.h"

namespace staffel::grammar {

enum class RegexMatch : uint8_t {
  kFull,    // the whole text matches
  kSearch,  // some part of it does: JSON Schema's "pattern"
};

// The texts that match. InvalidArgument: malformed or not supported; the message says what and at
// which character. ResourceExhausted: nested too deeply.
Result<ExprId> ParseRegex(ExprPool& pool, std::string_view pattern, RegexMatch match,
                          Encoding encoding);

// Members of a general category of Unicode ("L", "Lu", "Nd", "Letter", …); empty: no such category.
CharSet UnicodeCategory(std::string_view name);

}  // namespace staffel::grammar
