// Unicode normalisation form C (UAX #15), by utf8proc's tables.
#pragma once

#include <string>
#include <string_view>

namespace staffel {

// False if the text surely is in form C already; a cheap test for the usual case.
bool MayChangeInNfc(std::string_view text);

// The text in form C. Bytes that are not valid UTF-8 stay as they are. Linear time but for sorting
// the marks of one character.
std::string ToNfc(std::string_view text);

}  // namespace staffel
