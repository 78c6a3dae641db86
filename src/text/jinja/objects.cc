#include "text/jinja/objects.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {

std::optional<Value> Namespace::Attribute(Runtime& runtime, std::string_view name) const {
  runtime.Step(static_cast<int64_t>(attributes_.size() / 8));
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::Set(Runtime& runtime, std::string_view name, Value value) {
  runtime.Step(static_cast<int64_t>(attributes_.size() / 8));
  for (auto& [key, old] : attributes_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  meter_.Add(sizeof(attributes_[0]) + name.size());
  attributes_.emplace_back(std::string(name), std::move(value));
}

namespace {

// A method of an object that holds state, given as a function over it.
class ObjectMethod final : public Object {
 public:
  using Apply = Value (*)(Runtime& runtime, Loop& loop, const Arguments& arguments);
  // The loop outlives its methods only while it is kept: the object shares it.
  ObjectMethod(std::shared_ptr<Loop> loop, Apply apply) : loop_(std::move(loop)), apply_(apply) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Arguments& arguments) override {
    return apply_(runtime, *loop_, arguments);
  }

 private:
  const std::shared_ptr<Loop> loop_;
  const Apply apply_;
};

Value Cycle(Runtime&, Loop& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) Fail("no items for cycling given");
  return arguments.positional[loop.index() % arguments.positional.size()];
}

Value Changed(Runtime& runtime, Loop& loop, const Arguments& arguments) {
  return Value::Bool(loop.Changed(runtime, arguments.positional));
}

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Method& method) : self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Arguments& arguments) override {
    return method_.apply(runtime, self_, arguments);
  }

 private:
  const Value self_;
  const Method& method_;
};

}  // namespace

std::optional<Value> Loop::Attribute(Runtime&, std::string_view name) const {
  const auto count = [](size_t value) { return Value::Integer(static_cast<int64_t>(value)); };
  if (name == "index") return count(index_ + 1);
  if (name == "index0") return count(index_);
  if (name == "first") return Value::Bool(index_ == 0);
  if (name == "last") return Value::Bool(Item(index_ + 1) == nullptr);
  if (name == "length") return count(Size());
  if (name == "revindex") return count(Size() - index_);
  if (name == "revindex0") return count(Size() - index_ - 1);
  if (name == "depth") return Value::Integer(level_ + 1);
  if (name == "depth0") return Value::Integer(level_);
  if (name == "previtem") {
    const Value* item = index_ > 0 ? Item(index_ - 1) : nullptr;
    return item != nullptr ? *item : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* item = Item(index_ + 1);
    return item != nullptr ? *item : Value::Undefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") {
    auto self = std::const_pointer_cast<Loop>(shared_from_this());
    const auto method = name == "cycle" ? Cycle : jinja::Changed;
    return Value(std::shared_ptr<Object>(std::make_shared<ObjectMethod>(self, method)));
  }
  return std::nullopt;
}

Value Loop::Call(Runtime&, Arguments& arguments) {
  if (driver_ == nullptr) Fail("the loop is over");
  const Bound bound("loop", arguments, {"iterable"}, 1);
  return driver_->Recurse(*bound[0], level_ + 1);
}

std::string Loop::Repr() const { return StrCat("<LoopContext ", index_ + 1, "/", Size(), ">"); }

const Value* Loop::Item(size_t index) const {
  if (!filtered_) return index < source_.size() ? &source_[index] : nullptr;
  while (accepted_.size() <= index && examined_ < source_.size()) {
    const size_t position = examined_++;
    if (driver_->Accepts(source_[position])) accepted_.push_back(position);
  }
  return index < accepted_.size() ? &source_[accepted_[index]] : nullptr;
}

size_t Loop::Size() const {
  if (driver_ == nullptr) return final_size_;
  if (!filtered_) return source_.size();
  Item(source_.size());
  return accepted_.size();
}

void Loop::End() {
  final_size_ = filtered_ ? accepted_.size() : source_.size();
  driver_ = nullptr;
  source_.clear();
  accepted_.clear();
  last_arguments_.reset();
}

bool Loop::Changed(Runtime& runtime, const std::vector<Value>& arguments) {
  bool same = last_arguments_.has_value() && last_arguments_->size() == arguments.size();
  for (size_t i = 0; same && i < arguments.size(); i++) {
    same = Equal(runtime, (*last_arguments_)[i], arguments[i]);
  }
  if (!same) last_arguments_ = arguments;
  return !same;
}

Value BindMethod(const Value& self, const Method& method) {
  return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(self, method)));
}

void AppendObjectRepr(TextBuilder& out, const Object& object) {
  if (const auto* names = dynamic_cast<const Namespace*>(&object)) {
    out.Append("<Namespace {");
    bool first = true;
    for (const auto& [name, value] : names->attributes()) {
      out.Append(first ? "" : ", ");
      first = false;
      AppendRepr(out, out.runtime().MakeString(name));
      out.Append(": ");
      AppendRepr(out, value);
    }
    return out.Append("}>");
  }
  out.Append(object.Repr());
}

}  // namespace staffel::jinja
