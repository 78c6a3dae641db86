#include "text/jinja/arguments.h"

#include <algorithm>
#include <limits>

#include "text/jinja/error.h"
#include "text/jinja/operators.h"

namespace staffel::jinja {

std::optional<Value> Arguments::TakeNamed(std::string_view name) {
  for (auto it = named.begin(); it != named.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  }
  return std::nullopt;
}

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function), parameters_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters.size()) {
    Fail(function, "() takes at most ", parameters.size(), " arguments (",
         arguments.positional.size(), " given)");
  }
  for (size_t i = 0; i < arguments.positional.size(); i++) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end() || parameter->empty()) {
      Fail(function, "() got an unexpected keyword argument '", name, "'");
    }
    const Value*& slot = values_[static_cast<size_t>(parameter - parameters.begin())];
    if (slot != nullptr) Fail(function, "() got multiple values for argument '", name, "'");
    slot = &value;
  }
  for (size_t i = 0; i < required; i++) {
    if (values_[i] == nullptr) {
      Fail(function, "() misses the required argument '", parameters.begin()[i], "'");
    }
  }
}

const Value* Bound::NotNone(size_t index) const {
  const Value* value = values_[index];
  return value != nullptr && value->is_none() ? nullptr : value;
}

bool Bound::Truth(size_t index, bool otherwise) const {
  return values_[index] != nullptr ? IsTrue(*values_[index]) : otherwise;
}

int64_t Bound::Int(size_t index, int64_t otherwise) const {
  const Value* value = values_[index];
  if (value == nullptr) return otherwise;
  if (!value->is_index()) {
    Fail(function_, "(): argument '", parameters_[index], "' must be an integer, not ",
         TypeName(*value));
  }
  return ToInt64(*value);
}

const Text& Bound::String(size_t index) const {
  const Value* value = values_[index];
  if (value == nullptr || !value->is_string()) {
    Fail(function_, "(): argument '", parameters_[index], "' must be a string, not ",
         value == nullptr ? "nothing" : TypeName(*value));
  }
  return value->text();
}

int64_t ToInt64(const Value& value) {
  constexpr Wide kLow = std::numeric_limits<int64_t>::min();
  constexpr Wide kHigh = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(value.integer(), kLow, kHigh));
}

}  // namespace staffel::jinja
