#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/error.h"
#include "text/jinja/print.h"

namespace staffel::jinja {
namespace {

std::string InBase(Wide value, unsigned base, bool upper) {
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  auto rest = static_cast<uint64_t>(value < 0 ? -value : value);
  std::string out;
  do {
    out += digits[rest % base];
    rest /= base;
  } while (rest != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string Print(double value, char type, int64_t precision, bool alternate) {
  constexpr int64_t kPrecisionMax = 1000;
  if (precision > kPrecisionMax) Fail("a precision above ", kPrecisionMax, " is not supported");
  const std::string format = std::string(alternate ? "%#" : "%") + ".*" + type;
  const int digits = static_cast<int>(precision);
  std::string out(static_cast<size_t>(std::snprintf(nullptr, 0, format.c_str(), digits, value)),
                  ' ');
  std::snprintf(out.data(), out.size() + 1, format.c_str(), digits, value);
  return out;
}

// Digits of the absolute value, without sign.
std::string FloatDigits(double value, const FormatSpec& spec) {
  value = std::abs(value);
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (!std::isfinite(value)) {
    const std::string name = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    return spec.type == '%' ? name + "%" : name;
  }
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (spec.type == '%') return Print(value * 100, 'f', precision, spec.alternate) + "%";
  if (spec.type != '\0') {
    return Print(value, spec.type == 'n' ? 'g' : spec.type, precision, spec.alternate);
  }
  if (spec.precision < 0) return FloatRepr(value);
  std::string out = Print(value, 'g', precision, spec.alternate);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

// Thousands apart, up to the first character that is no digit.
std::string Group(const std::string& digits, char separator, int size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; i++) {
    if (i > 0 && (whole - i) % static_cast<size_t>(size) == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

// prefix (sign, 0x) and digits in the width.
void AppendPadded(TextBuilder& out, const std::string& prefix, const Text& body, bool content,
                  const FormatSpec& spec, char align) {
  const int64_t size = CountCharacters(prefix) + CountCharacters(body.text);
  const int64_t missing = std::max<int64_t>(0, spec.width - size);
  const int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const bool fill_content = HasContent(spec.fill);
  out.Repeat(spec.fill.text, before, fill_content);
  out.Append(prefix, content);
  if (align == '=') out.Repeat(spec.fill.text, missing, fill_content);
  out.Append(body);
  if (align != '=') out.Repeat(spec.fill.text, missing - before, fill_content);
}

bool IsFloatType(char type) {
  return type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

}  // namespace

void AppendFormattedNumber(TextBuilder& out, const Value& value, const FormatSpec& spec) {
  const bool content = value.content();
  std::string prefix, digits;
  bool negative;
  int group_size = 3;
  if (value.is_float() || IsFloatType(spec.type)) {
    const double number = value.number();
    negative = std::signbit(number) && !std::isnan(number);
    digits = FloatDigits(number, spec);
  } else {
    const Wide number = value.integer();
    if (spec.precision >= 0) Fail("precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
        Fail("%c arg not in range(0x110000)");
      }
      AppendUtf8(static_cast<char32_t>(static_cast<int64_t>(number)), &digits);
      Text body;
      Append(body, digits, content);
      return AppendPadded(out, "", body, content, spec, spec.align != '\0' ? spec.align : '<');
    }
    negative = number < 0;
    const char letter = static_cast<char>(spec.type | 0x20);
    const unsigned base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) group_size = 4;
    digits = InBase(number, base, spec.type == 'X');
    if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
  }
  const char* sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  prefix = sign + prefix;
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, group_size);
  Text body;
  Append(body, digits, content);
  AppendPadded(out, prefix, body, content, spec, spec.align != '\0' ? spec.align : '>');
}

void AppendFormattedText(TextBuilder& out, const Text& text, const FormatSpec& spec) {
  out.runtime().Work(2 * text.text.size());
  const size_t end =
      spec.precision < 0 ? text.text.size() : CharacterOffset(text.text, spec.precision);
  AppendPadded(out, "", Slice(text, 0, end), false, spec, spec.align != '\0' ? spec.align : '<');
}

FormatSpec ParseFormatSpec(const Text& text) {
  FormatSpec spec;
  const std::string& bytes = text.text;
  constexpr std::string_view kAligns = "<>=^";
  size_t at = 0;
  const auto peek = [&](size_t i) { return i < bytes.size() ? bytes[i] : '\0'; };
  const auto is_align = [&](size_t i) {
    return peek(i) != '\0' && kAligns.find(peek(i)) != std::string_view::npos;
  };
  const auto number = [&](int64_t* out) {
    constexpr int64_t kMax = int64_t{1} << 40;
    const size_t begin = at;
    *out = 0;
    for (; peek(at) >= '0' && peek(at) <= '9'; at++) {
      *out = std::min(kMax, *out * 10 + (peek(at) - '0'));
    }
    return at > begin;
  };
  size_t first_end = 0;
  if (!bytes.empty()) NextCodePoint(bytes, first_end);
  if (first_end > 0 && is_align(first_end)) {
    spec.fill = Slice(text, 0, first_end);
    spec.align = bytes[first_end];
    at = first_end + 1;
  } else if (is_align(0)) {
    spec.align = bytes[at++];
  }
  if (peek(at) == '+' || peek(at) == '-' || peek(at) == ' ') spec.sign = bytes[at++];
  if (peek(at) == '#') {
    spec.alternate = true;
    at++;
  }
  if (peek(at) == '0') {
    if (spec.align == '\0') {
      spec.fill = TemplateText("0");
      spec.align = '=';
    }
    at++;
  }
  number(&spec.width);
  if (peek(at) == ',' || peek(at) == '_') spec.grouping = bytes[at++];
  if (peek(at) == '.') {
    at++;
    if (!number(&spec.precision)) Fail("Format specifier missing precision");
  }
  if (at < bytes.size()) spec.type = bytes[at++];
  if (at < bytes.size()) Fail("Invalid format specifier '", bytes, "'");
  return spec;
}

}  // namespace staffel::jinja
