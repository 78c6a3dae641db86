// Writing JSON by hand for the answers that are made once a token; parsing goes through
// json_parse.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "staffel/ids.h"

namespace staffel::api {

// Appends text as a JSON string (RFC 8259 section 7). Invalid UTF-8 becomes U+FFFD, one for each
// maximal subpart (Unicode 15, section 3.9), so that the output is always valid.
void AppendJsonString(std::string& out, std::string_view text);

// Appends a finite float in the shortest form that reads back the same; -inf and NaN, which JSON
// lacks, become -9999 (the value that OpenAI uses for "impossible").
void AppendJsonNumber(std::string& out, float value);

// The double that AppendJsonNumber's text of `value` means: for JSON that is made of doubles, where
// a float would show digits that it does not have.
double JsonNumber(float value);

// Appends the bytes as a JSON array of integers.
void AppendJsonBytes(std::string& out, std::string_view bytes);

// Token ids as a JSON array.
std::string IdsJson(absl::Span<const TokenId> tokens);

}  // namespace staffel::api
