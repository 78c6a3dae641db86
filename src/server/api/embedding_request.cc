#include "server/api/embedding_request.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "server/api/generation_options.h"
#include "server/api/prompts.h"

namespace staffel::api {
namespace {

// How an input that is too long is cut.
struct Cut {
  int tokens_max = 0;  // 0: it is refused
  bool keep_begin = false;
};

Cut ReadCut(const ServedModel& model, FieldReader& reader) {
  const int fits = std::min(model.limits.max_model_len, model.limits.kv_capacity_tokens);
  if (const auto last = ReadPromptTokensMax(reader)) return {*last < 0 ? fits : *last, false};
  if (reader.Bool("truncate").value_or(false)) return {fits, true};
  return {};
}

// `end`: the token that ends every input, or -1. It stays.
void Apply(const Cut& cut, TokenId end, std::vector<TokenId>& tokens) {
  if (end >= 0 && (tokens.empty() || tokens.back() != end)) tokens.push_back(end);
  if (cut.tokens_max == 0 || tokens.size() <= static_cast<size_t>(cut.tokens_max)) return;
  if (cut.keep_begin) {
    tokens.resize(cut.tokens_max);
    if (end >= 0) tokens.back() = end;
  } else {
    tokens.erase(tokens.begin(), tokens.end() - cut.tokens_max);
  }
}

}  // namespace

Checked<EmbeddingSpec> ReadEmbedding(std::shared_ptr<const ServedModel> model,
                                     FieldReader& reader) {
  if (model->pooling == Pooling::kNone) {
    ApiError error = FromStatus(absl::UnimplementedError(StrCat(
        "the model '", model->names[0], "' gives no embeddings: ", model->embedding_problem)));
    error.code = "no_embeddings";
    return error;
  }
  EmbeddingSpec spec;
  const bool add_special = reader.Bool("add_special_tokens").value_or(true);
  const Cut cut = ReadCut(*model, reader);
  const int64_t hidden = model->facts.embedding_length;
  spec.dimensions =
      static_cast<int>(reader.Int("dimensions", 1, hidden > 0 ? hidden : INT32_MAX).value_or(0));
  spec.normalize = reader.Bool("normalize").value_or(true);
  spec.priority = static_cast<int>(reader.Int("priority", INT32_MIN, INT32_MAX).value_or(0));
  spec.cache_salt = ReadCacheSalt(reader);
  if (!reader.ok()) return *reader.error();
  Checked<std::vector<GenerationPrompt>> read = ReadPrompts(*model,
                                                            {.field = "input",
                                                             .count_max = kEmbeddingInputsMax,
                                                             .plain = true,
                                                             .add_special = add_special},
                                                            reader);
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const TokenizerSpec& tokenizer = model->tokenizer->spec();
  for (GenerationPrompt& prompt : std::get<std::vector<GenerationPrompt>>(read)) {
    const bool ends = prompt.is_text && add_special && tokenizer.add_eos;
    Apply(cut, ends ? tokenizer.eos : -1, prompt.tokens);
    if (auto error = CheckPromptLength(*model, prompt.tokens.size(), 0, "input")) return *error;
    spec.inputs.push_back(std::move(prompt.tokens));
  }
  spec.model = std::move(model);
  return spec;
}

}  // namespace staffel::api
