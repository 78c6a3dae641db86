// Strings that know which of their bytes come from the caller: a PromptText (bytes, and beside them
// a run-length list of the caller's bytes), with the pieces of Python's str that templates use.
// Bytes are valid UTF-8 throughout; positions are byte offsets unless they are called characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "staffel/tokenizer.h"
#include "text/utf8.h"

namespace staffel::jinja {

using Text = PromptText;

inline Text TemplateText(std::string_view bytes) { return {std::string(bytes), {}}; }
Text CallerText(std::string bytes);

// Whether any byte of the text comes from the caller.
inline bool HasContent(const Text& text) { return !text.content.empty(); }

// Appends bytes that are all the caller's (content) or all the template's.
void Append(Text& out, std::string_view bytes, bool content);
// Appends piece.text[begin, end) with its marks.
void Append(Text& out, const Text& piece, size_t begin, size_t end);
inline void Append(Text& out, const Text& piece) { Append(out, piece, 0, piece.text.size()); }

Text Slice(const Text& text, size_t begin, size_t end);

// Whether the byte at `offset` is the caller's; binary search.
bool IsContentAt(const Text& text, size_t offset);

// First (last) position of `needle`, or npos. Linear in the sizes, whatever the bytes are.
size_t FindBytes(std::string_view bytes, std::string_view needle, size_t begin = 0);
size_t FindLastBytes(std::string_view bytes, std::string_view needle);

// --- valid UTF-8 ---
// Code point at `offset`, which moves behind it. The bytes must be valid UTF-8.
char32_t NextCodePoint(std::string_view bytes, size_t& offset);
int64_t CountCharacters(std::string_view bytes);
// Byte offset of a character, counted from the start; the size if there are fewer.
size_t CharacterOffset(std::string_view bytes, int64_t character);

// --- Python's classes of characters ---
bool IsPythonSpace(char32_t code_point);      // str.isspace
bool IsPythonPrintable(char32_t code_point);  // str.isprintable: shown as it is by repr
bool IsLetter(char32_t code_point);           // str.isalpha
bool IsDigit(char32_t code_point);            // str.isdigit, over decimal digits
bool IsUpper(char32_t code_point);
bool IsLower(char32_t code_point);

enum class LetterCase { kUpper, kLower, kTitle };
// Appends the code point in the case asked for ("ß" in upper case is "SS").
void AppendInCase(Text& out, char32_t code_point, LetterCase letter_case, bool content);

// Half-open byte range without the whitespace at its ends.
struct Trimmed {
  size_t begin, end;
};
Trimmed TrimSpaces(std::string_view bytes, bool left, bool right);

}  // namespace staffel::jinja
