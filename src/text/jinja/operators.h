// Python's operators on values: truth, equality, order, arithmetic, membership, indexing,
// iteration.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

bool IsTrue(const Value& value);

// ==, over all types; charges steps for large values.
bool Equal(Runtime& runtime, const Value& left, const Value& right);
// <. Fails for types that have no order between them.
bool Less(Runtime& runtime, const Value& left, const Value& right);

// Every operator of a kBinary or kCompare node.
Value Apply(Runtime& runtime, Operator op, const Value& left, const Value& right);
bool Compare(Runtime& runtime, Operator op, const Value& left, const Value& right);
bool Contains(Runtime& runtime, const Value& container, const Value& item);
Value Negate(const Value& value);

// len(). Fails for what has none.
int64_t Length(Runtime& runtime, const Value& value);
// The items a loop would visit: of a sequence, keys of a dict, characters of a string, nothing of
// undefined. A generator's items can be had once. Fails for what is not iterable.
std::vector<Value> Items(Runtime& runtime, const Value& value);
bool IsIterable(const Value& value);

// value.name: a method or attribute first, then an item. value[key]: an item first.
// What does not exist is undefined; using an undefined value fails.
Value GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
Value GetItem(Runtime& runtime, const Value& value, const Value& key);
// value[begin:end:step]; None or undefined states where absent.
Value GetSlice(Runtime& runtime, const Value& value, const Value& begin, const Value& end,
               const Value& step);

// Fails if the value cannot be a key of a dict.
void CheckHashable(const Value& key);

// Builds a dict from entries whose keys may repeat: the first position, the last value.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& runtime) : runtime_(runtime) {}
  void Set(const Value& key, Value value);
  // Entries of a dict, or of pairs as dict() takes them.
  void SetAll(const Value& source);
  Value Take() { return runtime_.MakeDict(std::move(entries_)); }

 private:
  Runtime& runtime_;
  std::vector<Dict::Entry> entries_;
  std::unordered_map<std::string_view, size_t> positions_;  // string keys
};

}  // namespace staffel::jinja
