// The tables of what a template can call: filters, tests, methods of values, global functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

// value | name(arguments)
struct Filter {
  std::string_view name;
  Value (*apply)(Runtime& runtime, const Value& input, Arguments& arguments);
};

// value is name(arguments)
struct Test {
  std::string_view name;
  bool (*apply)(Runtime& runtime, const Value& input, Arguments& arguments);
};

// self.name(arguments), with self's type checked before.
struct Method {
  std::string_view name;
  Value (*apply)(Runtime& runtime, const Value& self, Arguments& arguments);
};

// Null if there is none of that name.
const Filter* FindFilter(std::string_view name);
const Test* FindTest(std::string_view name);
// A method that the value has and a template may call (none that would change a list or dict).
const Method* FindMethod(const Value& self, std::string_view name);
// range, namespace, dict, cycler, joiner, raise_exception, strftime_now. Null for other names.
// The object has no state: all renders share it.
std::shared_ptr<Object> FindGlobal(std::string_view name);

}  // namespace staffel::jinja
