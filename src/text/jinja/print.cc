#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"

namespace staffel::jinja {

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits, end, exponent);
  constexpr int kFixedFrom = -4, kFixedTo = 16;  // Python writes exponents outside
  if (exponent < kFixedFrom || exponent >= kFixedTo) return std::string(text);
  char fixed[64];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
  std::string out(fixed, fixed_end);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string IntegerText(Wide value) {
  const auto magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  return (value < 0 ? "-" : "") + std::to_string(magnitude);
}

namespace {

void AppendHex(std::string& out, uint32_t value, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[value >> shift & 15];
}

void AppendStringRepr(TextBuilder& out, const Text& text) {
  const bool has_single = text.text.find('\'') != std::string::npos;
  const bool has_double = text.text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.Append(std::string_view(&quote, 1));
  size_t plain = 0;  // begin of what is copied as it is
  for (size_t at = 0; at < text.text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text.text, at);
    if (c != static_cast<unsigned char>(quote) && c != '\\' && IsPythonPrintable(c)) continue;
    out.Append(text, plain, begin);
    plain = at;
    std::string escape = "\\";
    if (c == '\n' || c == '\r' || c == '\t') {
      escape += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    } else if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      escape += static_cast<char>(c);
    } else {
      escape += c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U';
      AppendHex(escape, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
    out.Append(escape, IsContentAt(text, begin));
  }
  out.Append(text, plain, text.text.size());
  out.Append(std::string_view(&quote, 1));
}

void AppendItems(TextBuilder& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.Append(", ");
    first = false;
    AppendRepr(out, item);
  }
}

void AppendDictRepr(TextBuilder& out, const Dict& dict) {
  out.Append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.Append(", ");
    first = false;
    AppendRepr(out, key);
    out.Append(": ");
    AppendRepr(out, value);
  }
  out.Append("}");
}

void AppendSequenceRepr(TextBuilder& out, const Sequence& sequence) {
  const auto& items = sequence.items();
  switch (sequence.type()) {
    case SequenceType::kGenerator:
      return out.Append("<generator object>");
    case SequenceType::kRange: {
      const Wide begin = items.empty() ? Wide(0) : items[0].integer();
      const Wide step = items.size() > 1 ? items[1].integer() - begin : Wide(1);
      const Wide end = items.empty() ? Wide(0) : items.back().integer() + step;
      out.Append(StrCat("range(", IntegerText(begin), ", ", IntegerText(end)));
      if (step != 1) out.Append(StrCat(", ", IntegerText(step)));
      return out.Append(")");
    }
    case SequenceType::kTuple:
    case SequenceType::kGroup:
      out.Append("(");
      AppendItems(out, items);
      return out.Append(items.size() == 1 ? ",)" : ")");
    case SequenceType::kList:
      out.Append("[");
      AppendItems(out, items);
      return out.Append("]");
    case SequenceType::kDictKeys:
      out.Append("dict_keys([");
      break;
    case SequenceType::kDictValues:
      out.Append("dict_values([");
      break;
    case SequenceType::kDictItems:
      out.Append("dict_items([");
      break;
  }
  AppendItems(out, items);
  out.Append("])");
}

// Numbers, booleans and None read the same in str() and repr().
void AppendScalar(TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return out.Append("None", value.content());
    case Kind::kBool:
      return out.Append(value.boolean() ? "True" : "False", value.content());
    case Kind::kInteger:
      return out.Append(IntegerText(value.integer()), value.content());
    default:
      return out.Append(FloatRepr(value.number()), value.content());
  }
}

}  // namespace

void AppendRepr(TextBuilder& out, const Value& value) {
  out.runtime().Step();
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.Append("Undefined");
    case Kind::kString:
      return AppendStringRepr(out, value.text());
    case Kind::kSequence:
      return AppendSequenceRepr(out, value.sequence());
    case Kind::kDict:
      return AppendDictRepr(out, value.dict());
    case Kind::kObject: {
      const Runtime::Nesting nesting(out.runtime());  // a namespace may hold itself
      return AppendObjectRepr(out, value.object());
    }
    default:
      return AppendScalar(out, value);
  }
}

void AppendStr(TextBuilder& out, const Value& value) {
  if (value.is_undefined()) return;
  if (value.is_string()) return out.Append(value.text());
  AppendRepr(out, value);
}

Text Str(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  TextBuilder out(runtime);
  AppendStr(out, value);
  return out.Take();
}

Text Repr(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime);
  AppendRepr(out, value);
  return out.Take();
}

// --- JSON ---

namespace {

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonOptions& options) : out_(out), options_(options) {}

  void Write(const Value& value) {
    out_.runtime().Step();
    switch (value.kind()) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInteger:
      case Kind::kFloat:
        return out_.Append(Scalar(value), value.content());
      case Kind::kString:
        return WriteString(value.text());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kSequence:
        if (value.sequence().is_list_or_tuple()) return WriteList(value.sequence().items());
        break;
      default:
        break;
    }
    Fail("Object of type ", TypeName(value), " is not JSON serializable");
  }

 private:
  static std::string Scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.boolean() ? "true" : "false";
      case Kind::kInteger:
        return IntegerText(value.integer());
      default:
        break;
    }
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(number);
  }

  std::string Escape(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    std::string out = "\\u";
    if (c < 0x10000) {
      AppendHex(out, c, 4);
    } else {
      AppendHex(out, 0xD800 + ((c - 0x10000) >> 10), 4);
      out += "\\u";
      AppendHex(out, 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
    }
    return out;
  }

  void WriteString(const Text& text) {
    out_.Append("\"");
    size_t plain = 0;
    for (size_t at = 0; at < text.text.size();) {
      const size_t begin = at;
      const char32_t c = NextCodePoint(text.text, at);
      const bool escaped = c < 0x20 || c == '"' || c == '\\' || (options_.ensure_ascii && c > 0x7E);
      if (!escaped) continue;
      out_.Append(text, plain, begin);
      plain = at;
      out_.Append(Escape(c), IsContentAt(text, begin));
    }
    out_.Append(text, plain, text.text.size());
    out_.Append("\"");
  }

  void BreakLine() {
    if (!options_.pretty) return;
    out_.Append("\n");
    for (int i = 0; i < level_; i++) out_.Append(options_.indent);
  }

  void Separate(bool* first) {
    if (!*first) out_.Append(options_.item_separator);
    *first = false;
    BreakLine();
  }

  void WriteList(const std::vector<Value>& items) {
    if (items.empty()) return out_.Append("[]");
    out_.Append("[");
    level_++;
    bool first = true;
    for (const Value& item : items) {
      Separate(&first);
      Write(item);
    }
    level_--;
    BreakLine();
    out_.Append("]");
  }

  void WriteKey(const Value& key) {
    if (key.is_string()) return WriteString(key.text());
    if (!key.is_none() && !key.is_number()) {
      Fail("keys must be str, int, float, bool or None, not ", TypeName(key));
    }
    out_.Append("\"");
    out_.Append(Scalar(key), key.content());
    out_.Append("\"");
  }

  void WriteDict(const Dict& dict) {
    if (dict.entries().empty()) return out_.Append("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (options_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return Less(out_.runtime(), a->first, b->first);
      });
    }
    out_.Append("{");
    level_++;
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      Separate(&first);
      WriteKey(entry->first);
      out_.Append(options_.key_separator);
      Write(entry->second);
    }
    level_--;
    BreakLine();
    out_.Append("}");
  }

  TextBuilder& out_;
  const JsonOptions& options_;
  int level_ = 0;
};

}  // namespace

void AppendJson(TextBuilder& out, const Value& value, const JsonOptions& options) {
  JsonWriter(out, options).Write(value);
}

}  // namespace staffel::jinja
