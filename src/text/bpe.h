// Byte-level BPE as GPT-2 introduced it: bytes are written as printable characters, words are cut
// by an expression, and merged by rank.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "staffel/status.h"
#include "staffel/tokenizer.h"
#include "text/pre_tokenizer.h"

namespace staffel {

// For model "gpt2". Merges may name strings that are no token: they merge on, and what is left of
// them at the end is given byte by byte; a byte that has no token gives nothing. Where the
// vocabulary repeats a text, the first token stands for it. InvalidArgument: see
// ValidateVocabulary; an unknown pre-tokenizer; a merge that is not two strings with a space
// between.
Result<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(TokenizerSpec spec,
                                                    PreTokenizerOptions options = {});

// The character that stands for a byte in a byte-level vocabulary, and back: -1 if none does.
char32_t ByteLevelCharacter(uint8_t byte);
int ByteLevelByte(char32_t character);

}  // namespace staffel
