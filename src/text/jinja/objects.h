// Objects that templates meet: namespaces, loops, bound methods, and how objects print.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

// namespace(...): the one thing a template can change after making it.
class Namespace final : public Object {
 public:
  explicit Namespace(MemoryMeter& meter) : meter_(meter) { meter_.Add(sizeof(Namespace)); }
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) const override;
  void Set(Runtime& runtime, std::string_view name, Value value);
  void Clear() override { attributes_.clear(); }
  const std::vector<std::pair<std::string, Value>>& attributes() const { return attributes_; }

 private:
  MemoryMeter& meter_;  // charged until the render ends: namespaces live as long
  std::vector<std::pair<std::string, Value>> attributes_;
};

// What a loop asks of the interpreter that runs it.
class LoopDriver {
 public:
  virtual ~LoopDriver() = default;
  // Whether the loop's filter lets an item in.
  virtual bool Accepts(const Value& item) = 0;
  // Runs the body of a recursive loop over other items; its text.
  virtual Value Recurse(const Value& items, int level) = 0;
};

// `loop` inside a for block. Items are let in by the loop's filter one by one, no earlier than they
// are asked for, because the body may change what the filter looks at. When the block ends the loop
// lets go of driver and items (End), which breaks circles of references.
class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(std::vector<Value> source, bool filtered, int level, LoopDriver* driver)
      : source_(std::move(source)), filtered_(filtered), level_(level), driver_(driver) {}
  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) const override;
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Arguments& arguments) override;  // recursive loops

  // The item at `index`; null behind the last.
  const Value* Item(size_t index) const;
  void MoveTo(size_t index) { index_ = index; }
  std::string Repr() const override;
  size_t index() const { return index_; }
  size_t Size() const;  // lets in all items
  void End();

  // loop.changed(...): whether the arguments differ from those of the call before.
  bool Changed(Runtime& runtime, const std::vector<Value>& arguments);

 private:
  std::vector<Value> source_;
  const bool filtered_;
  const int level_;
  LoopDriver* driver_;
  size_t index_ = 0;
  mutable std::vector<size_t> accepted_;  // positions in source_, if filtered_
  mutable size_t examined_ = 0;
  size_t final_size_ = 0;
  std::optional<std::vector<Value>> last_arguments_;
};

// value.method, to be called later. The method must be one of the tables' (FindMethod).
Value BindMethod(const Value& self, const Method& method);

// A function without state; the interpreter's globals are such.
class Function final : public Object {
 public:
  using Apply = Value (*)(Runtime& runtime, Arguments& arguments);
  Function(std::string_view name, Apply apply) : name_(name), apply_(apply) {}
  std::string_view type_name() const override { return "function"; }
  std::string_view name() const { return name_; }
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Arguments& arguments) override { return apply_(runtime, arguments); }

 private:
  const std::string_view name_;
  const Apply apply_;
};

void AppendObjectRepr(TextBuilder& out, const Object& object);

}  // namespace staffel::jinja
