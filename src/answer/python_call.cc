#include "answer/python_call.h"

#include <cstdint>

namespace staffel::answer {
namespace {

constexpr int kDepthMax = 64;

char Next(Cursor& cursor) {
  const char c = cursor.Peek();
  if (cursor.ok()) cursor.Seek(cursor.position() + 1);
  return c;
}

void AppendUtf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// \xHH, \uHHHH, \UHHHHHHHH; surrogates and what lies beyond Unicode fail.
void ReadCodePoint(Cursor& cursor, int digits, std::string* out) {
  uint32_t code = 0;
  for (int i = 0; i < digits && cursor.ok(); ++i) {
    const char c = Next(cursor);
    const size_t digit = std::string_view("0123456789abcdef").find(c | 0x20);
    if (!cursor.ok()) return;
    if (digit == std::string_view::npos) return cursor.Fail();
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return cursor.Fail();
  if (cursor.ok()) AppendUtf8(*out, code);
}

void ReadEscape(Cursor& cursor, std::string* out) {
  const char c = Next(cursor);
  if (!cursor.ok()) return;
  switch (c) {
    case 'n':
      *out += '\n';
      break;
    case 't':
      *out += '\t';
      break;
    case 'r':
      *out += '\r';
      break;
    case '\n':  // the line goes on
      break;
    case '\\':
    case '\'':
    case '"':
    case '/':
      *out += c;
      break;
    case 'x':
      return ReadCodePoint(cursor, 2, out);
    case 'u':
      return ReadCodePoint(cursor, 4, out);
    case 'U':
      return ReadCodePoint(cursor, 8, out);
    default:  // Python keeps both
      *out += '\\';
      *out += c;
  }
}

void ReadString(Cursor& cursor, std::string* json) {
  const char quote = Next(cursor);
  std::string text;
  for (;;) {
    const char c = Next(cursor);
    if (!cursor.ok()) return;
    if (c == quote) break;
    if (c == '\\') {
      ReadEscape(cursor, &text);
    } else {
      text += c;
    }
  }
  *json += '"';
  AppendJsonEscaped(*json, text);
  *json += '"';
}

void ReadValue(Cursor& cursor, int depth, std::string* json);

// Items up to `close`; `open` is read.
void ReadItems(Cursor& cursor, char close, int depth, std::string* json) {
  const bool dict = close == '}';
  *json += dict ? '{' : '[';
  for (bool first = true;; first = false) {
    cursor.Space();
    if (cursor.Accept({&close, 1})) break;
    if (!cursor.ok()) return;
    if (!first) *json += ", ";
    if (dict) {
      const char quote = cursor.Peek();
      if (quote != '"' && quote != '\'') return cursor.Fail();
      ReadString(cursor, json);
      cursor.Space();
      cursor.Expect(":");
      *json += ": ";
    }
    ReadValue(cursor, depth + 1, json);
    cursor.Space();
    if (cursor.Accept(",")) continue;
    cursor.Expect({&close, 1});
    break;
  }
  *json += dict ? '}' : ']';
}

void ReadWord(Cursor& cursor, std::string* json) {
  const std::string_view word = cursor.Word();
  if (!cursor.ok()) return;
  if (word == "True") {
    *json += "true";
  } else if (word == "False") {
    *json += "false";
  } else if (word == "None") {
    *json += "null";
  } else if (IsJson(word)) {
    *json += word;
  } else {
    cursor.Fail();
  }
}

void ReadValue(Cursor& cursor, int depth, std::string* json) {
  if (depth > kDepthMax) return cursor.Fail();
  cursor.Space();
  const char first = cursor.Peek();
  if (!cursor.ok()) return;
  if (first == '"' || first == '\'') return ReadString(cursor, json);
  if (first != '[' && first != '(' && first != '{') return ReadWord(cursor, json);
  Next(cursor);
  ReadItems(cursor, first == '[' ? ']' : first == '(' ? ')' : '}', depth, json);
}

}  // namespace

void ReadPythonCall(Cursor& cursor, std::string* name, std::string* arguments) {
  *name = cursor.Word();
  cursor.Expect("(");
  *arguments = "{";
  while (cursor.ok()) {
    cursor.Space();
    if (cursor.Accept(")")) break;
    const std::string_view key = cursor.Word();
    cursor.Space();
    cursor.Expect("=");
    if (!cursor.ok()) return;
    *arguments += arguments->size() > 1 ? ", \"" : "\"";
    AppendJsonEscaped(*arguments, key);
    *arguments += "\": ";
    ReadValue(cursor, 0, arguments);
    cursor.Space();
    if (cursor.Accept(",")) continue;
    cursor.Expect(")");
    break;
  }
  *arguments += '}';
}

}  // namespace staffel::answer
