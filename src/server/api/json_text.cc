#include "server/api/json_text.h"

#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "text/utf8.h"

namespace staffel::api {
namespace {

void AppendEscaped(std::string& out, char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    case '\b':
      out += "\\b";
      break;
    case '\f':
      out += "\\f";
      break;
    default:
      out += "\\u00";
      out += kHex[(c >> 4) & 15];
      out += kHex[c & 15];
  }
}

bool IsPlainAscii(char c) { return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f; }

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  size_t i = 0;
  while (i < text.size()) {
    size_t begin = i;
    while (i < text.size() && IsPlainAscii(text[i])) i++;
    out.append(text, begin, i - begin);
    if (i == text.size()) break;
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      AppendEscaped(out, text[i++]);
      continue;
    }
    Utf8Step step = DecodeUtf8(text.substr(i));
    out.append(step.kind == Utf8Step::kCharacter ? text.substr(i, step.length)
                                                 : kReplacementCharacter);
    i += step.length;
  }
  out += '"';
}

void AppendJsonNumber(std::string& out, float value) {
  if (!std::isfinite(value)) value = -9999.0f;
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string_view text(buffer, end - buffer);
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void AppendJsonBytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); i++) {
    if (i > 0) out += ',';
    out += std::to_string(static_cast<uint8_t>(bytes[i]));
  }
  out += ']';
}

double JsonNumber(float value) {
  std::string text;
  AppendJsonNumber(text, value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string IdsJson(absl::Span<const TokenId> tokens) {
  std::string out = "[";
  for (const TokenId token : tokens) StrAppend(out, out.size() > 1 ? "," : "", token);
  return out + "]";
}

}  // namespace staffel::api
