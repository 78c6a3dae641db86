// The request fields that chat and text completions share: how many tokens, how they are drawn,
// where they stop, what is reported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/json_parse.h"
#include "staffel/request.h"
#include "staffel/tokenizer.h"

namespace staffel::api {

inline constexpr int kChoicesMax = 128;     // n
inline constexpr int kStopsMax = 16;        // stop strings (OpenAI's own limit is 4)
inline constexpr int kStopBytesMax = 4096;  // of one stop string
inline constexpr int kTopLogprobsMax = 20;
inline constexpr int kBadWordsMax = 1024;

struct GenerationOptions {
  SamplingParams sampling;  // seed is set
  int n = 1;
  std::optional<int64_t> max_tokens;  // absent: the rest of the context (chat), 16 (completions)
  int min_tokens = 0;
  std::vector<std::string> stop;  // none empty
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_text = false;  // include_stop_str_in_output
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  bool timings_per_token = false;        // llama-server's timings in each piece and at the end
  bool logprobs = false;                 // of the answer's tokens, for the client
  std::optional<int> prompt_logprobs;    // vLLM's: so many of the likeliest tokens
  std::optional<int> prompt_tokens_max;  // truncate_prompt_tokens: the last so many; -1: that fit
  bool add_special_tokens = true;
  bool stream = false;
  bool include_usage = false;
  int priority = 0;
  std::string cache_salt;
};

// `cache_salt`, "" by default; an error is left in `reader`.
std::string ReadCacheSalt(FieldReader& reader);

// `truncate_prompt_tokens`: the last so many tokens of a longer prompt; -1: as many as fit. An
// error is left in `reader`.
std::optional<int> ReadPromptTokensMax(FieldReader& reader);

// Reads the shared fields; an error is left in `reader`. Fields of other servers that we do not
// have but that would change the answer are refused by name; unknown fields are ignored
// (docs/api.md lists all of them).
GenerationOptions ReadGenerationOptions(FieldReader& reader, const Tokenizer& tokenizer);

}  // namespace staffel::api
