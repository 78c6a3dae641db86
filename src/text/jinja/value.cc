#include "text/jinja/value.h"

#include <algorithm>
#include <limits>

#include "text/jinja/error.h"

namespace staffel::jinja {
namespace {

// Dicts up to this size are searched in order: comparing a few short strings beats hashing one.
constexpr size_t kSearchedInOrder = 8;

int DepthAbove(int deepest) {
  constexpr int kDepthMax = 200;  // printing and comparing recurse this deep
  if (deepest >= kDepthMax) Fail("lists and dicts are nested deeper than ", kDepthMax);
  return deepest + 1;
}

int DepthOf(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return DepthAbove(deepest);
}

int DepthOf(const std::vector<Dict::Entry>& entries) {
  int deepest = 0;
  for (const auto& [key, value] : entries) {
    deepest = std::max({deepest, key.depth(), value.depth()});
  }
  return DepthAbove(deepest);
}

}  // namespace

Value Value::Undefined(std::string reason) {
  return Value(State(UndefinedState{std::make_shared<const std::string>(std::move(reason))}));
}

Value Value::Integer(Wide value, bool content) {
  if (value < Wide(std::numeric_limits<int64_t>::min()) ||
      value > Wide(std::numeric_limits<uint64_t>::max())) {
    Fail("an integer does not fit into 64 bits");
  }
  return Value(State(IntegerState{absl::Int128Low64(value), value < 0, content}));
}

Wide Value::integer() const {
  if (is_bool()) return boolean() ? 1 : 0;
  const auto& state = std::get<IntegerState>(state_);
  return state.negative ? Wide(static_cast<int64_t>(state.bits)) : Wide(state.bits);
}

double Value::number() const {
  if (is_float()) return std::get<FloatState>(state_).value;
  return static_cast<double>(integer());
}

const Text& Value::text() const { return std::get<StringPtr>(state_)->text; }

const std::string& Value::undefined_reason() const {
  static const std::string kNoReason = "a value is undefined";
  const auto& state = std::get<UndefinedState>(state_);
  return state.reason != nullptr ? *state.reason : kNoReason;
}

bool Value::content() const {
  switch (kind()) {
    case Kind::kNone:
      return std::get<NoneState>(state_).content;
    case Kind::kBool:
      return std::get<BoolState>(state_).content;
    case Kind::kInteger:
      return std::get<IntegerState>(state_).content;
    case Kind::kFloat:
      return std::get<FloatState>(state_).content;
    default:
      return false;
  }
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth();
  if (is_dict()) return dict().depth();
  return 0;
}

bool Value::SameAs(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return boolean() == other.boolean();
    case Kind::kInteger:
      return integer() == other.integer();
    case Kind::kFloat:
      return number() == other.number();
    // Python shares equal short strings between a template's constants and often its data.
    case Kind::kString:
      return bytes() == other.bytes();
    case Kind::kSequence:
      return &sequence() == &other.sequence();
    case Kind::kDict:
      return &dict() == &other.dict();
    case Kind::kObject:
      return &object() == &other.object();
  }
  return false;
}

void MemoryMeter::Add(size_t bytes) {
  Check(bytes);
  used_bytes_ += bytes;
}

void MemoryMeter::Check(size_t bytes) const {
  if (bytes > limit_bytes_ || used_bytes_ > limit_bytes_ - bytes) {
    Fail("the values of the template need more than ", limit_bytes_ >> 20, " MiB");
  }
}

Sequence::Sequence(MemoryMeter& meter, SequenceType type, std::vector<Value> items)
    : type_(type),
      items_(std::move(items)),
      depth_(DepthOf(items_)),
      charge_(meter, sizeof(Sequence) + items_.size() * sizeof(Value)) {}

Dict::Dict(MemoryMeter& meter, std::vector<Entry> entries)
    : entries_(std::move(entries)),
      depth_(DepthOf(entries_)),
      charge_(meter, sizeof(Dict) + entries_.size() * 2 * sizeof(Entry)) {
  if (entries_.size() <= kSearchedInOrder) return;
  positions_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); i++) {
    if (entries_[i].first.is_string()) {
      positions_.emplace(entries_[i].first.bytes(), static_cast<uint32_t>(i));
    }
  }
}

const Value* Dict::Find(std::string_view key) const {
  if (!positions_.empty()) {
    const auto found = positions_.find(key);
    return found != positions_.end() ? &entries_[found->second].second : nullptr;
  }
  for (const auto& [name, value] : entries_) {
    if (name.is_string() && name.bytes() == key) return &value;
  }
  return nullptr;
}

std::string Object::Repr() const { return StrCat("<", type_name(), ">"); }

Value Object::Call(Runtime&, Arguments&) { Fail("'", type_name(), "' object is not callable"); }

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return value.object().type_name();
    case Kind::kSequence:
      break;
  }
  switch (value.sequence().type()) {
    case SequenceType::kList:
      return "list";
    case SequenceType::kTuple:
    case SequenceType::kGroup:
      return "tuple";
    case SequenceType::kRange:
      return "range";
    case SequenceType::kGenerator:
      return "generator";
    case SequenceType::kDictKeys:
      return "dict_keys";
    case SequenceType::kDictValues:
      return "dict_values";
    case SequenceType::kDictItems:
      return "dict_items";
  }
  return "object";
}

}  // namespace staffel::jinja
