// Filters over single values, those that apply other filters and tests, and the look-up by name.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/error.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/string_ops.h"

namespace staffel::jinja {

AttributePath::AttributePath(Runtime& runtime, const Value& attribute) : runtime_(runtime) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  const Text dot = TemplateText(".");
  for (Value& part : Split(runtime, attribute.text(), &dot, -1, false)) {
    const std::string& name = part.bytes();
    constexpr size_t kDigitsMax = 9;
    const bool index = !name.empty() && name.size() <= kDigitsMax &&
                       name.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(index ? Value::Integer(std::stoi(name)) : std::move(part));
  }
}

Value AttributePath::Get(const Value& value, const Value* otherwise) const {
  Value item = value;
  for (const Value& part : parts_) {
    item = GetItem(runtime_, item, part);
    if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value SortKey(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return runtime.MakeString(ChangeCase(runtime, value.text(), LetterCase::kLower));
}

namespace {

Value Default(Runtime&, const Value& input, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (bound.Truth(1, false) && !IsTrue(input));
  if (!replaced) return input;
  static const struct String kEmpty { Text() };
  const auto empty = std::shared_ptr<const struct String>(std::shared_ptr<void>(), &kEmpty);
  return bound[0] != nullptr ? *bound[0] : Value(empty);
}

Value Abs(Runtime&, const Value& input, Arguments& arguments) {
  Bound("abs", arguments, {});
  if (input.is_undefined()) Fail(input.undefined_reason());
  if (!input.is_number()) Fail("bad operand type for abs(): '", TypeName(input), "'");
  if (input.is_float()) return Value::Float(std::abs(input.number()), input.content());
  const Wide value = input.integer();
  return Value::Integer(value < 0 ? -value : value, input.content());
}

Value Int(Runtime&, const Value& input, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const bool content = input.content() || (input.is_string() && HasContent(input.text()));
  if (input.is_undefined()) Fail(input.undefined_reason());
  if (input.is_index()) return Value::Integer(input.integer(), content);
  if (input.is_float()) return TruncateToInteger(input.number(), content);
  if (input.is_string()) {
    if (auto value = ParseInteger(input.bytes(), bound.Int(1, 10))) {
      return Value::Integer(*value, content);
    }
    const auto number = ParseFloat(input.bytes());
    if (number && std::isfinite(*number)) return TruncateToInteger(*number, content);
  }
  return bound[0] != nullptr ? *bound[0] : Value::Integer(0);
}

Value Float(Runtime&, const Value& input, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (input.is_undefined()) Fail(input.undefined_reason());
  if (input.is_number()) return Value::Float(input.number(), input.content());
  if (input.is_string()) {
    if (auto number = ParseFloat(input.bytes())) {
      return Value::Float(*number, HasContent(input.text()));
    }
  }
  return bound[0] != nullptr ? *bound[0] : Value::Float(0);
}

Value Round(Runtime&, const Value& input, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  if (input.is_undefined()) Fail(input.undefined_reason());
  if (!input.is_number()) Fail("type ", TypeName(input), " cannot be rounded");
  constexpr int64_t kPrecisionMax = 400;
  const int64_t precision = std::clamp(bound.Int(0, 0), -kPrecisionMax, kPrecisionMax);
  const std::string method = bound[1] != nullptr ? bound.String(1).text : "common";
  if (method == "common") return RoundHalfEven(input, static_cast<int>(precision));
  if (method != "ceil" && method != "floor") Fail("round: method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale,
                      input.content());
}

Value Attr(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  // Attributes only: unlike x.name, an item of a dict is not one.
  if (input.is_dict() && FindMethod(input, bound.String(0).text) == nullptr) {
    return Value::Undefined(StrCat("'dict object' has no attribute '", bound.String(0).text, "'"));
  }
  return GetAttribute(runtime, input, bound.String(0).text);
}

// --- filters that apply others ---

Value Map(Runtime& runtime, const Value& input, Arguments& arguments) {
  std::vector<Value> out;
  if (!IsTrue(input)) return runtime.MakeSequence(SequenceType::kGenerator, std::move(out));
  std::vector<Value> items = Items(runtime, input);
  if (arguments.positional.empty()) {
    const std::optional<Value> attribute = arguments.TakeNamed("attribute");
    const std::optional<Value> otherwise = arguments.TakeNamed("default");
    if (!attribute) Fail("map requires a filter argument");
    Bound("map", arguments, {});
    const AttributePath path(runtime, *attribute);
    const bool has_default = otherwise && !otherwise->is_none();
    for (Value& item : items) out.push_back(path.Get(item, has_default ? &*otherwise : nullptr));
  } else {
    const Value name = arguments.positional[0];
    const Filter* filter = name.is_string() ? FindFilter(name.bytes()) : nullptr;
    if (filter == nullptr) Fail("No filter named ", Repr(runtime, name).text);
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (Value& item : items) {
      Arguments each = rest;
      if (item.is_string()) runtime.Work(2 * item.bytes().size());
      out.push_back(filter->apply(runtime, item, each));
    }
  }
  return runtime.MakeSequence(SequenceType::kGenerator, std::move(out));
}

// select, reject, selectattr, rejectattr: the items whose value (or attribute) passes a test.
template <bool wanted, bool by_attribute>
Value Select(Runtime& runtime, const Value& input, Arguments& arguments) {
  std::vector<Value> out;
  if (!IsTrue(input)) return runtime.MakeSequence(SequenceType::kGenerator, std::move(out));
  constexpr size_t kTestIndex = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) Fail("missing parameter for attribute name");
  const AttributePath path(runtime, by_attribute ? arguments.positional[0] : Value::None());
  const Test* test = nullptr;
  Arguments rest = arguments;
  if (arguments.positional.size() > kTestIndex) {
    const Value& name = arguments.positional[kTestIndex];
    test = name.is_string() ? FindTest(name.bytes()) : nullptr;
    if (test == nullptr) Fail("No test named ", Repr(runtime, name).text);
    rest.positional.erase(rest.positional.begin(), rest.positional.begin() + kTestIndex + 1);
  }
  for (const Value& item : Items(runtime, input)) {
    const Value value = path.Get(item);
    if (value.is_string()) runtime.Work(2 * value.bytes().size());
    Arguments each = rest;
    const bool passes = test != nullptr ? test->apply(runtime, value, each) : IsTrue(value);
    if (passes == wanted) out.push_back(item);
  }
  return runtime.MakeSequence(SequenceType::kGenerator, std::move(out));
}

}  // namespace

const std::vector<Filter>& ValueFilters() {
  static const std::vector<Filter> kFilters = {{"abs", Abs},
                                               {"attr", Attr},
                                               {"d", Default},
                                               {"default", Default},
                                               {"float", Float},
                                               {"int", Int},
                                               {"map", Map},
                                               {"reject", Select<false, false>},
                                               {"rejectattr", Select<false, true>},
                                               {"round", Round},
                                               {"select", Select<true, false>},
                                               {"selectattr", Select<true, true>}};
  return kFilters;
}

const Filter* FindFilter(std::string_view name) {
  for (const auto* table : {&TextFilters(), &SequenceFilters(), &ValueFilters()}) {
    for (const Filter& filter : *table) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace staffel::jinja
