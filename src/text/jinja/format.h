// Python's two ways to format: "..." % values, and "...".format(...).
#pragma once

#include "text/jinja/arguments.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

// text % values: values is a tuple, a dict for %(name)s, or one value.
Value FormatPercent(Runtime& runtime, const Text& text, const Value& values);

// text.format(arguments).
Value FormatBraces(Runtime& runtime, const Text& text, const Arguments& arguments);

}  // namespace staffel::jinja
