// The grammars of a model: made from its tokenizer when the first request needs them, since not
// every worker ever sees one. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "grammar/grammar_cache.h"
#include "staffel/grammar.h"
#include "staffel/status.h"
#include "staffel/tokenizer.h"

namespace staffel {

class ModelGrammars : public grammar::Grammars {
 public:
  using ReadTokenizer = std::function<Result<std::shared_ptr<const Tokenizer>>()>;
  // `read` is called once, by the first request.
  explicit ModelGrammars(ReadTokenizer read) : read_(std::move(read)) {}

  Status Check(const grammar::GrammarSpec& spec) override;
  Result<std::unique_ptr<grammar::SequenceGrammar>> Begin(
      const grammar::GrammarSpec& spec) override;

 private:
  Result<grammar::GrammarCache*> Cache();

  ReadTokenizer read_;
  std::once_flag once_;
  Status status_;
  std::unique_ptr<grammar::GrammarCache> cache_;
};

}  // namespace staffel
