// Methods of strings, as Python's.
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/string_ops.h"

namespace staffel::jinja {
namespace {

using Args = Arguments;

template <LetterCase letter_case>
Value InCase(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("str", arguments, {});
  return runtime.MakeString(ChangeCase(runtime, self.text(), letter_case));
}

Value CapitalizeMethod(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("capitalize", arguments, {});
  return runtime.MakeString(Capitalize(runtime, self.text()));
}

Value Title(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("title", arguments, {});
  return runtime.MakeString(TitleOfLetters(runtime, self.text()));
}

Value SwapCase(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("swapcase", arguments, {});
  const Text& text = self.text();
  runtime.Work(4 * text.text.size());
  Text out;
  for (size_t at = 0; at < text.text.size();) {
    const bool content = IsContentAt(text, at);
    const char32_t c = NextCodePoint(text.text, at);
    AppendInCase(out, c, IsUpper(c) ? LetterCase::kLower : LetterCase::kUpper, content);
  }
  return runtime.MakeString(std::move(out));
}

template <Side side>
Value StripMethod(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  runtime.Work(2 * self.bytes().size());
  const Text* characters = bound.NotNone(0) != nullptr ? &bound.String(0) : nullptr;
  return runtime.MakeString(Strip(self.text(), side, characters));
}

template <bool from_right>
Value SplitMethod(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const Text* separator = bound.NotNone(0) != nullptr ? &bound.String(0) : nullptr;
  return runtime.MakeList(Split(runtime, self.text(), separator, bound.Int(1, -1), from_right));
}

Value SplitLinesMethod(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return runtime.MakeList(SplitLines(runtime, self.text(), bound.Truth(0, false)));
}

// Bytes [begin, end) of the characters that a method's start and end arguments name. None if start
// lies behind the text, where not even "" is found.
std::optional<Trimmed> Window(Runtime& runtime, const Text& text, const Bound& bound) {
  runtime.Work(2 * text.text.size());
  if (bound.NotNone(1) == nullptr && bound.NotNone(2) == nullptr) {
    return Trimmed{0, text.text.size()};
  }
  const int64_t size = CountCharacters(text.text);
  const auto resolve = [&](size_t index, int64_t otherwise) {
    int64_t at = bound.NotNone(index) != nullptr ? bound.Int(index, 0) : otherwise;
    if (at < 0) at = std::max<int64_t>(0, std::max(at, -size) + size);
    return at;
  };
  const int64_t begin = resolve(1, 0), end = std::min(resolve(2, size), size);
  if (begin > size || begin > end) return std::nullopt;
  return Trimmed{CharacterOffset(text.text, begin), CharacterOffset(text.text, end)};
}

template <bool last>
int64_t Find(Runtime& runtime, const Value& self, Args& arguments, std::string_view name) {
  const Bound bound(name, arguments, {"sub", "start", "end"}, 1);
  const Text& text = self.text();
  const std::string& needle = bound.String(0).text;
  const std::optional<Trimmed> window = Window(runtime, text, bound);
  if (!window) return -1;
  const std::string_view bytes =
      std::string_view(text.text).substr(window->begin, window->end - window->begin);
  const size_t found = last ? FindLastBytes(bytes, needle) : FindBytes(bytes, needle);
  if (found == std::string_view::npos) return -1;
  return CountCharacters(std::string_view(text.text).substr(0, window->begin + found));
}

template <bool last>
Value FindMethodOfText(Runtime& runtime, const Value& self, Args& arguments) {
  return Value::Integer(Find<last>(runtime, self, arguments, last ? "rfind" : "find"));
}

template <bool last>
Value Index(Runtime& runtime, const Value& self, Args& arguments) {
  const int64_t found = Find<last>(runtime, self, arguments, last ? "rindex" : "index");
  if (found < 0) Fail("substring not found");
  return Value::Integer(found);
}

Value Count(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = bound.String(0).text;
  const std::optional<Trimmed> window = Window(runtime, self.text(), bound);
  if (!window) return Value::Integer(0);
  return Value::Integer(CountOccurrences(
      runtime, std::string_view(self.bytes()).substr(window->begin, window->end - window->begin),
      needle));
}

template <bool at_end>
Value HasEdge(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  std::vector<Value> edges = {*bound[0]};
  if (bound[0]->is_sequence() && bound[0]->sequence().is_tuple()) {
    edges = bound[0]->sequence().items();
  }
  const std::optional<Trimmed> window = Window(runtime, self.text(), bound);
  bool found = false;
  for (const Value& edge : edges) {
    if (!edge.is_string()) {
      Fail(at_end ? "endswith" : "startswith", " first arg must be str or a tuple of str, not ",
           TypeName(edge));
    }
    if (!window) continue;
    const std::string_view bytes =
        std::string_view(self.bytes()).substr(window->begin, window->end - window->begin);
    found |= at_end ? bytes.ends_with(edge.bytes()) : bytes.starts_with(edge.bytes());
  }
  return Value::Bool(found);
}

template <bool at_end>
Value RemoveEdge(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", arguments, {"edge"}, 1);
  const std::string& edge = bound.String(0).text;
  const std::string_view bytes = self.bytes();
  if (edge.empty() || !(at_end ? bytes.ends_with(edge) : bytes.starts_with(edge))) return self;
  return runtime.MakeString(at_end ? Slice(self.text(), 0, bytes.size() - edge.size())
                                   : Slice(self.text(), edge.size(), bytes.size()));
}

template <bool last>
Value Partition(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound(last ? "rpartition" : "partition", arguments, {"sep"}, 1);
  const Text& separator = bound.String(0);
  if (separator.text.empty()) Fail("empty separator");
  runtime.Work(self.bytes().size());
  const Text& text = self.text();
  const size_t found =
      last ? FindLastBytes(text.text, separator.text) : FindBytes(text.text, separator.text);
  const Value empty = runtime.MakeString("");
  if (found == std::string::npos) {
    return runtime.MakeTuple(last ? std::vector<Value>{empty, empty, self}
                                  : std::vector<Value>{self, empty, empty});
  }
  const size_t behind = found + separator.text.size();
  return runtime.MakeTuple({runtime.MakeString(Slice(text, 0, found)),
                            runtime.MakeString(Slice(text, found, behind)),
                            runtime.MakeString(Slice(text, behind, text.text.size()))});
}

Value ReplaceMethod(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return runtime.MakeString(
      Replace(runtime, self.text(), bound.String(0), bound.String(1), bound.Int(2, -1)));
}

Value JoinMethod(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  const std::vector<Value> items = Items(runtime, *bound[0]);
  for (size_t i = 0; i < items.size(); i++) {
    if (!items[i].is_string()) {
      Fail("sequence item ", i, ": expected str instance, ", TypeName(items[i]), " found");
    }
  }
  return runtime.MakeString(Join(runtime, self.text(), items));
}

template <Side keep_at>
Value PadMethod(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("just", arguments, {"width", "fillchar"}, 1);
  const Text fill = bound[1] != nullptr ? bound.String(1) : TemplateText(" ");
  return runtime.MakeString(Pad(runtime, self.text(), keep_at, bound.Int(0, 0), fill));
}

Value ZeroFill(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const Text& text = self.text();
  const bool sign = !text.text.empty() && (text.text[0] == '+' || text.text[0] == '-');
  const int64_t missing = bound.Int(0, 0) - CountCharacters(text.text);
  TextBuilder out(runtime);
  if (sign) out.Append(text, 0, 1);
  out.Repeat("0", missing);
  out.Append(text, sign ? 1 : 0, text.text.size());
  return out.TakeValue();
}

Value ExpandTabs(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("expandtabs", arguments, {"tabsize"});
  const int64_t size = bound.Int(0, 8);
  const Text& text = self.text();
  TextBuilder out(runtime);
  int64_t column = 0;
  for (size_t at = 0; at < text.text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text.text, at);
    runtime.Step();
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.Repeat(" ", spaces, IsContentAt(text, begin));
      column += spaces;
    } else {
      out.Append(text, begin, at);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return out.TakeValue();
}

// Whether the text is not empty (unless empty_is) and all its characters are of a class.
template <bool (*is_of_class)(char32_t), bool empty_is = false>
Value AllAre(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("str", arguments, {});
  const std::string& bytes = self.bytes();
  runtime.Work(bytes.size());
  if (bytes.empty()) return Value::Bool(empty_is);
  for (size_t at = 0; at < bytes.size();) {
    if (!is_of_class(NextCodePoint(bytes, at))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

bool IsLetterOrDigit(char32_t c) { return IsLetter(c) || IsDigit(c); }
bool IsAsciiCharacter(char32_t c) { return c < 0x80; }

template <bool upper>
Value IsInCase(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("str", arguments, {});
  runtime.Work(self.bytes().size());
  return Value::Bool(HasCase(self.bytes(), upper));
}

Value IsTitle(Runtime& runtime, const Value& self, Args& arguments) {
  Bound("istitle", arguments, {});
  const std::string& bytes = self.bytes();
  runtime.Work(bytes.size());
  bool cased = false, inside = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t c = NextCodePoint(bytes, at);
    const bool upper = IsUpper(c), lower = IsLower(c);
    if ((upper && inside) || (lower && !inside)) return Value::Bool(false);
    inside = upper || lower;
    cased |= inside;
  }
  return Value::Bool(cased);
}

Value Format(Runtime& runtime, const Value& self, Args& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

Value FormatMap(Runtime& runtime, const Value& self, Args& arguments) {
  const Bound bound("format_map", arguments, {"mapping"}, 1);
  if (!bound[0]->is_dict()) Fail("format_map() takes a dict, not ", TypeName(*bound[0]));
  Arguments named;
  for (const auto& [key, value] : bound[0]->dict().entries()) {
    if (key.is_string()) named.named.emplace_back(key.bytes(), value);
  }
  return FormatBraces(runtime, self.text(), named);
}

}  // namespace

bool HasCase(std::string_view bytes, bool upper) {
  bool cased = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t c = NextCodePoint(bytes, at);
    if (upper ? IsLower(c) : IsUpper(c)) return false;
    cased |= IsLower(c) || IsUpper(c);
  }
  return cased;
}

const std::vector<Method>& StringMethods() {
  static const std::vector<Method> kMethods = {{"capitalize", CapitalizeMethod},
                                               {"casefold", InCase<LetterCase::kLower>},
                                               {"center", PadMethod<Side::kBoth>},
                                               {"count", Count},
                                               {"endswith", HasEdge<true>},
                                               {"expandtabs", ExpandTabs},
                                               {"find", FindMethodOfText<false>},
                                               {"format", Format},
                                               {"format_map", FormatMap},
                                               {"index", Index<false>},
                                               {"isalnum", AllAre<IsLetterOrDigit>},
                                               {"isalpha", AllAre<IsLetter>},
                                               {"isascii", AllAre<IsAsciiCharacter, true>},
                                               {"isdecimal", AllAre<IsDigit>},
                                               {"isdigit", AllAre<IsDigit>},
                                               {"islower", IsInCase<false>},
                                               {"isnumeric", AllAre<IsDigit>},
                                               {"isprintable", AllAre<IsPythonPrintable, true>},
                                               {"isspace", AllAre<IsPythonSpace>},
                                               {"istitle", IsTitle},
                                               {"isupper", IsInCase<true>},
                                               {"join", JoinMethod},
                                               {"ljust", PadMethod<Side::kLeft>},
                                               {"lower", InCase<LetterCase::kLower>},
                                               {"lstrip", StripMethod<Side::kLeft>},
                                               {"partition", Partition<false>},
                                               {"removeprefix", RemoveEdge<false>},
                                               {"removesuffix", RemoveEdge<true>},
                                               {"replace", ReplaceMethod},
                                               {"rfind", FindMethodOfText<true>},
                                               {"rindex", Index<true>},
                                               {"rjust", PadMethod<Side::kRight>},
                                               {"rpartition", Partition<true>},
                                               {"rsplit", SplitMethod<true>},
                                               {"rstrip", StripMethod<Side::kRight>},
                                               {"split", SplitMethod<false>},
                                               {"splitlines", SplitLinesMethod},
                                               {"startswith", HasEdge<false>},
                                               {"strip", StripMethod<Side::kBoth>},
                                               {"swapcase", SwapCase},
                                               {"title", Title},
                                               {"upper", InCase<LetterCase::kUpper>},
                                               {"zfill", ZeroFill}};
  return kMethods;
}

}  // namespace staffel::jinja
