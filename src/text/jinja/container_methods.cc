// Methods of lists, tuples and dicts that change nothing, and the look-up of methods by type.
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {
namespace {

Value Count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.sequence().items()) count += Equal(runtime, item, *bound[0]);
  return Value::Integer(count);
}

Value Index(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  const auto& items = self.sequence().items();
  for (size_t i = 0; i < items.size(); i++) {
    if (Equal(runtime, items[i], *bound[0])) return Value::Integer(static_cast<int64_t>(i));
  }
  Fail(Repr(runtime, *bound[0]).text, " is not in list");
}

Value Copy(Runtime&, const Value& self, Arguments& arguments) {
  Bound("copy", arguments, {});
  return self;
}

Value Get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  CheckHashable(*bound[0]);
  const Value* found = nullptr;
  if (bound[0]->is_string()) {
    runtime.Work(bound[0]->bytes().size());
    found = self.dict().Find(bound[0]->bytes());
  } else {
    for (const auto& [key, value] : self.dict().entries()) {
      if (Equal(runtime, key, *bound[0])) found = &value;
    }
  }
  if (found != nullptr) return *found;
  return bound[1] != nullptr ? *bound[1] : Value::None();
}

Value Keys(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound("keys", arguments, {});
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries()) keys.push_back(key);
  return runtime.MakeSequence(SequenceType::kDictKeys, std::move(keys));
}

Value Values(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound("values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().entries()) values.push_back(value);
  return runtime.MakeSequence(SequenceType::kDictValues, std::move(values));
}

Value DictItems(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound("items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) {
    items.push_back(runtime.MakeTuple({key, value}));
  }
  return runtime.MakeSequence(SequenceType::kDictItems, std::move(items));
}

const Method* Find(const std::vector<Method>& methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const Method& method) { return method.name == name; });
  return found != methods.end() ? &*found : nullptr;
}

}  // namespace

const std::vector<Method>& ListMethods() {
  static const std::vector<Method> kMethods = {{"count", Count}, {"index", Index}, {"copy", Copy}};
  return kMethods;
}

const std::vector<Method>& DictMethods() {
  static const std::vector<Method> kMethods = {
      {"copy", Copy}, {"get", Get}, {"items", DictItems}, {"keys", Keys}, {"values", Values}};
  return kMethods;
}

const Method* FindMethod(const Value& self, std::string_view name) {
  if (self.is_string()) return Find(StringMethods(), name);
  if (self.is_dict()) return Find(DictMethods(), name);
  if (!self.is_sequence() || !self.sequence().is_indexable()) return nullptr;
  if (name == "copy" && self.sequence().type() != SequenceType::kList) return nullptr;
  return Find(ListMethods(), name);
}

}  // namespace staffel::jinja
