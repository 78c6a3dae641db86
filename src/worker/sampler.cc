#include "worker/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/counter_rng.h"

namespace staffel {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
// Below this a division by the temperature leaves floats; no second token has a chance by then.
constexpr float kGreedyBelow = 1e-5f;
// Candidates among which a nucleus is looked for first: a usual one is smaller.
constexpr int kNucleusCandidates = 64;
// Draws from the whole row until the nucleus is sorted instead, which costs as much as 50 of them.
constexpr uint32_t kNucleusTrials = 16;

bool IsGreedy(const SamplingParams& params) {
  return !(params.temperature >= kGreedyBelow) || params.top_k == 1;
}

double Uniform(const DrawContext& context, uint32_t trial = 0) {
  return UniformAt(context.params->seed, static_cast<uint32_t>(context.sequence_index),
                   static_cast<uint32_t>(context.position), trial);
}

bool Bans(const DrawContext& context) {
  return !context.params->allowed_tokens.empty() || !context.params->banned_sequences.empty() ||
         !context.banned.empty() || context.allowed != nullptr;
}

// Of a row in which tokens were banned.
Status CheckAllowed(float max) {
  if (max != kBanned) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "allowed tokens, banned words, the minimum of tokens and the format of the answer together "
      "leave no token to go on with; relax one of them");
}

void BanAllBut(absl::Span<float> row, absl::Span<const TokenId> allowed) {
  size_t begin = 0;
  for (TokenId token : allowed) {
    const auto end = static_cast<size_t>(token);
    if (end > begin) std::fill_n(row.begin() + begin, end - begin, kBanned);
    begin = end + 1;
  }
  std::fill(row.begin() + begin, row.end(), kBanned);
}

Status CheckMax(float max) {
  if (std::isfinite(max)) return absl::OkStatus();
  return absl::InternalError(
      max == kBanned ? "every token has a logit of -infinity; no token can be drawn"
                     : "the model computed NaN or infinite logits; no token can be drawn");
}

}  // namespace

bool UsesPenalties(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 ||
         params.repetition_penalty != 1;
}

Result<GeneratedToken> Sampler::Draw(absl::Span<float> row, const DrawContext& context) {
  const SamplingParams& params = *context.params;
  GeneratedToken drawn;
  double log_sum = 0;
  if (params.top_logprobs >= 0) {
    const float max = FindMax(row).value;
    STAFFEL_RETURN_IF_ERROR(CheckMax(max));
    log_sum = max + std::log(SumExp(row, max, 1.0f));
    FillTop(row, params.top_logprobs, log_sum, drawn.top);
  }
  ChangeLogits(row, context);
  STAFFEL_ASSIGN_OR_RETURN(drawn.token, Choose(row, context));
  if (params.top_logprobs >= 0) {
    drawn.logprob = static_cast<float>(std::min(0.0, RawLogit(row, drawn.token) - log_sum));
  }
  return drawn;
}

Result<PromptLogprob> Sampler::Logprob(absl::Span<const float> row, TokenId token, int top) {
  const float max = FindMax(row).value;
  STAFFEL_RETURN_IF_ERROR(CheckMax(max));
  const double log_sum = max + std::log(SumExp(row, max, 1.0f));
  PromptLogprob result;
  const float logit = row[token];
  result.logprob = static_cast<float>(std::min(0.0, logit - log_sum));
  result.rank = 1 + static_cast<int>(std::count_if(row.begin(), row.end(),
                                                   [&](float other) { return other > logit; }));
  FillTop(row, top, log_sum, result.top);
  return result;
}

void Sampler::FillTop(absl::Span<const float> row, int top, double log_sum,
                      std::vector<TokenLogprob>& out) {
  TopK(row, top, candidates_);
  out.reserve(candidates_.size());
  for (const Candidate& c : candidates_) {
    out.push_back({c.token, static_cast<float>(std::min(0.0, c.logit - log_sum))});
  }
}

// All changes but masks touch few tokens; the rest of the row is not read here.
void Sampler::ChangeLogits(absl::Span<float> row, const DrawContext& context) {
  const SamplingParams& params = *context.params;
  changed_.clear();
  for (const LogitBias& bias : params.logit_bias) {
    Change(row, bias.token, row[bias.token] + bias.bias);
  }
  if (UsesPenalties(params)) {
    for (const TokenCounts::Entry& entry : context.counts->entries()) {
      float logit = row[entry.token];
      if (params.repetition_penalty != 1) {
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      }
      if (entry.generated > 0) {
        logit -= params.presence_penalty +
                 params.frequency_penalty * static_cast<float>(entry.generated);
      }
      Change(row, entry.token, logit);
    }
  }
  if (!params.allowed_tokens.empty()) BanAllBut(row, params.allowed_tokens);
  BanSequences(row, context);
  for (TokenId token : context.banned) Change(row, token, kBanned);
  if (context.allowed != nullptr) BanOthers(row, context.allowed->words);
}

void Sampler::BanSequences(absl::Span<float> row, const DrawContext& context) {
  for (const std::vector<TokenId>& sequence : context.params->banned_sequences) {
    const size_t before = sequence.size() - 1;
    if (before > context.generated.size()) continue;
    if (std::equal(sequence.begin(), sequence.end() - 1, context.generated.end() - before)) {
      Change(row, sequence.back(), kBanned);
    }
  }
}

// The token that is drawn keeps its logit, so that RawLogit need not know of this change.
void Sampler::BanOthers(absl::Span<float> row, absl::Span<const grammar::MaskWord> allowed) {
  constexpr size_t kBits = 32;
  for (size_t begin = 0, w = 0; begin < row.size(); begin += kBits, ++w) {
    const grammar::MaskWord word = w < allowed.size() ? allowed[w] : 0;
    const size_t count = std::min(kBits, row.size() - begin);
    if (word == 0) {
      std::fill_n(row.begin() + begin, count, kBanned);
    } else if (word != ~grammar::MaskWord{0}) {
      for (size_t i = 0; i < count; ++i) {
        if ((word >> i & 1) == 0) row[begin + i] = kBanned;
      }
    }
  }
}

void Sampler::Change(absl::Span<float> row, TokenId token, float value) {
  changed_.emplace_back(token, row[token]);
  row[token] = value;
}

float Sampler::RawLogit(absl::Span<const float> row, TokenId token) const {
  for (const auto& [changed, before] : changed_) {
    if (changed == token) return before;
  }
  return row[token];
}

Result<TokenId> Sampler::Choose(absl::Span<const float> row, const DrawContext& context) {
  const SamplingParams& params = *context.params;
  const RowMax best = FindMax(row);
  if (Bans(context)) STAFFEL_RETURN_IF_ERROR(CheckAllowed(best.value));
  STAFFEL_RETURN_IF_ERROR(CheckMax(best.value));
  if (IsGreedy(params)) return best.token;
  const double uniform = Uniform(context);
  if (params.top_k > 0 && params.top_k < static_cast<int>(row.size())) {
    return DrawFromTopK(row, best.value, params, uniform);
  }
  if (params.top_p < 1) return DrawFromNucleus(row, best.value, context);
  return DrawByWeight(row, best.value, 1.0f / params.temperature, params.min_p, uniform,
                      block_sums_);
}

TokenId Sampler::DrawFromTopK(absl::Span<const float> row, float max, const SamplingParams& params,
                              double uniform) {
  TopK(row, params.top_k, candidates_);
  const double sum = WeighCandidates(max, 1.0f / params.temperature);
  return DrawFromCandidates(params.top_p * sum, params.min_p, uniform);
}

// Mostly the nucleus is small: a few candidates hold top_p of the mass. Else tokens are drawn from
// the whole row until one lies in the nucleus, which needs no sorted row; in the end, with a
// nucleus that is both flat and of small mass, it is sorted.
TokenId Sampler::DrawFromNucleus(absl::Span<const float> row, float max,
                                 const DrawContext& context) {
  const SamplingParams& params = *context.params;
  const float scale = 1.0f / params.temperature;
  const int vocab = static_cast<int>(row.size());
  const double nucleus = params.top_p * SumExp(row, max, scale);
  TopK(row, kNucleusCandidates, candidates_);
  if (WeighCandidates(max, scale) >= nucleus || vocab <= kNucleusCandidates) {
    return DrawFromCandidates(nucleus, params.min_p, Uniform(context));
  }
  for (uint32_t trial = 1; trial <= kNucleusTrials; ++trial) {
    const TokenId token =
        DrawByWeight(row, max, scale, params.min_p, Uniform(context, trial), block_sums_);
    if (SumExpBefore(row, max, scale, token) < nucleus) return token;
  }
  TopK(row, vocab, candidates_);
  WeighCandidates(max, scale);
  return DrawFromCandidates(nucleus, params.min_p, Uniform(context));
}

// Fills weights_, of which the best is 1; returns their sum.
double Sampler::WeighCandidates(float max, float scale) {
  weights_.resize(candidates_.size());
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = std::exp((candidates_[i].logit - max) * scale);
    sum += weights_[i];
  }
  return sum;
}

// One of the first candidates whose weights reach `nucleus`, less those below min_p of the best.
TokenId Sampler::DrawFromCandidates(double nucleus, float min_p, double uniform) const {
  size_t kept = 0;
  double mass = 0;
  while (kept < candidates_.size() && (kept == 0 || mass < nucleus)) mass += weights_[kept++];
  while (kept > 1 && weights_[kept - 1] < min_p) mass -= weights_[--kept];
  double target = uniform * mass;
  size_t chosen = 0;
  while (chosen + 1 < kept && target >= weights_[chosen]) target -= weights_[chosen++];
  return candidates_[chosen].token;
}

}  // namespace staffel
