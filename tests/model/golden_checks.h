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
std::unique_ptr<GoldenModel> LoadGolden(const std::string& name, Backend& backend,
                                        ActivationType activations);

// The mean loss of the first `tokens` tokens of the passage (0: all) is within `bound`.
void CheckPassage(GoldenModel& model, int tokens, double bound);

// near_tie: how far two tokens may lie apart and still change places. The best token of a step is
// the recorded one, or no further above it, and the recording has them no further apart.
struct GenerationBounds {
  double logprob = 0;       // of the recorded best 20 of the first 8 steps
  double logprob_mean = 0;  // mean difference of those
  double near_tie = 0.1;
};

// The first `count` generations (0: all), along the recorded tokens, 32 steps each.
void CheckGenerations(GoldenModel& model, int count, const GenerationBounds& bounds);

// The same along the model's own greedy tokens, one at a time, up to the first that is not the
// recorded one: a near tie.
void CheckOwnTokens(GoldenModel& model, int count, double near_tie);

// The greedy continuation of the first `count` prompts does not depend on how the prompt is cut
// into chunks, one token at a time included: the logits behind the prompt are the same to
// `logit_bound`, and so are the tokens, near ties excepted.
void CheckChunking(GoldenModel& model, int count, int continuation, double logit_bound);

}  // namespace staffel
