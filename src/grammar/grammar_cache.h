// The grammars that requests use, compiled once each: the last ones are kept, with what they have
// learnt of the vocabulary. Thread-safe; compiling holds up nobody but who asks for it.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"
#include "staffel/grammar.h"
#include "staffel/tokenizer.h"

namespace staffel::grammar {

// What grammars need of a tokenizer: bytes of its tokens, its end tokens.
Result<std::shared_ptr<const Vocabulary>> VocabularyOf(const Tokenizer& tokenizer);

class GrammarCache : public Grammars {
 public:
  static constexpr size_t kGrammarsMax = 32;

  explicit GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits = {})
      : vocabulary_(std::move(vocabulary)), limits_(limits) {}

  Status Check(const GrammarSpec& spec) override { return Find(spec).status(); }
  Result<std::unique_ptr<SequenceGrammar>> Begin(const GrammarSpec& spec) override;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Automaton> automaton;
  };
  Result<std::shared_ptr<Automaton>> Find(const GrammarSpec& spec);

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Limits limits_;
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the last used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace staffel::grammar
