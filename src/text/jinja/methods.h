// Tables of methods by type, and what methods and tests share.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/builtins.h"

namespace staffel::jinja {

const std::vector<Method>& StringMethods();
const std::vector<Method>& ListMethods();  // of lists, tuples and ranges
const std::vector<Method>& DictMethods();

// str.isupper() (upper) or str.islower(): some letter has case, and all that have it have this one.
bool HasCase(std::string_view bytes, bool upper);

}  // namespace staffel::jinja
