#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {
namespace {

// An integer as %d takes it: floats lose their fraction.
Value Truncated(const Value& value, std::string_view conversion) {
  if (value.is_undefined()) Fail(value.undefined_reason());
  if (!value.is_number()) {
    Fail("%", conversion, " format: a real number is required, not ", TypeName(value));
  }
  if (!value.is_float()) return Value::Integer(value.integer(), value.content());
  const double whole = std::trunc(value.number());
  if (!(std::abs(whole) < 9.2e18)) Fail("cannot convert ", FloatRepr(whole), " to an integer");
  return Value::Integer(static_cast<int64_t>(whole), value.content());
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& text, const Value& values)
      : runtime_(runtime), out_(runtime), text_(text), values_(values) {
    if (values.is_sequence() && values.sequence().is_tuple()) {
      items_ = values.sequence().items();
    } else {
      items_ = {values};
    }
  }

  Value Run() {
    const std::string& bytes = text_.text;
    bool used_name = false;
    while (at_ < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.Append(text_, at_, percent);
      at_ = percent;
      if (at_ == bytes.size()) break;
      const size_t begin = at_++;
      if (Peek() == '%') {
        out_.Append(text_, begin, ++at_ - 1);
        continue;
      }
      used_name |= Convert();
    }
    // Python lets surplus values pass if they come in something that could be a mapping.
    const bool lenient =
        values_.is_dict() || values_.is_undefined() || (values_.is_sequence() && !IsTuple());
    if (!used_name && next_ < items_.size() && !lenient) {
      Fail("not all arguments converted during string formatting");
    }
    return out_.TakeValue();
  }

 private:
  bool IsTuple() const { return values_.is_sequence() && values_.sequence().is_tuple(); }
  char Peek() const { return at_ < text_.text.size() ? text_.text[at_] : '\0'; }

  const Value& NextItem() {
    if (next_ >= items_.size()) Fail("not enough arguments for format string");
    return items_[next_++];
  }

  // A number or "*", which takes it from the values.
  int64_t Number(int64_t otherwise) {
    if (Peek() == '*') {
      at_++;
      const Value& item = NextItem();
      if (!item.is_index()) Fail("* wants int");
      return ToInt64(item);
    }
    constexpr int64_t kMax = int64_t{1} << 40;
    if (Peek() < '0' || Peek() > '9') return otherwise;
    int64_t number = 0;
    for (; Peek() >= '0' && Peek() <= '9'; at_++) {
      number = std::min(kMax, number * 10 + (Peek() - '0'));
    }
    return number;
  }

  // One conversion, after its '%'. Whether it named a key.
  bool Convert() {
    std::optional<Value> named;
    if (Peek() == '(') named = NamedValue();
    FormatSpec spec;
    bool left = false, zero = false;
    for (char c = Peek(); c != '\0' && std::string_view("-+ 0#").find(c) != std::string_view::npos;
         c = Peek()) {
      left |= c == '-';
      zero |= c == '0';
      spec.alternate |= c == '#';
      if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
      at_++;
    }
    spec.width = Number(0);
    if (spec.width < 0) {
      left = true;
      spec.width = -std::max(spec.width, -(int64_t{1} << 40));
    }
    if (Peek() == '.') {
      at_++;
      spec.precision = std::max<int64_t>(0, Number(0));
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') at_++;
    if (Peek() == '\0') Fail("incomplete format");
    spec.type = text_.text[at_++];
    spec.align = left ? '<' : '>';
    const Value value = named ? *named : NextItem();
    Write(value, spec, zero && !left);
    return named.has_value();
  }

  Value NamedValue() {
    if (!values_.is_dict()) Fail("format requires a mapping");
    const size_t close = text_.text.find(')', at_);
    if (close == std::string::npos) Fail("incomplete format key");
    const std::string key = text_.text.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const Value* value = values_.dict().Find(key);
    if (value == nullptr) Fail("'", key, "' is not among the values to format");
    return *value;
  }

  void Write(const Value& value, FormatSpec spec, bool zero) {
    switch (spec.type) {
      case 's':
        return AppendFormattedText(out_, Str(runtime_, value), spec);
      case 'r':
      case 'a':
        return AppendFormattedText(out_, Repr(runtime_, value), spec);
      case 'c':
        if (value.is_string()) return AppendFormattedText(out_, value.text(), spec);
        spec.precision = -1;
        return AppendFormattedNumber(out_, Truncated(value, "c"), spec);
      default:
        break;
    }
    if (zero) {
      spec.fill = TemplateText("0");
      spec.align = '=';
    }
    const std::string_view type(&spec.type, 1);
    if (type.find_first_of("diuxXo") != std::string_view::npos) {
      const bool integer_only = type.find_first_of("xXo") != std::string_view::npos;
      if (integer_only && !value.is_index()) {
        Fail("%", type, " format: an integer is required, not ", TypeName(value));
      }
      // A precision is a least number of digits.
      if (spec.precision > 0) spec.width = std::max(spec.width, spec.precision);
      if (spec.precision > 0) {
        spec.fill = TemplateText("0");
        spec.align = '=';
      }
      spec.precision = -1;
      if (!integer_only) spec.type = 'd';
      return AppendFormattedNumber(out_, Truncated(value, type), spec);
    }
    if (type.find_first_of("eEfFgG") == std::string_view::npos) {
      Fail("unsupported format character '", type, "'");
    }
    if (value.is_undefined()) Fail(value.undefined_reason());
    if (!value.is_number()) Fail("must be real number, not ", TypeName(value));
    AppendFormattedNumber(out_, value, spec);
  }

  Runtime& runtime_;
  TextBuilder out_;
  const Text& text_;
  const Value& values_;
  std::vector<Value> items_;
  size_t next_ = 0;
  size_t at_ = 0;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  Text Run(const Text& text, int level) {
    if (level > 2) Fail("Max string recursion exceeded");
    TextBuilder out(runtime_);
    const std::string& bytes = text.text;
    size_t plain = 0;
    for (size_t at = 0; at < bytes.size();) {
      const char c = bytes[at];
      if (c != '{' && c != '}') {
        at++;
        continue;
      }
      out.Append(text, plain, at);
      if (at + 1 < bytes.size() && bytes[at + 1] == c) {
        plain = at + 1;
        at += 2;
        continue;
      }
      if (c == '}') Fail("Single '}' encountered in format string");
      const size_t close = FindClose(bytes, at);
      AppendField(out, Slice(text, at + 1, close), level);
      plain = at = close + 1;
    }
    out.Append(text, plain, bytes.size());
    return out.Take();
  }

 private:
  static size_t FindClose(const std::string& bytes, size_t open) {
    int depth = 0;
    for (size_t at = open; at < bytes.size(); at++) {
      if (bytes[at] == '{') depth++;
      if (bytes[at] == '}' && --depth == 0) return at;
    }
    Fail("expected '}' before end of string");
  }

  // name[!conversion][:spec]
  void AppendField(TextBuilder& out, const Text& field, int level) {
    const std::string& bytes = field.text;
    // "!" and ":" inside [...] belong to the name.
    size_t name_end = 0;
    bool bracket = false;
    while (name_end < bytes.size()) {
      const char c = bytes[name_end];
      if (!bracket && (c == '!' || c == ':')) break;
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      name_end++;
    }
    Value value = Resolve(bytes.substr(0, name_end));
    size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      if (conversion == 's') {
        value = runtime_.MakeString(Str(runtime_, value));
      } else if (conversion == 'r' || conversion == 'a') {
        value = runtime_.MakeString(Repr(runtime_, value));
      } else {
        Fail("unknown conversion specifier in a format string");
      }
      at += 2;
      if (at < bytes.size() && bytes[at] != ':') Fail("expected ':' after conversion specifier");
    }
    const Text spec =
        at < bytes.size() ? Run(Slice(field, at + 1, bytes.size()), level + 1) : Text();
    if (spec.text.empty()) return AppendStr(out, value);
    const FormatSpec parsed = ParseFormatSpec(spec);
    const bool as_text = value.is_string() && (parsed.type == '\0' || parsed.type == 's');
    if (as_text) return AppendFormattedText(out, value.text(), parsed);
    const std::string_view types =
        value.is_float() ? std::string_view("eEfFgGn%") : std::string_view("bcdoxXneEfFgG%");
    if (value.is_number() &&
        (parsed.type == '\0' || types.find(parsed.type) != std::string_view::npos)) {
      return AppendFormattedNumber(out, value, parsed);
    }
    Fail("unsupported format string '", spec.text, "' for a value of type ", TypeName(value));
  }

  // first(.attribute | [item])*
  Value Resolve(const std::string& name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, at));
    while (at < name.size()) {
      runtime_.Step();
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        value = GetAttribute(runtime_, value, name.substr(at + 1, end - at - 1));
        at = end;
      } else if (name[at] == '[') {
        const size_t end = name.find(']', at);
        if (end == std::string::npos) Fail("Missing ']' in format string");
        value = GetItem(runtime_, value, Key(name.substr(at + 1, end - at - 1)));
        at = end + 1;
      } else {
        Fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool IsNumber(const std::string& text) {
    constexpr size_t kDigitsMax = 9;
    return !text.empty() && text.size() <= kDigitsMax &&
           text.find_first_not_of("0123456789") == std::string::npos;
  }

  Value Key(const std::string& text) {
    return IsNumber(text) ? Value::Integer(std::stoi(text)) : runtime_.MakeString(text);
  }

  Value First(const std::string& name) {
    if (name.empty() || IsNumber(name)) {
      const bool counted = name.empty();
      if (counted ? numbered_ : counted_ > 0) {
        Fail("cannot switch between manual field specification and automatic field numbering");
      }
      if (!counted) numbered_ = true;
      const size_t index = counted ? counted_++ : static_cast<size_t>(std::stoi(name));
      if (index >= arguments_.positional.size()) {
        Fail("Replacement index ", index, " out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      runtime_.Step();
      if (key == name) return value;
    }
    Fail("'", name, "' is not among the values to format");
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t counted_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value FormatPercent(Runtime& runtime, const Text& text, const Value& values) {
  runtime.Work(4 * text.text.size());
  return PercentFormatter(runtime, text, values).Run();
}

Value FormatBraces(Runtime& runtime, const Text& text, const Arguments& arguments) {
  runtime.Work(4 * text.text.size());
  return runtime.MakeString(BraceFormatter(runtime, arguments).Run(text, 1));
}

}  // namespace staffel::jinja
