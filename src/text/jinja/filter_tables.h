// The filters by subject; FindFilter searches all of them.
#pragma once

#include <vector>

#include "text/jinja/builtins.h"

namespace staffel::jinja {

const std::vector<Filter>& TextFilters();
const std::vector<Filter>& SequenceFilters();
const std::vector<Filter>& ValueFilters();

// Looks an attribute up as filters name it: "a.b.0" goes through items of items; an integer is an
// index; None is the value itself.
class AttributePath {
 public:
  AttributePath(Runtime& runtime, const Value& attribute);
  // otherwise: stands for what is undefined; may be null.
  Value Get(const Value& value, const Value* otherwise = nullptr) const;

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
};

// A key to sort and compare by: strings in lower case unless the case matters.
Value SortKey(Runtime& runtime, const Value& value, bool case_sensitive);

}  // namespace staffel::jinja
