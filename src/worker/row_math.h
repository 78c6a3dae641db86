// Passes over one row of logits (49k to 262k floats). Bits depend on the row alone: lanes and the
// order of sums are fixed, whatever the instruction set. Pure.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "staffel/ids.h"
#include "staffel/request.h"

namespace staffel {

struct RowMax {
  TokenId token = 0;  // the lowest that has the value
  float value = 0;    // NaN if any element is NaN
};
// row is not empty.
RowMax FindMax(absl::Span<const float> row);

// sum of exp((x - max) * scale), with max the row's greatest element, scale > 0.
double SumExp(absl::Span<const float> row, float max, float scale);

// weights[i] = exp((row[i] - max) * scale), or 0 where that is below `min`; returns their sum.
double ExpWeights(absl::Span<const float> row, float max, float scale, float min,
                  absl::Span<float> weights);

// The index i at which the running sum of weights first exceeds `target`; the last with a weight if
// rounding lets none do so. `weights` as left by ExpWeights.
TokenId FindInCumulative(absl::Span<const float> weights, double target);

struct Candidate {
  float logit;
  TokenId token;
};
// The k greatest, best first, ties by lowest token; fewer if the row is shorter. Elements of
// -infinity count, NaN must not occur.
void TopK(absl::Span<const float> row, int k, std::vector<Candidate>& out);

}  // namespace staffel
