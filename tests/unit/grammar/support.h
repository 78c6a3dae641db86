// A vocabulary of single bytes, and questions to a grammar as a whole.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/matcher.h"

namespace staffel::grammar {

// Tokens 0 to 255 are the bytes, 256 is the end.
inline std::shared_ptr<const Vocabulary> ByteVocabulary() {
  static const auto vocabulary = [] {
    VocabularySpec spec;
    for (int b = 0; b < 256; ++b) spec.token_bytes.emplace_back(1, static_cast<char>(b));
    spec.token_bytes.emplace_back();
    spec.end_tokens = {256};
    return *Vocabulary::Make(std::move(spec));
  }();
  return vocabulary;
}

inline Result<std::shared_ptr<Automaton>> MakeAutomaton(
    const GrammarSpec& spec, std::shared_ptr<const Vocabulary> vocabulary = ByteVocabulary(),
    const Limits& limits = {}) {
  STAFFEL_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Compile(spec, limits));
  return std::make_shared<Automaton>(std::move(grammar), std::move(vocabulary));
}

inline bool Accepts(const std::shared_ptr<Automaton>& automaton, std::string_view text) {
  Matcher matcher(automaton);
  return matcher.AcceptBytes(text).ok() && matcher.IsComplete();
}

inline GrammarSpec SchemaSpec(std::string_view schema) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kJsonSchema;
  spec.source = schema;
  return spec;
}

inline GrammarSpec RegexSpec(std::string_view pattern) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kRegex;
  spec.source = pattern;
  return spec;
}

inline GrammarSpec GbnfSpec(std::string_view source) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kGrammar;
  spec.source = source;
  return spec;
}

}  // namespace staffel::grammar
