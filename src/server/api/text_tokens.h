// Tokens with their places in a text, for routes that show how a text is cut.
#pragma once

#include <string_view>

#include "absl/types/span.h"
#include "server/api/json_parse.h"
#include "staffel/tokenizer.h"

namespace staffel::api {

// [{"id", "text", "start", "stop"}, ...]: half-open ranges of characters (code points) of `text`,
// whose tokens these are. A token of a part of a character has that character; one that is not in
// the text, such as bos, is empty.
Json TokensInText(const Tokenizer& tokenizer, std::string_view text,
                  absl::Span<const TokenId> tokens);

}  // namespace staffel::api
