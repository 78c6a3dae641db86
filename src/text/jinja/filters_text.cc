// Filters over text.
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/string_ops.h"

namespace staffel::jinja {
namespace {

template <LetterCase letter_case>
Value InCase(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("upper", arguments, {});
  return runtime.MakeString(ChangeCase(runtime, Str(runtime, input), letter_case));
}

Value CapitalizeFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("capitalize", arguments, {});
  return runtime.MakeString(Capitalize(runtime, Str(runtime, input)));
}

// Words begin after spaces, hyphens and opening brackets; unlike str.title().
Value Title(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("title", arguments, {});
  const Text text = Str(runtime, input);
  runtime.Work(4 * text.text.size());
  Text out;
  bool begins = true;
  for (size_t at = 0; at < text.text.size();) {
    const bool content = IsContentAt(text, at);
    const char32_t c = NextCodePoint(text.text, at);
    const bool separator =
        IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    AppendInCase(out, c, begins && !separator ? LetterCase::kUpper : LetterCase::kLower, content);
    begins = separator;
  }
  return runtime.MakeString(std::move(out));
}

Value Trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Text* characters = bound.NotNone(0) != nullptr ? &bound.String(0) : nullptr;
  return runtime.MakeString(Strip(Str(runtime, input), Side::kBoth, characters));
}

Value ReplaceFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = bound.NotNone(2) != nullptr ? bound.Int(2, -1) : -1;
  return runtime.MakeString(Replace(runtime, Str(runtime, input), Str(runtime, *bound[0]),
                                    Str(runtime, *bound[1]), count));
}

Value StringFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("string", arguments, {});
  return input.is_string() ? input : runtime.MakeString(Str(runtime, input));
}

Value Safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("safe", arguments, {});
  return input.is_string() ? input : runtime.MakeString(Str(runtime, input));
}

Value Escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("escape", arguments, {});
  const Text text = Str(runtime, input);
  TextBuilder out(runtime);
  size_t plain = 0;
  for (size_t at = 0; at < text.text.size(); at++) {
    std::string_view escaped;
    switch (text.text[at]) {
      case '&':
        escaped = "&amp;";
        break;
      case '<':
        escaped = "&lt;";
        break;
      case '>':
        escaped = "&gt;";
        break;
      case '\'':
        escaped = "&#39;";
        break;
      case '"':
        escaped = "&#34;";
        break;
      default:
        continue;
    }
    out.Append(text, plain, at);
    out.Append(escaped, IsContentAt(text, at));
    plain = at + 1;
  }
  out.Append(text, plain, text.text.size());
  return out.TakeValue();
}

Value Format(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    Fail("format() cannot take positional and keyword arguments at the same time");
  }
  const Text text = Str(runtime, input);
  if (arguments.named.empty()) {
    return FormatPercent(runtime, text, runtime.MakeTuple(arguments.positional));
  }
  DictBuilder values(runtime);
  for (const auto& [name, value] : arguments.named) values.Set(runtime.MakeString(name), value);
  return FormatPercent(runtime, text, values.Take());
}

Value Center(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  return runtime.MakeString(
      Pad(runtime, Str(runtime, input), Side::kBoth, bound.Int(0, 80), TemplateText(" ")));
}

Value Indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (input.is_undefined()) Fail(input.undefined_reason());
  if (!input.is_string()) Fail("indent wants a string, not ", TypeName(input));
  TextBuilder indention(runtime);
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention.Append(bound[0]->text());
  } else {
    indention.Repeat(" ", bound.Int(0, 4));
  }
  const bool first = bound.Truth(1, false), blank = bound.Truth(2, false);
  Text text = input.text();
  Append(text, "\n", false);
  const std::vector<Value> lines = SplitLines(runtime, text, false);
  TextBuilder out(runtime);
  for (size_t i = 0; i < lines.size(); i++) {
    if (i > 0) out.Append("\n");
    if (i == 0 ? first : blank || !lines[i].bytes().empty()) out.Append(indention.text());
    out.Append(lines[i].text());
  }
  return out.TakeValue();
}

Value Truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (input.is_undefined()) return input;
  if (!input.is_string()) Fail("truncate wants a string, not ", TypeName(input));
  const int64_t length = bound.Int(0, 255);
  const int64_t leeway = bound.NotNone(3) != nullptr ? bound.Int(3, 5) : 5;
  const Text end = bound[2] != nullptr ? bound.String(2) : TemplateText("...");
  const int64_t end_length = CountCharacters(end.text);
  if (length < end_length || leeway < 0) Fail("truncate: the length is too small");
  const Text& text = input.text();
  runtime.Work(2 * text.text.size());
  if (CountCharacters(text.text) - leeway <= length) return input;
  Text kept = Slice(text, 0, CharacterOffset(text.text, length - end_length));
  if (!bound.Truth(1, false)) {
    const size_t space = kept.text.rfind(' ');
    if (space != std::string::npos) kept = Slice(kept, 0, space);
  }
  Append(kept, end);
  return runtime.MakeString(std::move(kept));
}

Value WordCount(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("wordcount", arguments, {});
  const Text text = Str(runtime, input);
  runtime.Work(4 * text.text.size());
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.text.size();) {
    const char32_t c = NextCodePoint(text.text, at);
    const bool word = IsLetter(c) || IsDigit(c) || c == '_';
    words += word && !inside;
    inside = word;
  }
  return Value::Integer(words);
}

// json.dumps as transformers sets it up: nothing escaped for HTML, keys in their order.
Value ToJson(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = bound.Truth(0, false);
  options.sort_keys = bound.Truth(3, false);
  options.key_separator = TemplateText(": ");
  if (const Value* indent = bound.NotNone(1)) {
    options.pretty = true;
    if (indent->is_string()) {
      options.indent = indent->text();
    } else {
      TextBuilder spaces(runtime);
      spaces.Repeat(" ", bound.Int(1, 0));
      options.indent = spaces.Take();
    }
  }
  options.item_separator = TemplateText(options.pretty ? "," : ", ");
  if (const Value* separators = bound.NotNone(2)) {
    const std::vector<Value> parts = Items(runtime, *separators);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      Fail("tojson: separators must be two strings");
    }
    options.item_separator = parts[0].text();
    options.key_separator = parts[1].text();
  }
  TextBuilder out(runtime);
  AppendJson(out, input, options);
  return out.TakeValue();
}

}  // namespace

const std::vector<Filter>& TextFilters() {
  static const std::vector<Filter> kFilters = {{"capitalize", CapitalizeFilter},
                                               {"center", Center},
                                               {"e", Escape},
                                               {"escape", Escape},
                                               {"forceescape", Escape},
                                               {"format", Format},
                                               {"indent", Indent},
                                               {"lower", InCase<LetterCase::kLower>},
                                               {"replace", ReplaceFilter},
                                               {"safe", Safe},
                                               {"string", StringFilter},
                                               {"title", Title},
                                               {"tojson", ToJson},
                                               {"trim", Trim},
                                               {"truncate", Truncate},
                                               {"upper", InCase<LetterCase::kUpper>},
                                               {"wordcount", WordCount}};
  return kFilters;
}

}  // namespace staffel::jinja
