// JSON texts as values that keep what a schema needs: the order of members and the digits of
// numbers. Values; no threads.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/limits.h"
#include "staffel/status.h"

namespace staffel::grammar {

// A number without rounding: sign, digits before the point (without leading zeros; "" is 0) and
// after it (without trailing zeros).
struct Decimal {
  bool negative = false;  // never for zero
  std::string whole, fraction;

  bool IsInteger() const { return fraction.empty(); }
  bool IsZero() const { return whole.empty() && fraction.empty(); }
  std::strong_ordering operator<=>(const Decimal& other) const;
  bool operator==(const Decimal&) const = default;
};

struct JsonValue {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;  // of a string, unescaped; of a number, as it was written
  Decimal number;
  std::vector<JsonValue> items;
  std::vector<std::pair<std::string, JsonValue>> members;  // keys differ: the last of equal ones

  const JsonValue* Find(std::string_view key) const;
  bool IsString() const { return kind == Kind::kString; }
  bool IsNumber() const { return kind == Kind::kNumber; }
  bool IsObject() const { return kind == Kind::kObject; }
  bool IsArray() const { return kind == Kind::kArray; }
};

// Values are equal as JSON Schema has it (4.2.2): numbers by value, objects whatever their order.
bool JsonEqual(const JsonValue& a, const JsonValue& b);

// InvalidArgument: not JSON (RFC 8259), larger or deeper than the limits, a number with an exponent
// beyond 400, or a string with half a surrogate.
Result<JsonValue> ParseJson(std::string_view text, const Limits& limits);

// The string as JSON, in quotes, with the shortest escapes.
std::string QuoteJson(std::string_view text);

}  // namespace staffel::grammar
