// Ends reasoning that has had its tokens.
#pragma once

#include <memory>
#include <string>

#include "grammar/vocabulary.h"
#include "staffel/grammar.h"

namespace staffel::grammar {

// A sequence that may have any token.
std::unique_ptr<SequenceGrammar> AnyTokens(const Vocabulary& vocabulary);

// `inner` until reasoning has had spec.reasoning_tokens_max tokens; then the end of it, as soon as
// the text so far is whole characters, and `inner` again. Reasoning that begins anew is ended at
// once.
std::unique_ptr<SequenceGrammar> WithReasoningBudget(
    std::unique_ptr<SequenceGrammar> inner, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarSpec& spec);

}  // namespace staffel::grammar
