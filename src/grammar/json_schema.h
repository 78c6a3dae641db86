// JSON Schema (draft 2020-12, and the older spellings that clients send) as a grammar of the JSON
// texts that are valid by it. Whatever the grammar lets through is valid; it need not let through
// every valid text: members come in the order of `properties`, further ones behind them, and where
// a schema leaves open what nobody means, the narrow reading is taken:
//   - a schema with keywords of one type and no `type` is of that type;
//   - an object with `properties` and without `additionalProperties` or `patternProperties` has
//     those properties only.
// Supported: type, enum, const; properties, required, additionalProperties, patternProperties,
// propertyNames, minProperties, maxProperties, dependentRequired that is fulfilled anyway; items,
// prefixItems, additionalItems, minItems, maxItems; minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf; minLength, maxLength, pattern, format; anyOf, oneOf whose
// alternatives exclude each other, allOf, not with types alone; $ref within the document, $defs,
// definitions, nullable; true and false. Annotations are ignored. Anything else is an error.
#pragma once

#include <string_view>

#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "staffel/status.h"

namespace staffel::grammar {

// The rule of all valid texts. InvalidArgument: not JSON, not a schema, a keyword that is not
// supported or a combination that cannot be honoured (the message names the keyword and the JSON
// pointer of the schema that has it). ResourceExhausted: beyond the limits.
Result<RuleId> ParseJsonSchema(ExprPool& pool, std::string_view schema, JsonSpace space);

// The rule of an object's members in the form kXml. Only declared members, in their order; the
// root of the schema has no alternatives. Errors as above.
Result<RuleId> ParseXmlSchema(ExprPool& pool, std::string_view schema, JsonSpace space);

// The rule of any JSON object.
RuleId AnyJsonObject(ExprPool& pool, JsonSpace space);

}  // namespace staffel::grammar
