// Python's string operations that filters and methods share. Marks of caller's bytes go with the
// bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace staffel::jinja {

Text ChangeCase(Runtime& runtime, const Text& text, LetterCase letter_case);
// First character in upper case, the others in lower case.
Text Capitalize(Runtime& runtime, const Text& text);
// str.title(): the first of every run of letters in upper case.
Text TitleOfLetters(Runtime& runtime, const Text& text);

enum class Side { kBoth, kLeft, kRight };
// Without the whitespace, or the characters of *characters, at the sides.
Text Strip(const Text& text, Side side, const Text* characters);

// str.split(): by whitespace if separator is null. maximum < 0: no limit. from_right: rsplit().
std::vector<Value> Split(Runtime& runtime, const Text& text, const Text* separator, int64_t maximum,
                         bool from_right);
// str.splitlines().
std::vector<Value> SplitLines(Runtime& runtime, const Text& text, bool keep_ends);

// count < 0: all.
Text Replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, int64_t count);
Text Join(Runtime& runtime, const Text& separator, const std::vector<Value>& items);

// Fills up to `width` characters with a fill character: on the right for kLeft (ljust), ...
Text Pad(Runtime& runtime, const Text& text, Side keep_at, int64_t width, const Text& fill);

// How often `needle` occurs in bytes, without overlap.
int64_t CountOccurrences(Runtime& runtime, std::string_view bytes, std::string_view needle);

}  // namespace staffel::jinja
