// The tokenizer.ggml.* keys of a GGUF file as a TokenizerSpec.
#pragma once

#include "modelfile/gguf_metadata.h"
#include "staffel/status.h"
#include "staffel/tokenizer.h"

namespace staffel {

// Keys as written by llama.cpp's converters (gguf-py/gguf/constants.py). Checked: element types,
// equal sizes of tokens, token types and scores, token numbers inside the vocabulary, finite
// scores. Errors name the key. Values that the file leaves out are those llama.cpp assumes: a
// "llama" vocabulary adds bos and a space in front, a "gpt2" one neither ("llama-bpe" adds bos).
Result<TokenizerSpec> ReadGgufTokenizer(const GgufMetadata& metadata);

}  // namespace staffel
