// One formatted field: what to write, how wide, where in the width.
#pragma once

#include <cstdint>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

struct FormatSpec {
  Text fill = TemplateText(" ");
  char align = '\0';  // '<' left, '>' right, '^' centre, '=' between sign and digits
  char sign = '-';    // '-' for negative numbers only, '+' or ' ' for the others, too
  bool alternate = false;
  char grouping = '\0';  // ',' or '_' between thousands
  int64_t width = 0;
  int64_t precision = -1;  // -1: not given
  char type = '\0';        // conversion letter; '\0': the natural one of the value
};

// A number as the type letter says: d b o x X c n e E f F g G %.
void AppendFormattedNumber(TextBuilder& out, const Value& value, const FormatSpec& spec);
// Text, cut to the precision and filled to the width.
void AppendFormattedText(TextBuilder& out, const Text& text, const FormatSpec& spec);

// [[fill]align][sign][#][0][width][grouping][.precision][type]
FormatSpec ParseFormatSpec(const Text& spec);

}  // namespace staffel::jinja
