#include "modelfile/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTokenType = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kMerges = "tokenizer.ggml.merges";

// Some converters write "none" as an unsigned -1.
constexpr int64_t kNoToken = 0xFFFFFFFF;

Status SizeError(const char* key, size_t size, size_t token_count) {
  return absl::InvalidArgumentError(StrCat("key '", key, "' has ", size, " elements where '",
                                           kTokens, "' has ", token_count,
                                           "; the file is damaged"));
}

Status ReadTypes(const GgufMetadata& metadata, TokenizerSpec* spec) {
  spec->types.assign(spec->tokens.size(), TokenType::kNormal);
  if (!metadata.Has(kTokenType)) return absl::OkStatus();
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<int64_t> types, metadata.IntArray(kTokenType));
  if (types.size() != spec->tokens.size()) {
    return SizeError(kTokenType, types.size(), spec->tokens.size());
  }
  for (size_t i = 0; i < types.size(); i++) {
    if (types[i] < 0 || types[i] > static_cast<int64_t>(TokenType::kByte)) {
      return absl::InvalidArgumentError(StrCat("key '", kTokenType, "' gives token ", i,
                                               " the type ", types[i], "; it must be from 1 to 6"));
    }
    // 0 is "undefined".
    if (types[i] != 0) spec->types[i] = static_cast<TokenType>(types[i]);
  }
  return absl::OkStatus();
}

Status ReadScores(const GgufMetadata& metadata, TokenizerSpec* spec) {
  if (!metadata.Has(kScores) && spec->model != "llama") return absl::OkStatus();
  STAFFEL_ASSIGN_OR_RETURN(spec->scores, metadata.FloatArray(kScores, kGgufTokensMax));
  if (spec->scores.size() != spec->tokens.size()) {
    return SizeError(kScores, spec->scores.size(), spec->tokens.size());
  }
  for (size_t i = 0; i < spec->scores.size(); i++) {
    if (!std::isfinite(spec->scores[i])) {
      return absl::InvalidArgumentError(StrCat("key '", kScores, "' gives token ", i, " the score ",
                                               spec->scores[i], "; it must be finite"));
    }
  }
  return absl::OkStatus();
}

Status ReadMerges(const GgufMetadata& metadata, TokenizerSpec* spec) {
  if (!metadata.Has(kMerges) && spec->model != "gpt2") return absl::OkStatus();
  STAFFEL_ASSIGN_OR_RETURN(spec->merges,
                           metadata.StringArray(kMerges, kGgufMergesMax, 2 * kGgufTokenBytesMax));
  return absl::OkStatus();
}

// A token number; if the key is absent, what is there already.
Status ReadToken(const GgufMetadata& metadata, const char* name, size_t token_count,
                 TokenId* token) {
  const std::string key = StrCat("tokenizer.ggml.", name);
  if (!metadata.Has(key)) return absl::OkStatus();
  if (const auto none = metadata.Int(key, kNoToken, kNoToken); none.ok()) {
    *token = -1;
    return absl::OkStatus();
  }
  STAFFEL_ASSIGN_OR_RETURN(const int64_t value,
                           metadata.Int(key, 0, static_cast<int64_t>(token_count) - 1));
  *token = static_cast<TokenId>(value);
  return absl::OkStatus();
}

// End tokens as a list: eos_token_ids (written by Ollama), eog_token_ids, or an array where one eos
// token is the rule.
Status ReadEndList(const GgufMetadata& metadata, const std::string& key, TokenizerSpec* spec) {
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, metadata.IntArray(key));
  for (const int64_t id : ids) {
    if (id < 0 || id >= static_cast<int64_t>(spec->tokens.size())) {
      return absl::InvalidArgumentError(
          StrCat("key '", key, "' names token ", id, " of a vocabulary of ", spec->tokens.size()));
    }
    spec->end_of_generation.push_back(static_cast<TokenId>(id));
  }
  return absl::OkStatus();
}

Status ReadEndTokens(const GgufMetadata& metadata, TokenizerSpec* spec) {
  const size_t count = spec->tokens.size();
  const GgufValue* eos = metadata.Find("tokenizer.ggml.eos_token_id");
  if (eos != nullptr && eos->type == GgufType::kArray) {
    STAFFEL_RETURN_IF_ERROR(ReadEndList(metadata, "tokenizer.ggml.eos_token_id", spec));
    if (!spec->end_of_generation.empty()) spec->eos = spec->end_of_generation.front();
  } else {
    STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, "eos_token_id", count, &spec->eos));
  }
  STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, "eot_token_id", count, &spec->eot));
  STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, "eom_token_id", count, &spec->eom));
  for (const char* key : {"tokenizer.ggml.eos_token_ids", "tokenizer.ggml.eog_token_ids"}) {
    if (metadata.Has(key)) STAFFEL_RETURN_IF_ERROR(ReadEndList(metadata, key, spec));
  }
  std::sort(spec->end_of_generation.begin(), spec->end_of_generation.end());
  spec->end_of_generation.erase(
      std::unique(spec->end_of_generation.begin(), spec->end_of_generation.end()),
      spec->end_of_generation.end());
  return absl::OkStatus();
}

// Tokens for filling in the middle, under the names of today and those of old files.
Status ReadFimTokens(const GgufMetadata& metadata, TokenizerSpec* spec) {
  const struct {
    const char* name;
    TokenId* token;
  } keys[] = {
      {"prefix_token_id", &spec->fim_prefix},     {"suffix_token_id", &spec->fim_suffix},
      {"middle_token_id", &spec->fim_middle},     {"fim_pre_token_id", &spec->fim_prefix},
      {"fim_suf_token_id", &spec->fim_suffix},    {"fim_mid_token_id", &spec->fim_middle},
      {"fim_pad_token_id", &spec->fim_padding},   {"fim_rep_token_id", &spec->fim_repository},
      {"fim_sep_token_id", &spec->fim_separator},
  };
  for (const auto& [name, token] : keys) {
    STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, name, spec->tokens.size(), token));
  }
  return absl::OkStatus();
}

Status ReadFlag(const GgufMetadata& metadata, const char* name, bool* flag) {
  const std::string key = StrCat("tokenizer.ggml.", name);
  if (!metadata.Has(key)) return absl::OkStatus();
  STAFFEL_ASSIGN_OR_RETURN(*flag, metadata.Bool(key));
  return absl::OkStatus();
}

// Old files name no special tokens; where SentencePiece has them is fixed (its trainer's defaults).
// Byte-level BPE has no such rule.
void SetSpecialTokensByDefault(TokenizerSpec* spec) {
  if (spec->model != "llama") return;
  const auto token = [&](TokenId id) {
    return id < static_cast<TokenId>(spec->tokens.size()) ? id : -1;
  };
  spec->unknown = token(0);
  spec->bos = token(1);
  spec->eos = token(2);
}

// Whether a file without add_bos_token means that prompts begin with bos: as llama.cpp decides, by
// the family, of which BPE files say only the pre-tokenizer.
bool AddsBosByDefault(const TokenizerSpec& spec) {
  if (spec.model == "llama") return spec.bos >= 0;
  constexpr std::string_view kBpeWithBos[] = {"chameleon", "falcon-h1", "falcon3",  "jina-v5-nano",
                                              "lfm2",      "llama-bpe", "llama-v3", "llama3",
                                              "midm-2.0",  "pixtral",   "tekken"};
  return std::find(std::begin(kBpeWithBos), std::end(kBpeWithBos), spec.pre) !=
         std::end(kBpeWithBos);
}

}  // namespace

Result<TokenizerSpec> ReadGgufTokenizer(const GgufMetadata& metadata) {
  TokenizerSpec spec;
  STAFFEL_ASSIGN_OR_RETURN(spec.model, metadata.String(kModel));
  if (metadata.Has(kPre)) {
    STAFFEL_ASSIGN_OR_RETURN(spec.pre, metadata.String(kPre));
  }
  STAFFEL_ASSIGN_OR_RETURN(spec.tokens,
                           metadata.StringArray(kTokens, kGgufTokensMax, kGgufTokenBytesMax));
  if (spec.tokens.empty()) {
    return absl::InvalidArgumentError(StrCat("key '", kTokens, "' is an empty array"));
  }
  STAFFEL_RETURN_IF_ERROR(ReadTypes(metadata, &spec));
  STAFFEL_RETURN_IF_ERROR(ReadScores(metadata, &spec));
  STAFFEL_RETURN_IF_ERROR(ReadMerges(metadata, &spec));
  SetSpecialTokensByDefault(&spec);
  STAFFEL_RETURN_IF_ERROR(ReadEndTokens(metadata, &spec));
  STAFFEL_RETURN_IF_ERROR(ReadFimTokens(metadata, &spec));
  const size_t count = spec.tokens.size();
  STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, "bos_token_id", count, &spec.bos));
  STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, "unknown_token_id", count, &spec.unknown));
  STAFFEL_RETURN_IF_ERROR(ReadToken(metadata, "padding_token_id", count, &spec.padding));
  spec.add_bos = AddsBosByDefault(spec);
  spec.add_space_prefix = spec.model == "llama";
  STAFFEL_RETURN_IF_ERROR(ReadFlag(metadata, "add_bos_token", &spec.add_bos));
  STAFFEL_RETURN_IF_ERROR(ReadFlag(metadata, "add_eos_token", &spec.add_eos));
  STAFFEL_RETURN_IF_ERROR(ReadFlag(metadata, "add_space_prefix", &spec.add_space_prefix));
  return spec;
}

}  // namespace staffel
