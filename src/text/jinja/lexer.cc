#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/error.h"

namespace staffel::jinja {
namespace {

bool IsNameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte >= 0x80;
}

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// Every kind of line end becomes "\n", and one at the end of the source is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); i++) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') i++;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, int* line) : source_(NormalizeNewlines(source)), line_(*line) {
    line_ = 1;
  }

  std::vector<Token> Run() {
    while (position_ < source_.size()) LexData();
    Add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool At(std::string_view text) const { return rest().substr(0, text.size()) == text; }

  void Add(TokenKind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text)});
  }

  // Moves on, counting lines.
  void Skip(size_t bytes) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(position_),
                   source_.begin() + static_cast<ptrdiff_t>(position_ + bytes), '\n'));
    position_ += bytes;
  }
  void SkipSpaces() { Skip(TrimSpaces(rest(), true, false).begin); }

  // Data up to the next tag, then the tag.
  void LexData() {
    size_t tag = position_;
    while ((tag = source_.find('{', tag)) != std::string::npos) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      tag++;
    }
    if (tag == std::string::npos) {
      AddData(source_.size() - position_, '+', true);
      return;
    }
    const char opener = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    AddData(tag - position_, sign, opener == '{');
    line_starting_ = false;
    if (opener == '%' && LexRaw(sign)) return;
    const int tag_line = line_;
    position_ += sign != '\0' ? 3 : 2;
    if (opener == '#') {
      LexComment(tag_line);
    } else {
      LexTag(opener == '{');
    }
  }

  // Data of the given length before a tag, stripped as the tag wants.
  void AddData(size_t length, char sign, bool before_variable) {
    std::string_view data = rest().substr(0, length);
    if (sign == '-') {
      data = data.substr(0, TrimSpaces(data, false, true).end);
    } else if (sign != '+' && !before_variable) {
      const size_t newline = data.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view tail = data.substr(line_begin);
      if ((line_begin > 0 || line_starting_) &&
          TrimSpaces(tail, true, false).begin == tail.size()) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) Add(TokenKind::kData, std::string(data));
    Skip(length);
  }

  // Offset behind `{%- raw` etc. and its end, or 0.
  size_t MatchWordTag(std::string_view text, std::string_view word, bool* strips, bool* keeps) {
    size_t at = 2;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) at++;
    at += TrimSpaces(text.substr(at), true, false).begin;
    if (text.substr(at, word.size()) != word) return 0;
    at += word.size();
    at += TrimSpaces(text.substr(at), true, false).begin;
    *strips = at < text.size() && text[at] == '-';
    *keeps = at < text.size() && text[at] == '+';
    if (*strips || *keeps) at++;
    return text.substr(at, 2) == "%}" ? at + 2 : 0;
  }

  bool LexRaw(char) {
    bool strips, keeps;
    const size_t begin = MatchWordTag(rest(), "raw", &strips, &keeps);
    if (begin == 0 || keeps) return false;
    const int tag_line = line_;
    Skip(begin);
    if (strips) SkipSpaces();
    line_starting_ = position_ > 0 && source_[position_ - 1] == '\n';
    for (size_t tag = position_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const std::string_view text = std::string_view(source_).substr(tag);
      const size_t end = MatchWordTag(text, "endraw", &strips, &keeps);
      if (end == 0) continue;
      AddData(tag - position_, text[2], false);
      Skip(end);
      FinishTag(strips, keeps, true);
      return true;
    }
    line_ = tag_line;
    Fail("missing end of raw block");
  }

  void LexComment(int tag_line) {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) {
      line_ = tag_line;
      Fail("missing end of comment");
    }
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Skip(end + 2 - position_);
    FinishTag(sign == '-', sign == '+', true);
  }

  // What a closing delimiter does to the text behind it.
  void FinishTag(bool strips, bool keeps, bool block) {
    if (strips) {
      SkipSpaces();
    } else if (!keeps && block && position_ < source_.size() && source_[position_] == '\n') {
      Skip(1);
    }
    line_starting_ = source_[position_ - 1] == '\n';
  }

  void LexTag(bool variable) {
    Add(variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    while (true) {
      if (open_.empty() && LexTagEnd(variable)) return;
      if (position_ >= source_.size()) return;  // the parser says what is missing
      LexInside();
    }
  }

  bool LexTagEnd(bool variable) {
    const std::string_view end = variable ? "}}" : "%}";
    const bool strips = At("-") && rest().substr(1, 2) == end;
    const bool keeps = !variable && At("+") && rest().substr(1, 2) == end;
    if (!strips && !keeps && !At(end)) return false;
    Add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
    Skip(strips || keeps ? 3 : 2);
    FinishTag(strips, keeps, !variable);
    return true;
  }

  void LexInside() {
    const size_t spaces = TrimSpaces(rest(), true, false).begin;
    if (spaces > 0) return Skip(spaces);
    const char c = source_[position_];
    if (IsAsciiDigit(c)) return LexNumber();
    if (IsNameByte(c)) {
      size_t length = 1;
      while (length < rest().size() && IsNameByte(rest()[length])) length++;
      Add(TokenKind::kName, std::string(rest().substr(0, length)));
      return Skip(length);
    }
    if (c == '"' || c == '\'') return LexString(c);
    LexOperator();
  }

  // Length of digits with single underscores between them, from `offset`; 0 if there are none.
  size_t DigitsLength(size_t offset, bool (*is_digit)(char), bool leading_underscore) const {
    const std::string_view text = rest();
    size_t at = offset;
    bool digit_last = leading_underscore;
    while (at < text.size()) {
      if (is_digit(text[at])) {
        digit_last = true;
      } else if (text[at] == '_' && digit_last && at + 1 < text.size() && is_digit(text[at + 1])) {
        digit_last = false;
      } else {
        break;
      }
      at++;
    }
    return at - offset;
  }

  void LexNumber() {
    const std::string_view text = rest();
    const size_t whole = DigitsLength(0, IsAsciiDigit, false);
    size_t length = whole;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    if (!after_dot) {
      if (length + 1 < text.size() && text[length] == '.' && IsAsciiDigit(text[length + 1])) {
        length += 1 + DigitsLength(length + 1, IsAsciiDigit, false);
      }
      if (length < text.size() && (text[length] | 0x20) == 'e') {
        size_t exponent = length + 1;
        if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) exponent++;
        const size_t digits = DigitsLength(exponent, IsAsciiDigit, false);
        if (digits > 0) length = exponent + digits;
      }
    }
    if (length > whole) return AddFloat(length);
    LexInteger();
  }

  static std::string WithoutUnderscores(std::string_view text) {
    std::string out(text);
    std::erase(out, '_');
    return out;
  }

  void AddFloat(size_t length) {
    const std::string digits = WithoutUnderscores(rest().substr(0, length));
    Add(TokenKind::kFloat, digits);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().number);
    if (error != std::errc()) Fail("the number ", digits, " is out of range");
    Skip(length);
  }

  void LexInteger() {
    const std::string_view text = rest();
    const char marker =
        text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
    int base = 10;
    size_t length = 0;
    if (marker == 'x' || marker == 'o' || marker == 'b') {
      constexpr auto kHex = [](char c) {
        return IsAsciiDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      };
      constexpr auto kOctal = [](char c) { return c >= '0' && c <= '7'; };
      constexpr auto kBinary = [](char c) { return c == '0' || c == '1'; };
      length = marker == 'x'   ? DigitsLength(2, kHex, true)
               : marker == 'o' ? DigitsLength(2, kOctal, true)
                               : DigitsLength(2, kBinary, true);
      if (length > 0) base = marker == 'x' ? 16 : marker == 'o' ? 8 : 2;
    }
    const size_t prefix = base == 10 ? 0 : 2;
    if (base == 10) {
      // "007" is the integers 00 and 7, and so a syntax error, as in Jinja.
      constexpr auto kZero = [](char c) { return c == '0'; };
      length =
          text[0] == '0' ? DigitsLength(0, kZero, false) : DigitsLength(0, IsAsciiDigit, false);
    }
    const std::string digits = WithoutUnderscores(text.substr(prefix, length));
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc()) Fail("the integer ", digits, " does not fit into 64 bits");
    Add(TokenKind::kInteger, digits);
    tokens_.back().integer = value;
    Skip(prefix + length);
  }

  void LexString(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("a string does not end");
    const std::string_view body =
        std::string_view(source_).substr(position_ + 1, end - position_ - 1);
    Add(TokenKind::kString, Unescape(body));
    Skip(body.size() + 2);
  }

  // Python's escapes in a plain string; an unknown one stays as it is.
  static std::string Unescape(std::string_view body) {
    std::string out;
    for (size_t i = 0; i < body.size(); i++) {
      if (body[i] != '\\') {
        out += body[i];
        continue;
      }
      const char c = body[++i];
      constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
        out += kMeanings[letter];
      } else if (c >= '0' && c <= '7') {
        size_t length = 1;
        while (length < 3 && i + length < body.size() && body[i + length] >= '0' &&
               body[i + length] <= '7') {
          length++;
        }
        AppendCode(out, body.substr(i, length), 8);
        i += length - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (i + length >= body.size()) Fail("truncated \\", c, " escape");
        AppendCode(out, body.substr(i + 1, length), 16);
        i += length;
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  static void AppendCode(std::string& out, std::string_view digits, int base) {
    uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (error != std::errc() || end != digits.data() + digits.size() || code > 0x10FFFF ||
        surrogate) {
      Fail("invalid escape '", digits, "' in a string");
    }
    AppendUtf8(code, &out);
  }

  void LexOperator() {
    constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    std::string_view text = rest().substr(0, 2);
    if (std::find(kPairs.begin(), kPairs.end(), text) == kPairs.end()) text = text.substr(0, 1);
    const char c = text[0];
    if (text.size() == 1 && kSingles.find(c) == std::string_view::npos) {
      Fail("unexpected character '", text, "'");
    }
    if (c == '(' || c == '[' || c == '{') {
      open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) Fail("unexpected '", c, "'");
      if (open_.back() != c) Fail("unexpected '", c, "', expected '", open_.back(), "'");
      open_.pop_back();
    }
    Add(TokenKind::kOperator, std::string(text));
    Skip(text.size());
  }

  const std::string source_;
  int& line_;
  size_t position_ = 0;
  bool line_starting_ = true;  // the data that follows begins a line
  std::string open_;           // closers of the brackets that are open inside a tag
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source, int* line) {
  return Lexer(source, line).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kName:
    case TokenKind::kOperator:
      return StrCat("'", token.text, "'");
  }
  return "a token";
}

}  // namespace staffel::jinja
