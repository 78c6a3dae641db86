// Numbers as JSON writes them, within bounds: automata over their digits. Without bounds an integer
// has at most 18 digits, and a number 18 before the point, 17 after it and an exponent of two
// digits: what a double or a 64-bit integer holds, and nothing that goes on for ever.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/expr.h"
#include "grammar/json_value.h"
#include "staffel/status.h"

namespace staffel::grammar {

struct NumberBounds {
  std::optional<Decimal> min, max;
  bool min_exclusive = false, max_exclusive = false;
  std::vector<Decimal> multiples_of;  // positive
  bool integer = false;

  bool unbounded() const { return !min && !max && multiples_of.empty(); }
  bool Contains(const Decimal& value) const;
};

ExprId AnyNumberExpr(ExprPool& pool);
ExprId AnyIntegerExpr(ExprPool& pool);

// kNever where no number is within. Numbers with bounds are written without an exponent, those that
// are multiples of an integer as integers.
// InvalidArgument: a divisor of more than 4 digits without its zeros, or with too many fractions.
// ResourceExhausted: the automaton has more states than the limit.
Result<ExprId> BoundedNumber(ExprPool& pool, const NumberBounds& bounds);

}  // namespace staffel::grammar
