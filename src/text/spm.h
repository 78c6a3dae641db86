// SentencePiece's BPE as GGUF stores it (model "llama"): spaces are written as U+2581, neighbours
// merge while their joined text is a piece, best score first, and characters without a piece become
// byte tokens.
#pragma once

#include <memory>

#include "staffel/status.h"
#include "staffel/tokenizer.h"

namespace staffel {

// Control, unknown, unused and byte tokens are never the product of a merge. A character that has
// neither a piece nor byte tokens becomes the unknown token, or nothing if there is none. A text,
// and text after a special token, gets a space in front if the file asks for it (add_space_prefix);
// then Decode takes one leading space off. InvalidArgument: see ValidateVocabulary; scores that are
// missing or not finite.
Result<std::unique_ptr<Tokenizer>> MakeSpmTokenizer(TokenizerSpec spec);

}  // namespace staffel
