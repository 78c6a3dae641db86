// Draws tokens from rows of logits as SamplingParams says. Owned by a worker; one thread. Keeps
// scratch memory, nothing about sequences.
#pragma once

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "staffel/ids.h"
#include "staffel/request.h"
#include "staffel/status.h"
#include "worker/row_math.h"
#include "worker/token_counts.h"

namespace staffel {

// What a draw depends on, besides the row.
struct DrawContext {
  const SamplingParams* params = nullptr;
  int sequence_index = 0;
  int position = 0;                             // of the token that is drawn, in its sequence
  const TokenCounts* counts = nullptr;          // needed if UsesPenalties(*params)
  absl::Span<const TokenId> generated;          // so far; needed with banned_sequences
  absl::Span<const TokenId> banned;             // never drawn
  const grammar::TokenMask* allowed = nullptr;  // no other token is drawn; null: any
};

bool UsesPenalties(const SamplingParams& params);

class Sampler {
 public:
  // row: [vocab], changed in place. Tokens in the context are below vocab.
  // Internal: nothing can be drawn, since the row has a NaN, or no element that is finite.
  // InvalidArgument: what the request allows and bans leaves no token.
  Result<GeneratedToken> Draw(absl::Span<float> row, const DrawContext& context);

  // Log-probabilities of the row for a token that is known already; `top` >= 0 best ones.
  // Internal: as above.
  Result<PromptLogprob> Logprob(absl::Span<const float> row, TokenId token, int top);

 private:
  void ChangeLogits(absl::Span<float> row, const DrawContext& context);
  void Change(absl::Span<float> row, TokenId token, float value);
  void BanOthers(absl::Span<float> row, absl::Span<const grammar::MaskWord> allowed);
  void BanSequences(absl::Span<float> row, const DrawContext& context);
  float RawLogit(absl::Span<const float> row, TokenId token) const;
  Result<TokenId> Choose(absl::Span<const float> row, const DrawContext& context);
  TokenId DrawFromTopK(absl::Span<const float> row, float max, const SamplingParams& params,
                       double uniform);
  TokenId DrawFromNucleus(absl::Span<const float> row, float max, const DrawContext& context);
  double WeighCandidates(float max, float scale);
  TokenId DrawFromCandidates(double nucleus, float min_p, double uniform) const;
  void FillTop(absl::Span<const float> row, int top, double log_sum,
               std::vector<TokenLogprob>& out);

  std::vector<std::pair<TokenId, float>> changed_;  // with the value before
  std::vector<double> block_sums_;
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;  // of the candidates
};

}  // namespace staffel
