// Functions that every template can call.
#include <algorithm>
#include <ctime>

#include "text/jinja/error.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {
namespace {

Value Range(Runtime& runtime, Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = bound[1] == nullptr;
  const int64_t begin = one ? 0 : bound.Int(0, 0);
  const int64_t end = one ? bound.Int(0, 0) : bound.Int(1, 0);
  const int64_t step = bound.Int(2, 1);
  if (step == 0) Fail("range() arg 3 must not be zero");
  const Wide distance = step > 0 ? Wide(end) - Wide(begin) : Wide(begin) - Wide(end);
  const Wide stride = step > 0 ? Wide(step) : -Wide(step);
  const Wide count = distance <= 0 ? Wide(0) : (distance + stride - 1) / stride;
  if (count > runtime.limits().range_items) {
    Fail("range() of more than ", runtime.limits().range_items, " items");
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  Wide value = begin;
  for (Wide i = 0; i < count; i += 1, value += step) items.push_back(Value::Integer(value));
  return runtime.MakeSequence(SequenceType::kRange, std::move(items));
}

// The entries that dict(...) and namespace(...) are called with.
Value DictOf(Runtime& runtime, Arguments& arguments, std::string_view name) {
  if (arguments.positional.size() > 1) {
    Fail(name, " expected at most 1 argument, got ", arguments.positional.size());
  }
  DictBuilder dict(runtime);
  if (!arguments.positional.empty()) dict.SetAll(arguments.positional[0]);
  for (const auto& [key, value] : arguments.named) dict.Set(runtime.MakeString(key), value);
  return dict.Take();
}

Value MakeDict(Runtime& runtime, Arguments& arguments) {
  return DictOf(runtime, arguments, "dict");
}

Value MakeNamespace(Runtime& runtime, Arguments& arguments) {
  const Value entries = DictOf(runtime, arguments, "namespace");
  auto made = std::make_shared<Namespace>(runtime.meter());
  for (const auto& [key, value] : entries.dict().entries()) {
    if (key.is_string()) made->Set(runtime, key.bytes(), value);
  }
  runtime.Keep(made);
  return Value(std::shared_ptr<Object>(made));
}

Value RaiseException(Runtime& runtime, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw TemplateError(Str(runtime, *bound[0]).text, TemplateError::Reason::kRaised);
}

// One conversion of strftime, from its '%'. Python's naive times have no zone.
std::string FormatTime(const std::tm& now, const std::string& conversion) {
  switch (conversion.back()) {
    case 'z':
    case 'Z':
      return "";
    case 'f':
      return "000000";
    case '%':
      return "%";
    default:
      break;
  }
  char buffer[256];
  // Nothing written is a full buffer or an empty result; none of these is longer than the buffer.
  const size_t size = std::strftime(buffer, sizeof buffer, conversion.c_str(), &now);
  return std::string(buffer, size);
}

Value StrftimeNow(Runtime& runtime, Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const Text& format = bound.String(0);
  TextBuilder out(runtime);
  const std::string& bytes = format.text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.Append(format, at, percent);
    at = percent;
    if (at == bytes.size()) break;
    size_t end = at + 1;
    while (end < bytes.size() &&
           std::string_view("-_0^#EO").find(bytes[end]) != std::string::npos) {
      end++;
    }
    const size_t width = end;
    while (end < bytes.size() && bytes[end] >= '0' && bytes[end] <= '9') end++;
    constexpr size_t kWidthDigitsMax = 2;
    if (end - width > kWidthDigitsMax) Fail("strftime_now: a width is too large");
    if (end == bytes.size() || static_cast<unsigned char>(bytes[end]) >= 0x80) {
      out.Append(format, at, end);
    } else {
      out.Append(FormatTime(runtime.now(), bytes.substr(at, end + 1 - at)));
      end++;
    }
    at = end;
  }
  return out.TakeValue();
}

// cycler(...) and its methods.
class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> Attribute(Runtime&, std::string_view name) const override {
    if (name == "current") return items_[position_];
    if (name != "next" && name != "reset") return std::nullopt;
    auto self = std::const_pointer_cast<Cycler>(shared_from_this());
    return Value(std::shared_ptr<Object>(std::make_shared<Step>(self, name == "next")));
  }

 private:
  class Step final : public Object {
   public:
    Step(std::shared_ptr<Cycler> cycler, bool next) : cycler_(std::move(cycler)), next_(next) {}
    std::string_view type_name() const override { return "method"; }
    bool callable() const override { return true; }
    Value Call(Runtime&, Arguments&) override {
      const size_t position = cycler_->position_;
      cycler_->position_ = next_ ? (position + 1) % cycler_->items_.size() : 0;
      return next_ ? cycler_->items_[position] : Value::None();
    }

   private:
    const std::shared_ptr<Cycler> cycler_;
    const bool next_;
  };

  const std::vector<Value> items_;
  size_t position_ = 0;
};

Value MakeCycler(Runtime&, Arguments& arguments) {
  if (arguments.positional.empty()) Fail("at least one item has to be provided");
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(arguments.positional)));
}

// joiner(sep): nothing at the first call, the separator after.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Arguments&) override {
    return std::exchange(used_, true) ? separator_ : runtime.MakeString("");
  }

 private:
  const Value separator_;
  bool used_ = false;
};

Value MakeJoiner(Runtime& runtime, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  return Value(std::shared_ptr<Object>(
      std::make_shared<Joiner>(bound[0] != nullptr ? *bound[0] : runtime.MakeString(", "))));
}

}  // namespace

std::shared_ptr<Object> FindGlobal(std::string_view name) {
  static const std::vector<std::shared_ptr<Function>> kGlobals = {
      std::make_shared<Function>("cycler", MakeCycler),
      std::make_shared<Function>("dict", MakeDict),
      std::make_shared<Function>("joiner", MakeJoiner),
      std::make_shared<Function>("namespace", MakeNamespace),
      std::make_shared<Function>("raise_exception", RaiseException),
      std::make_shared<Function>("range", Range),
      std::make_shared<Function>("strftime_now", StrftimeNow)};
  for (const auto& global : kGlobals) {
    // Without ownership: renders of many threads would contend for the count.
    if (global->name() == name) {
      return std::shared_ptr<Object>(std::shared_ptr<void>(), global.get());
    }
  }
  return nullptr;
}

}  // namespace staffel::jinja
