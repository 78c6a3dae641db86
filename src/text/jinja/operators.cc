#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/format.h"
#include "text/jinja/print.h"

namespace staffel::jinja {
namespace {

// Python's integer types, exact: a double holds not every 64-bit integer.
bool BothIntegers(const Value& left, const Value& right) {
  return left.is_index() && right.is_index();
}

int CompareNumbers(const Value& left, const Value& right) {
  if (BothIntegers(left, right)) {
    const Wide a = left.integer(), b = right.integer();
    return a < b ? -1 : a > b ? 1 : 0;
  }
  const double a = left.number(), b = right.number();
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;  // 2: NaN, neither
}

bool EqualDicts(Runtime& runtime, const Dict& left, const Dict& right) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    runtime.Step();
    const Value* other = nullptr;
    if (key.is_string()) {
      other = right.Find(key.bytes());
    } else {
      for (const auto& [other_key, other_value] : right.entries()) {
        if (Equal(runtime, key, other_key)) other = &other_value;
      }
    }
    if (other == nullptr || !Equal(runtime, value, *other)) return false;
  }
  return true;
}

[[noreturn]] void FailOperands(std::string_view op, const Value& left, const Value& right) {
  Fail("unsupported operand type(s) for ", op, ": '", TypeName(left), "' and '", TypeName(right),
       "'");
}

void CheckDefined(const Value& value) {
  if (value.is_undefined()) Fail(value.undefined_reason());
}

}  // namespace

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInteger:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.bytes().empty();
    case Kind::kDict:
      return !value.dict().entries().empty();
    case Kind::kObject:
      return true;
    case Kind::kSequence: {
      const Sequence& sequence = value.sequence();
      return sequence.type() == SequenceType::kGenerator || !sequence.items().empty();
    }
  }
  return true;
}

bool Equal(Runtime& runtime, const Value& left, const Value& right) {
  runtime.Step();
  if (left.is_number() && right.is_number()) return CompareNumbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      runtime.Work(std::min(left.bytes().size(), right.bytes().size()));
      return left.bytes() == right.bytes();
    case Kind::kDict:
      return EqualDicts(runtime, left.dict(), right.dict());
    case Kind::kObject:
      return &left.object() == &right.object();
    default:
      break;
  }
  const Sequence& a = left.sequence();
  const Sequence& b = right.sequence();
  if (&a == &b) return true;
  if (a.type() != b.type() || a.type() == SequenceType::kGenerator ||
      a.items().size() != b.items().size()) {
    return false;
  }
  for (size_t i = 0; i < a.items().size(); i++) {
    if (!Equal(runtime, a.items()[i], b.items()[i])) return false;
  }
  return true;
}

bool Less(Runtime& runtime, const Value& left, const Value& right) {
  return Compare(runtime, Operator::kLess, left, right);
}

bool Compare(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kEqual) return Equal(runtime, left, right);
  if (op == Operator::kNotEqual) return !Equal(runtime, left, right);
  if (op == Operator::kIn) return Contains(runtime, right, left);
  if (op == Operator::kNotIn) return !Contains(runtime, right, left);
  runtime.Step();
  CheckDefined(left);
  CheckDefined(right);
  int order;
  if (left.is_number() && right.is_number()) {
    order = CompareNumbers(left, right);
  } else if (left.is_string() && right.is_string()) {
    // UTF-8 sorts as its code points do.
    runtime.Work(std::min(left.bytes().size(), right.bytes().size()));
    order = left.bytes().compare(right.bytes());
  } else if (left.is_sequence() && right.is_sequence() &&
             left.sequence().type() == right.sequence().type() &&
             left.sequence().is_list_or_tuple()) {
    const auto& a = left.sequence().items();
    const auto& b = right.sequence().items();
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
      if (!Equal(runtime, a[i], b[i])) return Compare(runtime, op, a[i], b[i]);
    }
    order = a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
  } else {
    const std::string_view name = op == Operator::kLess        ? "<"
                                  : op == Operator::kLessEqual ? "<="
                                  : op == Operator::kGreater   ? ">"
                                                               : ">=";
    Fail("'", name, "' not supported between instances of '", TypeName(left), "' and '",
         TypeName(right), "'");
  }
  if (order == 2) return false;
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) Fail(item.undefined_reason());
      Fail("'in <string>' requires string as left operand, not ", TypeName(item));
    }
    runtime.Work(container.bytes().size() + item.bytes().size());
    return FindBytes(container.bytes(), item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    CheckHashable(item);
    if (item.is_string()) {
      runtime.Work(item.bytes().size());
      return container.dict().Find(item.bytes()) != nullptr;
    }
    return std::any_of(container.dict().entries().begin(), container.dict().entries().end(),
                       [&](const Dict::Entry& entry) { return Equal(runtime, entry.first, item); });
  }
  if (container.is_sequence() && container.sequence().type() != SequenceType::kGenerator) {
    const auto& items = container.sequence().items();
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& other) { return Equal(runtime, other, item); });
  }
  if (!IsIterable(container)) {
    Fail("argument of type '", TypeName(container), "' is not iterable");
  }
  for (const Value& other : Items(runtime, container)) {
    if (Equal(runtime, other, item)) return true;
  }
  return false;
}

// --- arithmetic ---

namespace {

Wide FloorDivide(Wide left, Wide right) {
  const Wide quotient = left / right;
  const bool inexact = left % right != 0;
  return inexact && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Wide Multiply(Wide left, Wide right) {
  // The product of two 64-bit integers may need one bit more than Wide has.
  const double size = std::abs(static_cast<double>(left)) * std::abs(static_cast<double>(right));
  if (size > 1e20) Fail("an integer does not fit into 64 bits");
  return Value::Integer(left * right).integer();
}

Wide PowerOfIntegers(Wide base, Wide exponent) {
  Wide result = 1;
  for (Wide i = 0; i < exponent; i += 1) {
    result = Multiply(result, base);  // fails outside 64 bits, so that few rounds are run
    if (result == 0 || (result == 1 && base == 1)) break;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  }
  return result;
}

double PowerOfFloats(double base, double exponent) {
  const double power = std::pow(base, exponent);
  if (!std::isfinite(power) && std::isfinite(base) && std::isfinite(exponent)) {
    Fail(FloatRepr(base), " ** ", FloatRepr(exponent), " has no finite real value");
  }
  return power;
}

Value ApplyToIntegers(Operator op, Wide left, Wide right, bool content) {
  switch (op) {
    case Operator::kAdd:
      return Value::Integer(left + right, content);
    case Operator::kSubtract:
      return Value::Integer(left - right, content);
    case Operator::kMultiply:
      return Value::Integer(Multiply(left, right), content);
    case Operator::kPower:
      if (right < 0) {
        return Value::Float(PowerOfFloats(static_cast<double>(left), static_cast<double>(right)),
                            content);
      }
      return Value::Integer(PowerOfIntegers(left, right), content);
    default:
      break;
  }
  if (right == 0) Fail(op == Operator::kDivide ? "division by zero" : "integer modulo by zero");
  if (op == Operator::kDivide) {
    return Value::Float(static_cast<double>(left) / static_cast<double>(right), content);
  }
  const Wide quotient = FloorDivide(left, right);
  return Value::Integer(op == Operator::kFloorDivide ? quotient : left - quotient * right, content);
}

Value ApplyToFloats(Operator op, double left, double right, bool content) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(left + right, content);
    case Operator::kSubtract:
      return Value::Float(left - right, content);
    case Operator::kMultiply:
      return Value::Float(left * right, content);
    case Operator::kPower:
      return Value::Float(PowerOfFloats(left, right), content);
    default:
      break;
  }
  if (right == 0) Fail(op == Operator::kDivide ? "float division by zero" : "float modulo");
  if (op == Operator::kDivide) return Value::Float(left / right, content);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (op == Operator::kModulo) {
    return Value::Float(remainder == 0 ? std::copysign(0.0, right) : remainder, content);
  }
  return Value::Float(std::floor((left - remainder) / right + 0.5), content);
}

Value Repeat(Runtime& runtime, const Value& value, const Value& times) {
  const int64_t count = std::max<int64_t>(0, ToInt64(times));
  if (value.is_string()) {
    const Text& piece = value.text();
    TextBuilder out(runtime);
    if (piece.text.empty()) return out.TakeValue();
    runtime.meter().Check(static_cast<size_t>(count));
    runtime.meter().Check(static_cast<size_t>(count) * piece.text.size());
    for (int64_t i = 0; i < count; i++) out.Append(piece);
    return out.TakeValue();
  }
  const auto& items = value.sequence().items();
  runtime.meter().Check(static_cast<size_t>(count));
  runtime.meter().Check(static_cast<size_t>(count) * items.size() * sizeof(Value));
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(count) * items.size());
  for (int64_t i = 0; i < count; i++) {
    runtime.Step();
    out.insert(out.end(), items.begin(), items.end());
  }
  return runtime.MakeSequence(value.sequence().type(), std::move(out));
}

Value Add(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string()) {
    if (!right.is_string()) {
      Fail("can only concatenate str (not \"", TypeName(right), "\") to str");
    }
    Text sum;
    sum.text.reserve(left.bytes().size() + right.bytes().size());
    Append(sum, left.text());
    Append(sum, right.text());
    return runtime.MakeString(std::move(sum));
  }
  const bool joins = left.is_sequence() && right.is_sequence() &&
                     left.sequence().is_list_or_tuple() &&
                     left.sequence().type() == right.sequence().type();
  if (!joins) FailOperands("+", left, right);
  std::vector<Value> items = left.sequence().items();
  items.insert(items.end(), right.sequence().items().begin(), right.sequence().items().end());
  return runtime.MakeSequence(left.sequence().type(), std::move(items));
}

std::string_view Symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "** or pow()";
  }
}

}  // namespace

Value Apply(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  CheckDefined(left);
  if (op == Operator::kModulo && left.is_string())
    return FormatPercent(runtime, left.text(), right);
  CheckDefined(right);
  if (left.is_number() && right.is_number()) {
    const bool content = left.content() || right.content();
    if (BothIntegers(left, right)) {
      return ApplyToIntegers(op, left.integer(), right.integer(), content);
    }
    return ApplyToFloats(op, left.number(), right.number(), content);
  }
  if (op == Operator::kAdd) return Add(runtime, left, right);
  if (op == Operator::kMultiply) {
    const auto repeatable = [](const Value& value) {
      return value.is_string() || (value.is_sequence() && value.sequence().is_list_or_tuple());
    };
    if (repeatable(left) && right.is_index()) return Repeat(runtime, left, right);
    if (repeatable(right) && left.is_index()) return Repeat(runtime, right, left);
  }
  FailOperands(Symbol(op), left, right);
}

Value Negate(const Value& value) {
  CheckDefined(value);
  if (value.is_float()) return Value::Float(-value.number(), value.content());
  if (!value.is_index()) Fail("bad operand type for unary -: '", TypeName(value), "'");
  return Value::Integer(-value.integer(), value.content());
}

}  // namespace staffel::jinja
