// The interpreter's expressions.
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {

Value Interpreter::Evaluate(const Expression& node) {
  runtime_.Step();
  if (node.kind == Expression::Kind::kConstant) return node.constant;
  if (node.kind == Expression::Kind::kName) return Lookup(node.symbol);
  const Runtime::Nesting nesting(runtime_);
  return EvaluateNode(node);
}

Value Interpreter::EvaluateNode(const Expression& node) {
  using EK = Expression::Kind;
  switch (node.kind) {
    case EK::kList:
      return runtime_.MakeList(EvaluateAll(node.operands));
    case EK::kTuple:
      return runtime_.MakeTuple(EvaluateAll(node.operands));
    case EK::kDict:
      return EvaluateDict(node);
    case EK::kAttribute: {
      const Value value = Evaluate(*node.operands[0]);
      runtime_.line = node.line;
      return GetAttribute(runtime_, value, node.name);
    }
    case EK::kSubscript: {
      const Value value = Evaluate(*node.operands[0]);
      const Value key = Evaluate(*node.operands[1]);
      runtime_.line = node.line;
      return GetItem(runtime_, value, key);
    }
    case EK::kSlice:
      return EvaluateSlice(node);
    case EK::kCall:
      return EvaluateCall(node);
    case EK::kFilter:
      return EvaluateFilter(node);
    case EK::kTest:
      return EvaluateTest(node);
    case EK::kNot:
      return Value::Bool(!IsTrue(Evaluate(*node.operands[0])));
    case EK::kNegate:
    case EK::kPlus:
      return EvaluateSign(node);
    case EK::kBinary:
      return EvaluateBinary(node);
    case EK::kCompare:
      return EvaluateCompare(node);
    case EK::kConcat:
      return EvaluateConcat(node);
    case EK::kAnd: {
      Value left = Evaluate(*node.operands[0]);
      return IsTrue(left) ? Evaluate(*node.operands[1]) : left;
    }
    case EK::kOr: {
      Value left = Evaluate(*node.operands[0]);
      return IsTrue(left) ? left : Evaluate(*node.operands[1]);
    }
    case EK::kConditional:
      return EvaluateConditional(node);
    case EK::kConstant:
    case EK::kName:
    case EK::kNamespaceAttribute:
      break;
  }
  Fail("an expression cannot be evaluated");
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) values.push_back(Evaluate(*node));
  return values;
}

Value Interpreter::EvaluateDict(const Expression& node) {
  DictBuilder dict(runtime_);
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    const Value key = Evaluate(*node.operands[i]);
    dict.Set(key, Evaluate(*node.operands[i + 1]));
  }
  return dict.Take();
}

Value Interpreter::EvaluateSlice(const Expression& node) {
  const Value value = Evaluate(*node.operands[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; i++) {
    const ExpressionPtr& bound = node.operands[i + 1];
    bounds[i] = bound != nullptr ? Evaluate(*bound) : Value::None();
  }
  runtime_.line = node.line;
  return GetSlice(runtime_, value, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::EvaluateArguments(const Expression& node) {
  using Form = Argument::Form;
  Arguments out;
  const auto add_named = [&](const std::string& name, Value value) {
    for (const auto& [other, ignored] : out.named) {
      if (other == name) Fail("got multiple values for keyword argument '", name, "'");
    }
    runtime_.Step(static_cast<int64_t>(out.named.size()));
    out.named.emplace_back(name, std::move(value));
  };
  for (const Argument& argument : node.arguments) {
    Value value = Evaluate(*argument.value);
    if (argument.form == Form::kPositional) {
      out.positional.push_back(std::move(value));
    } else if (argument.form == Form::kNamed) {
      add_named(argument.name, std::move(value));
    } else if (argument.form == Form::kList) {
      for (Value& item : Items(runtime_, value)) out.positional.push_back(std::move(item));
    } else {
      if (!value.is_dict()) Fail("argument after ** must be a mapping, not ", TypeName(value));
      for (const auto& [key, item] : value.dict().entries()) {
        if (!key.is_string()) Fail("keywords must be strings");
        add_named(key.bytes(), item);
      }
    }
  }
  return out;
}

Value Interpreter::EvaluateCall(const Expression& node) {
  return CallNode(node, EvaluateArguments(node));
}

Value Interpreter::CallNode(const Expression& node, Arguments arguments) {
  const Expression& callee = *node.operands[0];
  Value function;
  if (callee.kind == Expression::Kind::kAttribute) {
    const Value self = Evaluate(*callee.operands[0]);
    runtime_.line = node.line;
    if (const Method* method = FindMethod(self, callee.name)) {
      ChargeText(self);
      return method->apply(runtime_, self, arguments);
    }
    function = GetAttribute(runtime_, self, callee.name);
  } else {
    function = Evaluate(callee);
    runtime_.line = node.line;
  }
  if (function.is_undefined()) Fail(function.undefined_reason());
  if (!function.is_object()) Fail("'", TypeName(function), "' object is not callable");
  return function.object().Call(runtime_, arguments);
}

void Interpreter::ChargeText(const Value& value) {
  if (value.is_string()) runtime_.Work(2 * value.bytes().size());
}

Value Interpreter::EvaluateFilter(const Expression& node) {
  const ExpressionPtr& operand = node.operands[0];
  if (operand == nullptr && block_input_ == nullptr) Fail("a filter has nothing to filter");
  const Value input = operand != nullptr ? Evaluate(*operand) : *block_input_;
  Arguments arguments = EvaluateArguments(node);
  runtime_.line = node.line;
  if (node.filter == nullptr) Fail("No filter named '", node.name, "'.");
  ChargeText(input);
  return node.filter->apply(runtime_, input, arguments);
}

Value Interpreter::EvaluateTest(const Expression& node) {
  const Value value = Evaluate(*node.operands[0]);
  Arguments arguments = EvaluateArguments(node);
  runtime_.line = node.line;
  if (node.test == nullptr) Fail("No test named '", node.name, "'.");
  ChargeText(value);
  return Value::Bool(node.test->apply(runtime_, value, arguments));
}

Value Interpreter::EvaluateSign(const Expression& node) {
  const Value value = Evaluate(*node.operands[0]);
  runtime_.line = node.line;
  if (node.kind == Expression::Kind::kNegate) return Negate(value);
  if (value.is_undefined()) Fail(value.undefined_reason());
  if (!value.is_number()) Fail("bad operand type for unary +: '", TypeName(value), "'");
  return value.is_bool() ? Value::Integer(value.integer(), value.content()) : value;
}

Value Interpreter::EvaluateBinary(const Expression& node) {
  const Value left = Evaluate(*node.operands[0]);
  const Value right = Evaluate(*node.operands[1]);
  runtime_.line = node.line;
  return Apply(runtime_, node.operators[0], left, right);
}

Value Interpreter::EvaluateCompare(const Expression& node) {
  Value left = Evaluate(*node.operands[0]);
  for (size_t i = 0; i < node.operators.size(); i++) {
    Value right = Evaluate(*node.operands[i + 1]);
    runtime_.line = node.line;
    if (!Compare(runtime_, node.operators[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConcat(const Expression& node) {
  TextBuilder out(runtime_);
  for (const ExpressionPtr& operand : node.operands) AppendStr(out, Evaluate(*operand));
  return out.TakeValue();
}

Value Interpreter::EvaluateConditional(const Expression& node) {
  if (IsTrue(Evaluate(*node.operands[1]))) return Evaluate(*node.operands[0]);
  if (node.operands[2] != nullptr) return Evaluate(*node.operands[2]);
  return Value::Undefined(StrCat("the inline if-expression on line ", node.line,
                                 " evaluated to false and has no else"));
}

}  // namespace staffel::jinja
