// From a vocabulary as a model file tells it to a tokenizer.
#pragma once

#include <memory>

#include "staffel/status.h"
#include "staffel/tokenizer.h"

namespace staffel {

// Byte-level BPE (model "gpt2") or SentencePiece with scores (model "llama"). InvalidArgument for a
// vocabulary that is damaged or a pre-tokenizer that is not known, Unimplemented for other models;
// the message names what is wrong. The tokenizer is immutable and used from any thread; texts may
// have up to 1 GiB.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerSpec spec);

}  // namespace staffel
