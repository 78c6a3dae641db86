// Splits a template into tokens: data, tags, and what stands inside tags. Whitespace control is
// done here (trim_blocks and lstrip_blocks on, the last newline of the source dropped), so that
// data tokens are what is printed. Follows Jinja2 3.1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace staffel::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;   // data, name, unescaped string, operator
  Wide integer = 0;   // kInteger
  double number = 0;  // kFloat
};

// The last token is kEnd. Fails with a TemplateError; *line is then the line of the mistake.
std::vector<Token> Tokenize(std::string_view source, int* line);

// The token in words, for messages.
std::string Describe(const Token& token);

}  // namespace staffel::jinja
