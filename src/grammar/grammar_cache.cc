#include "grammar/grammar_cache.h"

#include <utility>

#include "base/strings.h"
#include "grammar/matcher.h"

namespace staffel::grammar {
namespace {

// Equal for equal specifications only: every text stands behind its length.
std::string KeyOf(const GrammarSpec& spec) {
  std::string key = StrCat(static_cast<int>(spec.kind), " ", static_cast<int>(spec.space), " ",
                           spec.tag_required, " ", spec.single_tag);
  const auto add = [&](const std::string& text) { StrAppend(key, " ", text.size(), ":", text); };
  add(spec.source);
  for (const std::string& choice : spec.choices) add(choice);
  key += " triggers";
  for (const std::string& trigger : spec.triggers) add(trigger);
  key += " tags";
  for (const StructuralTag& tag : spec.tags) {
    add(tag.begin);
    add(tag.schema);
    add(tag.end);
  }
  return key;
}

class MatchedSequence : public SequenceGrammar {
 public:
  explicit MatchedSequence(std::shared_ptr<Automaton> automaton)
      : ends_(std::make_shared<TokenMask>()), matcher_(automaton) {
    const Vocabulary& vocabulary = automaton->vocabulary();
    ends_->words.resize(vocabulary.mask_words());
    for (TokenId token : vocabulary.end_tokens()) {
      ends_->words[token / 32] |= MaskWord{1} << (token % 32);
    }
    ends_->count = static_cast<int>(vocabulary.end_tokens().size());
  }

  std::shared_ptr<const TokenMask> Mask() override {
    std::shared_ptr<const TokenMask> mask = matcher_.Mask();
    return mask != nullptr ? mask : ends_;
  }
  Status Append(TokenId token) override { return matcher_.Accept(token); }

 private:
  std::shared_ptr<TokenMask> ends_;  // behind an end token
  Matcher matcher_;
};

}  // namespace

Result<std::shared_ptr<const Vocabulary>> VocabularyOf(const Tokenizer& tokenizer) {
  VocabularySpec spec;
  spec.token_bytes.reserve(tokenizer.vocab_size());
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    spec.token_bytes.emplace_back(tokenizer.IsControl(token) ? std::string_view()
                                                             : tokenizer.TokenBytes(token));
  }
  spec.end_tokens.assign(tokenizer.end_tokens().begin(), tokenizer.end_tokens().end());
  return Vocabulary::Make(std::move(spec));
}

Result<std::shared_ptr<Automaton>> GrammarCache::Find(const GrammarSpec& spec) {
  std::string key = KeyOf(spec);
  {
    absl::MutexLock lock(&mutex_);
    if (auto found = by_key_.find(key); found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->automaton;
    }
  }
  STAFFEL_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Compile(spec, limits_));
  auto automaton = std::make_shared<Automaton>(std::move(grammar), vocabulary_);
  absl::MutexLock lock(&mutex_);
  auto [place, added] = by_key_.emplace(key, entries_.end());
  if (!added) return place->second->automaton;  // another request was faster
  entries_.push_front({std::move(key), automaton});
  place->second = entries_.begin();
  if (entries_.size() > kGrammarsMax) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return automaton;
}

Result<std::unique_ptr<SequenceGrammar>> GrammarCache::Begin(const GrammarSpec& spec) {
  STAFFEL_ASSIGN_OR_RETURN(std::shared_ptr<Automaton> automaton, Find(spec));
  return std::make_unique<MatchedSequence>(std::move(automaton));
}

}  // namespace staffel::grammar
