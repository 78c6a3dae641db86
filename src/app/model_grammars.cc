#include "app/model_grammars.h"

#include <utility>

namespace staffel {

Result<grammar::GrammarCache*> ModelGrammars::Cache() {
  std::call_once(once_, [this] {
    const auto make = [this]() -> Status {
      STAFFEL_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, read_());
      STAFFEL_ASSIGN_OR_RETURN(std::shared_ptr<const grammar::Vocabulary> vocabulary,
                               grammar::VocabularyOf(*tokenizer));
      cache_ = std::make_unique<grammar::GrammarCache>(
          std::move(vocabulary), [tokenizer](std::string_view text) {
            return tokenizer->Encode(text, /*parse_special=*/false, /*add_bos=*/false);
          });
      return absl::OkStatus();
    };
    status_ = make();
    read_ = nullptr;
  });
  STAFFEL_RETURN_IF_ERROR(status_);
  return cache_.get();
}

Status ModelGrammars::Check(const grammar::GrammarSpec& spec) {
  STAFFEL_ASSIGN_OR_RETURN(grammar::GrammarCache* const cache, Cache());
  return cache->Check(spec);
}

Result<std::unique_ptr<grammar::SequenceGrammar>> ModelGrammars::Begin(
    const grammar::GrammarSpec& spec) {
  STAFFEL_ASSIGN_OR_RETURN(grammar::GrammarCache* const cache, Cache());
  return cache->Begin(spec);
}

}  // namespace staffel
