// Prompts for models that fill in the middle: what stands before a gap and behind it, each
// announced by a control token. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "staffel/status.h"
#include "staffel/tokenizer.h"

namespace staffel {

// Sets the fim_ tokens that the model file does not name, where control or user-defined tokens have
// names that are known for it.
void FindFimTokens(TokenizerSpec& spec);

// The prompt after which the model writes what belongs between the two texts; both are plain text.
// FailedPrecondition: the vocabulary has no tokens for it.
Result<std::vector<TokenId>> FimPrompt(const Tokenizer& tokenizer, std::string_view prefix,
                                       std::string_view suffix);
// The same for a prefix that is tokens already.
Result<std::vector<TokenId>> FimPrompt(const Tokenizer& tokenizer, absl::Span<const TokenId> prefix,
                                       std::string_view suffix);

// Another file of the project that the gap is in.
struct FimFile {
  std::string name, text;
};

// What stands in front of such a prompt (behind bos) to show the model other files: each under its
// name, behind the token that sets files apart, or just the texts where the vocabulary has none.
std::vector<TokenId> FimContext(const Tokenizer& tokenizer, absl::Span<const FimFile> files);

// Tokens that end the middle besides the end tokens: the model goes on to another file.
std::vector<TokenId> FimEndTokens(const TokenizerSpec& spec);

}  // namespace staffel
