// A call as Python writes it, f(a=1, b=["x"]), with its arguments as JSON.
#pragma once

#include <string>

#include "answer/cursor.h"

namespace staffel::answer {

// Keyword arguments of numbers, strings, True, False, None, lists, tuples and dicts with string
// keys; JSON's words too. The cursor fails at anything else.
void ReadPythonCall(Cursor& cursor, std::string* name, std::string* arguments);

}  // namespace staffel::answer
