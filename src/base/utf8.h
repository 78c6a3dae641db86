// UTF-8 validity (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
#pragma once

#include <string_view>

namespace staffel {

bool IsValidUtf8(std::string_view bytes);

}  // namespace staffel
