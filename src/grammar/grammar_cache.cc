#include "grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/strings.h"
#include "grammar/matcher.h"
#include "grammar/reasoning_budget.h"

namespace staffel::grammar {
namespace {

// A forced run is told in pieces of that many bytes: a const of a schema may be long.
constexpr size_t kForcedBytesMax = 512;

// Equal for equal specifications only: every text stands behind its length.
std::string KeyOf(const GrammarSpec& spec) {
  std::string key =
      StrCat(static_cast<int>(spec.kind), " ", static_cast<int>(spec.space), " ", spec.tag_required,
             " ", spec.single_tag, " ", spec.reasoning_open, " ", spec.leading_tags);
  const auto add = [&](const std::string& text) { StrAppend(key, " ", text.size(), ":", text); };
  add(spec.source);
  for (const std::string* literal :
       {&spec.list_begin, &spec.list_separator, &spec.list_end, &spec.text_begin,
        &spec.reasoning_begin, &spec.reasoning_end}) {
    add(*literal);
  }
  for (const std::string& choice : spec.choices) add(choice);
  key += " triggers";
  for (const std::string& trigger : spec.triggers) add(trigger);
  key += " tags";
  for (const StructuralTag& tag : spec.tags) {
    add(tag.begin);
    add(tag.schema);
    add(tag.end);
    StrAppend(key, " ", static_cast<int>(tag.form));
  }
  return key;
}

class MatchedSequence : public SequenceGrammar {
 public:
  MatchedSequence(std::shared_ptr<Automaton> automaton, GrammarCache::Spell spell)
      : vocabulary_(automaton->vocabulary()),
        spell_(std::move(spell)),
        ends_(std::make_shared<TokenMask>()),
        matcher_(automaton) {
    const Vocabulary& vocabulary = automaton->vocabulary();
    ends_->words.resize(vocabulary.mask_words());
    for (TokenId token : vocabulary.end_tokens()) {
      ends_->words[token / 32] |= MaskWord{1} << (token % 32);
    }
    ends_->count = static_cast<int>(vocabulary.end_tokens().size());
    SpellForced();
  }

  std::shared_ptr<const TokenMask> Mask() override {
    std::shared_ptr<const TokenMask> mask = matcher_.Mask();
    return mask != nullptr ? mask : ends_;
  }
  absl::Span<const TokenId> Forced() const override {
    return absl::MakeConstSpan(forced_).subspan(forced_begin_);
  }
  Status Append(TokenId token) override {
    STAFFEL_RETURN_IF_ERROR(matcher_.Accept(token));
    if (forced_begin_ < forced_.size() && forced_[forced_begin_] == token) {
      ++forced_begin_;  // the rest stays as it was spelt: text cut here may be spelt differently
    } else {
      forced_begin_ = forced_.size();
    }
    if (forced_begin_ == forced_.size()) SpellForced();
    return absl::OkStatus();
  }

 private:
  // What a model reads is split further on, where it would expect it: the last token of what is
  // forced may take in bytes that follow, unless a control token ends it.
  void SpellForced() {
    forced_.clear();
    forced_begin_ = 0;
    if (spell_ == nullptr) return;
    std::string bytes = matcher_.ForcedBytes(kForcedBytesMax);
    const size_t control = std::min(bytes.find(NamedTokenBytes("").front()), bytes.size());
    const bool closed = control < bytes.size();
    bytes.resize(control);
    if (bytes.empty()) return;
    forced_ = spell_(bytes);
    std::string_view rest = bytes;
    for (TokenId token : forced_) {
      const std::string_view spelt = vocabulary_.bytes(token);
      if (spelt.empty() || !rest.starts_with(spelt)) {
        forced_.clear();
        return;
      }
      rest.remove_prefix(spelt.size());
    }
    if (!rest.empty()) forced_.clear();
    if (!closed && !forced_.empty()) forced_.pop_back();
  }

  const Vocabulary& vocabulary_;
  const GrammarCache::Spell spell_;
  std::vector<TokenId> forced_;
  size_t forced_begin_ = 0;
  std::shared_ptr<TokenMask> ends_;  // behind an end token
  Matcher matcher_;
};

}  // namespace

Result<std::shared_ptr<const Vocabulary>> VocabularyOf(const Tokenizer& tokenizer) {
  VocabularySpec spec;
  spec.token_bytes.reserve(tokenizer.vocab_size());
  absl::flat_hash_set<std::string_view> names;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.IsControl(token)) {
      const std::string_view name = tokenizer.TokenBytes(token, /*special=*/true);
      spec.token_bytes.emplace_back();
      // Two tokens of one name: the first has it.
      if (!name.empty() && names.insert(name).second) spec.named_tokens.emplace_back(name, token);
    } else {
      spec.token_bytes.emplace_back(tokenizer.TokenBytes(token));
    }
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

Status GrammarCache::Check(const GrammarSpec& spec) {
  return spec.kind == GrammarSpec::Kind::kText ? absl::OkStatus() : Find(spec).status();
}

Result<std::unique_ptr<SequenceGrammar>> GrammarCache::Begin(const GrammarSpec& spec) {
  if (spec.kind == GrammarSpec::Kind::kText)
    return WithReasoningBudget(AnyTokens(*vocabulary_), vocabulary_, spec);
  STAFFEL_ASSIGN_OR_RETURN(std::shared_ptr<Automaton> automaton, Find(spec));
  return WithReasoningBudget(std::make_unique<MatchedSequence>(std::move(automaton), spell_),
                             vocabulary_, spec);
}

}  // namespace staffel::grammar
