// The grammars that requests use, compiled once each: the last ones are kept, with what they have
// learnt of the vocabulary. Thread-safe; compiling holds up nobody but who asks for it.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // Tokens of plain text, as the model has learnt to spell it. Called from any thread.
  using Spell = std::function<std::vector<TokenId>(std::string_view)>;

  // Without `spell` no token is known to be forced.
  explicit GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, Spell spell = nullptr,
                        const Limits& limits = {})
      : vocabulary_(std::move(vocabulary)), spell_(std::move(spell)), limits_(limits) {}

  Status Check(const GrammarSpec& spec) override;
  Result<std::unique_ptr<SequenceGrammar>> Begin(const GrammarSpec& spec) override;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Automaton> automaton;
  };
  Result<std::shared_ptr<Automaton>> Find(const GrammarSpec& spec);

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Spell spell_;
  const Limits limits_;
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the last used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace staffel::grammar
