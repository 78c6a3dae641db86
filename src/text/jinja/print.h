// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <string>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

// Shortest digits that read back as the same double, in Python's notation: "1.0", "1e+16", "inf".
std::string FloatRepr(double value);
std::string IntegerText(Wide value);

// str(): strings as they are, "" for undefined values.
void AppendStr(TextBuilder& out, const Value& value);
Text Str(Runtime& runtime, const Value& value);
// repr(): strings quoted.
void AppendRepr(TextBuilder& out, const Value& value);
Text Repr(Runtime& runtime, const Value& value);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one item a line, `indent` before it
  Text indent;
  Text item_separator, key_separator;
};
// Fails for what JSON cannot hold (undefined values, generators, objects).
void AppendJson(TextBuilder& out, const Value& value, const JsonOptions& options);

}  // namespace staffel::jinja
