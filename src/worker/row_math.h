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

// Draws from the distribution with weights exp((row[i] - max) * scale), those below `min` left out:
// the token at which their running sum first exceeds `uniform` (in [0, 1)) of the whole. `scratch`
// is any vector.
TokenId DrawByWeight(absl::Span<const float> row, float max, float scale, float min, double uniform,
                     std::vector<double>& scratch);

// The sum of exp((row[i] - max) * scale) over the elements that come before `token` when the row is
// sorted, best first, ties by lowest token.
double SumExpBefore(absl::Span<const float> row, float max, float scale, TokenId token);

struct Candidate {
  float logit;
  TokenId token;
};
// The k greatest, best first, ties by lowest token; fewer if the row is shorter. Elements of
// -infinity count, NaN must not occur.
void TopK(absl::Span<const float> row, int k, std::vector<Candidate>& out);

}  // namespace staffel
