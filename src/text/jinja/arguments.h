// Arguments of one call, and their binding to parameter names by Python's rules.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace staffel::jinja {

class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  bool empty() const { return positional.empty() && named.empty(); }
  // Takes a named argument out; null if it is not there.
  std::optional<Value> TakeNamed(std::string_view name);
};

// The arguments of one call to `function`, by parameter.
class Bound {
 public:
  // The first `required` parameters must be given; unknown, doubled and surplus arguments fail.
  Bound(std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters, size_t required = 0);

  // Null if the parameter was not given.
  const Value* operator[](size_t index) const { return values_[index]; }
  // As operator[], but null for None, too: Python functions use it for "not given".
  const Value* NotNone(size_t index) const;

  bool Truth(size_t index, bool otherwise) const;      // by Python's truth
  int64_t Int(size_t index, int64_t otherwise) const;  // fails for what is not an integer
  const Text& String(size_t index) const;  // fails for what is not a string or was not given

 private:
  const std::string_view function_;
  const std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

// An integer as an index or a count, clamped to 64 bits.
int64_t ToInt64(const Value& value);

}  // namespace staffel::jinja
