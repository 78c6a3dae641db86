// Tests: what stands behind "is".
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {
namespace {

template <bool (Value::*is_of_kind)() const>
bool IsKind(Runtime&, const Value& value, Arguments& arguments) {
  Bound("test", arguments, {});
  return (value.*is_of_kind)();
}

bool Defined(Runtime&, const Value& value, Arguments& arguments) {
  Bound("defined", arguments, {});
  return !value.is_undefined();
}

template <bool wanted>
bool IsBoolean(Runtime&, const Value& value, Arguments& arguments) {
  Bound("test", arguments, {});
  return value.is_bool() && value.boolean() == wanted;
}

bool IsMapping(Runtime&, const Value& value, Arguments& arguments) {
  Bound("mapping", arguments, {});
  return value.is_dict();
}

bool IsSequence(Runtime&, const Value& value, Arguments& arguments) {
  Bound("sequence", arguments, {});
  return value.is_undefined() || value.is_string() || value.is_dict() ||
         (value.is_sequence() && value.sequence().is_indexable());
}

bool IsIterableTest(Runtime&, const Value& value, Arguments& arguments) {
  Bound("iterable", arguments, {});
  return IsIterable(value);
}

bool IsCallable(Runtime&, const Value& value, Arguments& arguments) {
  Bound("callable", arguments, {});
  return value.is_undefined() || (value.is_object() && value.object().callable());
}

template <Operator op>
bool CompareTest(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound("test", arguments, {"other"}, 1);
  return Compare(runtime, op, value, *bound[0]);
}

bool SameAs(Runtime&, const Value& value, Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  return value.SameAs(*bound[0]);
}

bool HasRemainder(Runtime& runtime, const Value& value, const Value& divisor, int remainder) {
  const Value rest = Apply(runtime, Operator::kModulo, value, divisor);
  return Equal(runtime, rest, Value::Integer(remainder));
}

template <int remainder>
bool Parity(Runtime& runtime, const Value& value, Arguments& arguments) {
  Bound("test", arguments, {});
  return HasRemainder(runtime, value, Value::Integer(2), remainder);
}

bool DivisibleBy(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return HasRemainder(runtime, value, *bound[0], 0);
}

template <bool upper>
bool InCase(Runtime& runtime, const Value& value, Arguments& arguments) {
  Bound("test", arguments, {});
  return HasCase(Str(runtime, value).text, upper);
}

bool IsFilter(Runtime&, const Value& value, Arguments& arguments) {
  Bound("filter", arguments, {});
  return value.is_string() && FindFilter(value.bytes()) != nullptr;
}

bool IsTest(Runtime&, const Value& value, Arguments& arguments) {
  Bound("test", arguments, {});
  return value.is_string() && FindTest(value.bytes()) != nullptr;
}

bool IsEscaped(Runtime&, const Value&, Arguments& arguments) {
  Bound("escaped", arguments, {});
  return false;
}

constexpr Test kTests[] = {{"defined", Defined},
                           {"undefined", IsKind<&Value::is_undefined>},
                           {"none", IsKind<&Value::is_none>},
                           {"boolean", IsKind<&Value::is_bool>},
                           {"true", IsBoolean<true>},
                           {"false", IsBoolean<false>},
                           {"integer", IsKind<&Value::is_integer>},
                           {"float", IsKind<&Value::is_float>},
                           {"number", IsKind<&Value::is_number>},
                           {"string", IsKind<&Value::is_string>},
                           {"mapping", IsMapping},
                           {"sequence", IsSequence},
                           {"iterable", IsIterableTest},
                           {"callable", IsCallable},
                           {"sameas", SameAs},
                           {"escaped", IsEscaped},
                           {"in", CompareTest<Operator::kIn>},
                           {"odd", Parity<1>},
                           {"even", Parity<0>},
                           {"divisibleby", DivisibleBy},
                           {"upper", InCase<true>},
                           {"lower", InCase<false>},
                           {"filter", IsFilter},
                           {"test", IsTest},
                           {"==", CompareTest<Operator::kEqual>},
                           {"eq", CompareTest<Operator::kEqual>},
                           {"equalto", CompareTest<Operator::kEqual>},
                           {"!=", CompareTest<Operator::kNotEqual>},
                           {"ne", CompareTest<Operator::kNotEqual>},
                           {"<", CompareTest<Operator::kLess>},
                           {"lt", CompareTest<Operator::kLess>},
                           {"lessthan", CompareTest<Operator::kLess>},
                           {"<=", CompareTest<Operator::kLessEqual>},
                           {"le", CompareTest<Operator::kLessEqual>},
                           {">", CompareTest<Operator::kGreater>},
                           {"gt", CompareTest<Operator::kGreater>},
                           {"greaterthan", CompareTest<Operator::kGreater>},
                           {">=", CompareTest<Operator::kGreaterEqual>},
                           {"ge", CompareTest<Operator::kGreaterEqual>}};

}  // namespace

const Test* FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const Test& test) { return test.name == name; });
  return found != std::end(kTests) ? found : nullptr;
}

}  // namespace staffel::jinja
