#include "grammar/json_value.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "grammar/char_set.h"

namespace staffel::grammar {
namespace {

constexpr int kExponentMax = 400;

std::strong_ordering CompareMagnitude(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() <=> b.whole.size();
  if (const int order = a.whole.compare(b.whole); order != 0) return order <=> 0;
  return a.fraction.compare(b.fraction) <=> 0;
}

class Parser {
 public:
  Parser(std::string_view text, const Limits& limits) : text_(text), limits_(limits) {}

  Result<JsonValue> Parse() {
    if (text_.size() > limits_.source_bytes) {
      return absl::InvalidArgumentError(
          StrCat("the text has more than ", limits_.source_bytes, " bytes"));
    }
    if (!IsValidUtf8(text_)) return Error("it is not valid UTF-8");
    JsonValue value;
    STAFFEL_RETURN_IF_ERROR(Value(value, 0));
    SkipSpace();
    if (position_ != text_.size()) return Error("something follows the value");
    return value;
  }

 private:
  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool Take(char c) {
    if (Peek() != c || position_ == text_.size()) return false;
    ++position_;
    return true;
  }
  void SkipSpace() {
    while (position_ < text_.size() &&
           std::string_view(" \t\r\n").find(Peek()) != std::string_view::npos) {
      ++position_;
    }
  }
  Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        StrCat("the text is not JSON: ", what, " (at byte ", position_, ")"));
  }

  Status Value(JsonValue& value, int depth) {
    if (depth > limits_.json_depth) {
      return absl::InvalidArgumentError(
          StrCat("the JSON text nests more than ", limits_.json_depth, " values; make it flatter"));
    }
    SkipSpace();
    if (Take('{')) return Object(value, depth);
    if (Take('[')) return Array(value, depth);
    if (Peek() == '"') {
      value.kind = JsonValue::Kind::kString;
      return String(value.text);
    }
    if (Word("null")) return absl::OkStatus();
    const bool yes = Word("true");
    if (yes || Word("false")) {
      value.kind = JsonValue::Kind::kBool;
      value.boolean = yes;
      return absl::OkStatus();
    }
    return Number(value);
  }

  bool Word(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  Status Array(JsonValue& value, int depth) {
    value.kind = JsonValue::Kind::kArray;
    SkipSpace();
    if (Take(']')) return absl::OkStatus();
    do {
      STAFFEL_RETURN_IF_ERROR(Value(value.items.emplace_back(), depth + 1));
      SkipSpace();
    } while (Take(','));
    return Take(']') ? absl::OkStatus() : Error("an array has no end");
  }

  Status Object(JsonValue& value, int depth) {
    value.kind = JsonValue::Kind::kObject;
    absl::flat_hash_map<std::string, size_t> known;
    SkipSpace();
    if (Take('}')) return absl::OkStatus();
    do {
      SkipSpace();
      std::string key;
      STAFFEL_RETURN_IF_ERROR(String(key));
      SkipSpace();
      if (!Take(':')) return Error("a colon is missing");
      JsonValue member;
      STAFFEL_RETURN_IF_ERROR(Value(member, depth + 1));
      auto [found, added] = known.emplace(key, value.members.size());
      if (added) {
        value.members.emplace_back(std::move(key), std::move(member));
      } else {
        value.members[found->second].second = std::move(member);
      }
      SkipSpace();
    } while (Take(','));
    return Take('}') ? absl::OkStatus() : Error("an object has no end");
  }

  std::optional<uint32_t> Hex4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = 16 * value + static_cast<uint32_t>(digit);
      ++position_;
    }
    return value;
  }

  Status String(std::string& out) {
    if (!Take('"')) return Error("a string or a value is missing");
    while (true) {
      if (position_ == text_.size()) return Error("a string has no end");
      const char c = text_[position_++];
      if (c == '"') return absl::OkStatus();
      if (static_cast<uint8_t>(c) < 0x20) return Error("a string has a control character");
      if (c != '\\') {
        out += c;
        continue;
      }
      STAFFEL_RETURN_IF_ERROR(Escape(out));
    }
  }

  Status Escape(std::string& out) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kChars = "\"\\/\b\f\n\r\t";
    const char letter = Peek();
    if (const size_t known = kLetters.find(letter); letter != 0 && known < kLetters.size()) {
      ++position_;
      out += kChars[known];
      return absl::OkStatus();
    }
    if (!Take('u')) return Error("an escape is unknown");
    std::optional<uint32_t> code = Hex4();
    if (code && *code >= 0xD800 && *code < 0xDC00 && Word("\\u")) {
      const std::optional<uint32_t> low = Hex4();
      if (!low || *low < 0xDC00 || *low > 0xDFFF) return Error("a surrogate has no partner");
      code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
    }
    if (!code) return Error("an escape needs four hexadecimal digits");
    if (*code >= 0xD800 && *code <= 0xDFFF) return Error("a surrogate has no partner");
    AppendUtf8(out, *code);
    return absl::OkStatus();
  }

  std::string_view DigitRun() {
    const size_t begin = position_;
    while (Peek() >= '0' && Peek() <= '9') ++position_;
    return text_.substr(begin, position_ - begin);
  }

  Status Number(JsonValue& value) {
    const size_t begin = position_;
    const bool negative = Take('-');
    std::string whole(DigitRun()), fraction;
    if (whole.empty() || (whole.size() > 1 && whole[0] == '0')) return Error("a value is missing");
    if (Take('.')) {
      fraction = DigitRun();
      if (fraction.empty()) return Error("a number ends with its point");
    }
    int exponent = 0;
    if (Take('e') || Take('E')) {
      const bool down = Take('-');
      if (!down) Take('+');
      const std::string_view digits = DigitRun();
      if (digits.empty()) return Error("an exponent has no digits");
      for (char c : digits) exponent = std::min(exponent * 10 + (c - '0'), kExponentMax + 1);
      if (exponent > kExponentMax) return Error("an exponent is beyond 400");
      if (down) exponent = -exponent;
    }
    value.kind = JsonValue::Kind::kNumber;
    value.text = text_.substr(begin, position_ - begin);
    for (; exponent > 0; --exponent) {
      whole += fraction.empty() ? '0' : fraction[0];
      if (!fraction.empty()) fraction.erase(0, 1);
    }
    for (; exponent < 0; ++exponent) {
      fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
      if (!whole.empty()) whole.pop_back();
    }
    whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
    const size_t last = fraction.find_last_not_of('0');
    fraction.resize(last == std::string::npos ? 0 : last + 1);
    value.number = {negative && !(whole.empty() && fraction.empty()), std::move(whole),
                    std::move(fraction)};
    return absl::OkStatus();
  }

  std::string_view text_;
  const Limits& limits_;
  size_t position_ = 0;
};

}  // namespace

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (negative != other.negative) {
    return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return negative ? CompareMagnitude(other, *this) : CompareMagnitude(*this, other);
}

const JsonValue* JsonValue::Find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool JsonEqual(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return a.boolean == b.boolean;
    case JsonValue::Kind::kNumber:
      return a.number == b.number;
    case JsonValue::Kind::kString:
      return a.text == b.text;
    case JsonValue::Kind::kArray:
      return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), JsonEqual);
    case JsonValue::Kind::kObject:
      if (a.members.size() != b.members.size()) return false;
      for (const auto& [key, value] : a.members) {
        const JsonValue* other = b.Find(key);
        if (other == nullptr || !JsonEqual(value, *other)) return false;
      }
      return true;
  }
  return false;
}

Result<JsonValue> ParseJson(std::string_view text, const Limits& limits) {
  return Parser(text, limits).Parse();
}

std::string QuoteJson(std::string_view text) {
  static constexpr std::string_view kChars = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (const size_t known = kChars.find(c); known != std::string_view::npos) {
      out += '\\';
      out += kLetters[known];
    } else if (byte < 0x20) {
      StrAppend(out, "\\u00", kHex[byte >> 4], kHex[byte & 15]);
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

}  // namespace staffel::grammar
