#include "text/jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "text/jinja/error.h"
#include "text/jinja/text.h"

namespace staffel::jinja {
namespace {

std::string_view Trim(std::string_view text) {
  const Trimmed trimmed = TrimSpaces(text, true, true);
  return text.substr(trimmed.begin, trimmed.end - trimmed.begin);
}

// Without single underscores between digits; nothing if an underscore stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_' &&
                         std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<Wide> ParseInteger(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) Fail("int() base must be >= 2 and <= 36, or 0");
  text = Trim(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int64_t marked = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : -1;
    if (marked > 0 && (base == 0 || base == marked)) {
      base = marked;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty() || digits->front() == '-') return std::nullopt;
  uint64_t value = 0;
  const char* end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, value, static_cast<int>(base));
  if (error == std::errc::result_out_of_range && stop == end) {
    Fail("an integer does not fit into 64 bits");
  }
  if (error != std::errc() || stop != end) return std::nullopt;
  return negative ? -Wide(value) : Wide(value);
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> digits = WithoutUnderscores(Trim(text));
  if (!digits || digits->empty()) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.front() == '+') rest.remove_prefix(1);
  if (rest.empty() || rest.front() == '+') return std::nullopt;
  double value = 0;
  const char* end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(rest.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
  // from_chars takes nan(chars), which Python does not.
  if (rest.back() == ')') return std::nullopt;
  // Out of range: Python gives an infinity or zero, as strtod does.
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(rest).c_str(), nullptr);
  return value;
}

Value TruncateToInteger(double value, bool content) {
  const double whole = std::trunc(value);
  if (!(std::abs(whole) < 9.3e18)) Fail("a float is too large for an integer of 64 bits");
  return Value::Integer(Wide(whole), content);
}

Value RoundHalfEven(const Value& value, int precision) {
  if (!value.is_float()) {
    const Wide whole = value.integer();
    if (precision >= 0) return Value::Integer(whole, value.content());
    constexpr int kDigitsMax = 20;
    if (precision < -kDigitsMax) return Value::Integer(0, value.content());
    Wide unit = 1;
    for (int i = 0; i < -precision; i++) unit = unit * 10;
    Wide quotient = whole / unit, remainder = whole % unit;
    if (remainder < 0) {
      remainder += unit;
      quotient -= 1;
    }
    const bool up = remainder * 2 > unit || (remainder * 2 == unit && quotient % 2 != 0);
    return Value::Integer((quotient + (up ? 1 : 0)) * unit, value.content());
  }
  const double number = value.number();
  if (!std::isfinite(number)) return value;
  // Printing rounds the exact binary value correctly, as Python does.
  char buffer[1024];
  if (precision >= 0) {
    std::snprintf(buffer, sizeof buffer, "%.*f", precision, number);
    return Value::Float(std::strtod(buffer, nullptr), value.content());
  }
  const double unit = std::pow(10.0, -precision);
  return Value::Float(std::nearbyint(number / unit) * unit, value.content());
}

}  // namespace staffel::jinja
