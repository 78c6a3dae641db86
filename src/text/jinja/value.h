// Values of a template while it renders: Python's, as far as templates can see them. A Value is a
// small handle; strings, sequences and dicts behind it are shared and never change, objects
// (namespace, macro, loop, ...) may. Values belong to one render and one thread.
//
// Numbers, booleans and None remember whether they came from the caller, so that printing them
// marks the digits as caller's text, too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/numeric/int128.h"
#include "text/jinja/text.h"

namespace staffel::jinja {

class Arguments;
class Dict;
class Object;
class Runtime;
class Sequence;
struct String;

// Integers lie in [-2^63, 2^64): all that JSON readers give. Wide holds sums and products of two.
using Wide = absl::int128;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kString,
  kSequence,  // list, tuple, range, generator, views of a dict
  kDict,
  kObject
};

class Value {
 public:
  // Undefined without a reason.
  Value() = default;
  // reason: what using it raises, such as "'x' is undefined".
  static Value Undefined(std::string reason);
  static Value None(bool content = false) { return Value(State(NoneState{content})); }
  static Value Bool(bool value, bool content = false) {
    return Value(State(BoolState{value, content}));
  }
  // Fails with a TemplateError outside the range of integers.
  static Value Integer(Wide value, bool content = false);
  static Value Float(double value, bool content = false) {
    return Value(State(FloatState{value, content}));
  }
  explicit Value(std::shared_ptr<const String> string) : state_(std::move(string)) {}
  explicit Value(std::shared_ptr<const Sequence> sequence) : state_(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : state_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Object> object) : state_(std::move(object)) {}

  Kind kind() const { return static_cast<Kind>(state_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_integer() const { return kind() == Kind::kInteger; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  // bool, integer or float: a number to Python's operators.
  bool is_number() const { return kind() >= Kind::kBool && kind() <= Kind::kFloat; }
  // bool or integer: an index to Python.
  bool is_index() const { return is_bool() || is_integer(); }

  bool boolean() const { return std::get<BoolState>(state_).value; }
  Wide integer() const;   // of a bool or an integer
  double number() const;  // of a bool, an integer or a float
  const Text& text() const;
  const std::string& bytes() const { return text().text; }
  const Sequence& sequence() const { return *std::get<SequencePtr>(state_); }
  const Dict& dict() const { return *std::get<DictPtr>(state_); }
  Object& object() const { return *std::get<ObjectPtr>(state_); }
  const std::string& undefined_reason() const;

  // Whether a number, boolean or None came from the caller; false for other kinds.
  bool content() const;
  // Levels of sequences and dicts below this value: bounds every recursion over values.
  int depth() const;
  // Identity, as Python's `is`: same object, or same kind and value for None, booleans, numbers.
  bool SameAs(const Value& other) const;

 private:
  struct UndefinedState {
    std::shared_ptr<const std::string> reason;
  };
  struct NoneState {
    bool content;
  };
  struct BoolState {
    bool value, content;
  };
  struct IntegerState {
    uint64_t bits;
    bool negative, content;  // value = negative ? int64(bits) : bits
  };
  struct FloatState {
    double value;
    bool content;
  };
  using StringPtr = std::shared_ptr<const String>;
  using SequencePtr = std::shared_ptr<const Sequence>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<Object>;
  // In the order of Kind.
  using State = std::variant<UndefinedState, NoneState, BoolState, IntegerState, FloatState,
                             StringPtr, SequencePtr, DictPtr, ObjectPtr>;

  explicit Value(State state) : state_(std::move(state)) {}

  State state_;
};

// Bytes that a render holds. Every string, sequence and dict made by a render has a charge on its
// meter; a template's own constants have none.
class MemoryMeter {
 public:
  explicit MemoryMeter(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void Add(size_t bytes);  // fails with a TemplateError above the limit
  void Remove(size_t bytes) { used_bytes_ -= bytes; }
  // Fails if `bytes` more would not fit.
  void Check(size_t bytes) const;

 private:
  const size_t limit_bytes_;
  size_t used_bytes_ = 0;
};

class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(MemoryMeter& meter, size_t bytes) : meter_(&meter), bytes_(bytes) {
    meter.Add(bytes);
  }
  ~MemoryCharge() {
    if (meter_ != nullptr) meter_->Remove(bytes_);
  }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

 private:
  MemoryMeter* meter_ = nullptr;
  size_t bytes_ = 0;
};

struct String {
  explicit String(Text t) : text(std::move(t)) {}
  String(MemoryMeter& meter, Text t)
      : charge(meter, sizeof(String) + t.text.size() + t.content.size() * sizeof(ByteRange)),
        text(std::move(t)) {}
  MemoryCharge charge;
  Text text;
};

enum class SequenceType : uint8_t {
  kList,
  kTuple,
  kGroup,  // a tuple of groupby: its two items are also .grouper and .list
  kRange,
  kGenerator,  // always true, no length, no index; its items can be taken once
  kDictKeys,
  kDictValues,
  kDictItems
};

class Sequence {
 public:
  Sequence(MemoryMeter& meter, SequenceType type, std::vector<Value> items);

  SequenceType type() const { return type_; }
  const std::vector<Value>& items() const { return items_; }
  int depth() const { return depth_; }
  bool is_tuple() const { return type_ == SequenceType::kTuple || type_ == SequenceType::kGroup; }
  bool is_list_or_tuple() const { return type_ == SequenceType::kList || is_tuple(); }
  // Has a position for every item: what Python can index and slice.
  bool is_indexable() const { return is_list_or_tuple() || type_ == SequenceType::kRange; }

  // Generators only: how many items were taken.
  size_t taken() const { return taken_; }
  void Take(size_t count) const { taken_ += count; }

 private:
  const SequenceType type_;
  const std::vector<Value> items_;
  const int depth_;
  mutable size_t taken_ = 0;
  MemoryCharge charge_;
};

// Insertion-ordered, as Python's. Keys are strings nearly always; other hashable keys work.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  Dict(MemoryMeter& meter, std::vector<Entry> entries);

  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }
  const Value* Find(std::string_view key) const;

 private:
  const std::vector<Entry> entries_;
  const int depth_;
  // Position of a string key; empty for small dicts, which are searched in order.
  std::unordered_map<std::string_view, uint32_t> positions_;
  MemoryCharge charge_;
};

// What is neither data nor a string: namespaces, macros, loops, functions, bound methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> Attribute(Runtime&, std::string_view) const { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value Call(Runtime& runtime, Arguments& arguments);
  virtual std::string Repr() const;
  // Drops references to other values, so that cycles end; called once, when the render is over.
  virtual void Clear() {}
};

// Python's name of a value's type ("str", "dict", ...), for messages.
std::string_view TypeName(const Value& value);

}  // namespace staffel::jinja
