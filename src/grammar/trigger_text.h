// Free text and the literals that end it.
#pragma once

#include <string>
#include <vector>

#include "grammar/char_dfa.h"

namespace staffel::grammar {

// Texts that end with the first occurrence of any trigger, which is `wanted` (an index); wanted <
// 0: texts without any. Triggers are valid UTF-8 and not empty.
CharDfa UntilTrigger(const std::vector<std::string>& triggers, int wanted);

}  // namespace staffel::grammar
