// What a response tells of one choice, or of a piece of it, in whichever form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/api/answer_sink.h"

namespace staffel::api::kserve {

struct Part {
  std::string text;
  std::string finish;  // "": it goes on
  float logprob = 0;   // of the choice so far
  uint32_t tokens = 0;
};

// Of whole answers.
std::vector<Part> PartsOf(const std::vector<ChoiceResult>& choices);

// Of a piece; `logprob` is that of the pieces before it, and grows.
Part PartOf(const Piece& piece, float& logprob);

}  // namespace staffel::api::kserve
