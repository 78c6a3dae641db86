// What must hold between a backend's run of a real model and the recorded outputs. Each check
// prints the worst difference it saw.
#pragma once

#include <memory>
#include <string>

#include "staffel/backend.h"
#include "tests/support/golden.h"
#include "tests/support/model_runner.h"

namespace staffel {

struct GoldenModel {
  Golden golden;
  std::unique_ptr<ModelRunner> runner;
};

// Fails the test, with how to fetch the model, if it is absent. Room for sequences of 1024 tokens.
std::unique_ptr<GoldenModel> LoadGolden(const std::string& name, Backend& backend, bool exact);

// The mean loss of the first `tokens` tokens of the passage (0: all) is within `bound`.
void CheckPassage(GoldenModel& model, int tokens, double bound);

// The first `count` generations (0: all), along the recorded tokens:
// - log-probabilities of the recorded best 20 of the first 8 steps are within `logprob_bound`;
// - at each of the 32 steps the best token is the recorded one, or a near tie: no further than 0.1
//   below in the recording (where it tells) and here.
void CheckGenerations(GoldenModel& model, int count, double logprob_bound);

// The greedy continuation of the first `count` prompts does not depend on how the prompt is cut
// into chunks, one token at a time included; near ties excepted, and the logits behind the prompt
// differ by no more than `logit_bound`.
void CheckChunking(GoldenModel& model, int count, int continuation, double logit_bound);

}  // namespace staffel
