// What an answer took: tokens and time.
#pragma once

#include <cstdint>
#include <string>

#include "staffel/clock.h"

namespace staffel::api {

// Of one choice so far, or over all prompts and choices of a request.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // every drawn token, stop tokens included
  int64_t reasoning_tokens = 0;   // of these
  int64_t cached_tokens = 0;      // of the prompts: found in the prefix cache
  Duration prompt_time{};  // until the first token of any choice, waiting in the queue included
  Duration answer_time{};  // from there to the end
};

// llama-server's `timings` as JSON text. Pure.
std::string TimingsJson(const Usage& usage);

}  // namespace staffel::api
