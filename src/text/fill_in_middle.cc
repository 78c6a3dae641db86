#include "text/fill_in_middle.h"

#include "base/strings.h"

namespace staffel {
namespace {

struct FimName {
  std::string_view text;
  TokenId TokenizerSpec::*token;
};

// Qwen and CodeGemma; StarCoder; Granite; DeepSeek; CodeLlama.
constexpr FimName kFimNames[] = {
    {"<|fim_prefix|>", &TokenizerSpec::fim_prefix},
    {"<|fim_suffix|>", &TokenizerSpec::fim_suffix},
    {"<|fim_middle|>", &TokenizerSpec::fim_middle},
    {"<|fim_pad|>", &TokenizerSpec::fim_padding},
    {"<|repo_name|>", &TokenizerSpec::fim_repository},
    {"<|file_sep|>", &TokenizerSpec::fim_separator},
    {"<|file_separator|>", &TokenizerSpec::fim_separator},
    {"<fim_prefix>", &TokenizerSpec::fim_prefix},
    {"<fim_suffix>", &TokenizerSpec::fim_suffix},
    {"<fim_middle>", &TokenizerSpec::fim_middle},
    {"<fim_pad>", &TokenizerSpec::fim_padding},
    {"<repo_name>", &TokenizerSpec::fim_repository},
    {"<reponame>", &TokenizerSpec::fim_repository},
    {"<file_sep>", &TokenizerSpec::fim_separator},
    {"<fim-prefix>", &TokenizerSpec::fim_prefix},
    {"<fim-suffix>", &TokenizerSpec::fim_suffix},
    {"<fim-middle>", &TokenizerSpec::fim_middle},
    {"<fim-pad>", &TokenizerSpec::fim_padding},
    {"<\uFF5Cfim\u2581begin\uFF5C>", &TokenizerSpec::fim_prefix},
    {"<\uFF5Cfim\u2581hole\uFF5C>", &TokenizerSpec::fim_suffix},
    {"<\uFF5Cfim\u2581end\uFF5C>", &TokenizerSpec::fim_middle},
    {"\u2581<PRE>", &TokenizerSpec::fim_prefix},
    {"\u2581<SUF>", &TokenizerSpec::fim_suffix},
    {"\u2581<MID>", &TokenizerSpec::fim_middle},
};

}  // namespace

void FindFimTokens(TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.tokens.size(); i++) {
    if (spec.types[i] != TokenType::kControl && spec.types[i] != TokenType::kUserDefined) continue;
    for (const FimName& known : kFimNames) {
      TokenId& token = spec.*known.token;
      if (token < 0 && spec.tokens[i] == known.text) token = static_cast<TokenId>(i);
    }
  }
}

Result<std::vector<TokenId>> FimPrompt(const Tokenizer& tokenizer, std::string_view prefix,
                                       std::string_view suffix) {
  return FimPrompt(tokenizer, tokenizer.Encode(prefix, /*parse_special=*/false, /*add_bos=*/false),
                   suffix);
}

Result<std::vector<TokenId>> FimPrompt(const Tokenizer& tokenizer, absl::Span<const TokenId> prefix,
                                       std::string_view suffix) {
  const TokenizerSpec& spec = tokenizer.spec();
  if (spec.fim_prefix < 0 || spec.fim_suffix < 0 || spec.fim_middle < 0) {
    return absl::FailedPreconditionError(
        "this model's vocabulary has no tokens for filling in the middle");
  }
  std::vector<TokenId> prompt;
  if (spec.add_bos && spec.bos >= 0) prompt.push_back(spec.bos);
  prompt.push_back(spec.fim_prefix);
  prompt.insert(prompt.end(), prefix.begin(), prefix.end());
  prompt.push_back(spec.fim_suffix);
  const std::vector<TokenId> behind =
      tokenizer.Encode(suffix, /*parse_special=*/false, /*add_bos=*/false);
  prompt.insert(prompt.end(), behind.begin(), behind.end());
  prompt.push_back(spec.fim_middle);
  return prompt;
}

std::vector<TokenId> FimContext(const Tokenizer& tokenizer, absl::Span<const FimFile> files) {
  std::vector<TokenId> context;
  if (files.empty()) return context;
  const auto add = [&](std::string_view text) {
    const std::vector<TokenId> tokens =
        tokenizer.Encode(text, /*parse_special=*/false, /*add_bos=*/false);
    context.insert(context.end(), tokens.begin(), tokens.end());
  };
  const TokenizerSpec& spec = tokenizer.spec();
  if (spec.fim_separator < 0) {
    for (const FimFile& file : files) add(file.text);
    return context;
  }
  // Neither the project nor the file with the gap has a name here.
  if (spec.fim_repository >= 0) {
    context.push_back(spec.fim_repository);
    add("project\n");
  }
  for (const FimFile& file : files) {
    context.push_back(spec.fim_separator);
    add(StrCat(file.name.empty() ? "file" : file.name, "\n", file.text,
               file.text.ends_with('\n') ? "" : "\n"));
  }
  context.push_back(spec.fim_separator);
  add("file\n");
  return context;
}

std::vector<TokenId> FimEndTokens(const TokenizerSpec& spec) {
  std::vector<TokenId> ends;
  for (TokenId token : {spec.fim_padding, spec.fim_repository, spec.fim_separator}) {
    if (token >= 0) ends.push_back(token);
  }
  return ends;
}

}  // namespace staffel
