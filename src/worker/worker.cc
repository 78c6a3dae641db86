#include "worker/worker.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/strings.h"

namespace staffel {
namespace {

// Whether each token that the mask has is one of `tokens`, which differ.
bool AllowsOnly(const grammar::TokenMask& mask, absl::Span<const TokenId> tokens) {
  int allowed = 0;
  for (TokenId token : tokens) {
    const size_t word = static_cast<size_t>(token) / 32;
    allowed += word < mask.words.size() && (mask.words[word] >> (token % 32) & 1);
  }
  return allowed >= mask.count;
}

// Whether what a grammar forces can stand without a draw: nobody asks for its probability, and no
// other wish forbids it.
bool MayForce(const SamplingParams& params) {
  return params.top_logprobs < 0 && params.logit_bias.empty() && params.allowed_tokens.empty() &&
         params.banned_sequences.empty();
}

}  // namespace

Status Worker::Configure(WorkerSetup setup) {
  const BackendOptions& options = setup.options;
  if (setup.executable == nullptr || setup.vocab <= 0 || options.block_count <= 0 ||
      options.block_size <= 0 || options.max_rows <= 0 || options.max_sampled_rows <= 0 ||
      options.max_positions <= 0) {
    return absl::InvalidArgumentError(
        StrCat("a worker needs an executable, a vocabulary (", setup.vocab, "), KV blocks (",
               options.block_count, " of ", options.block_size, ") and room for rows (",
               options.max_rows, ", ", options.max_sampled_rows, ", ", options.max_positions, ")"));
  }
  setup_ = std::move(setup);
  ResetMirror();
  return absl::OkStatus();
}

Status Worker::BeginEpoch(int epoch) {
  if (setup_.executable == nullptr) {
    return absl::FailedPreconditionError("the worker has not been configured");
  }
  setup_.epoch = epoch;
  ResetMirror();
  return absl::OkStatus();
}

void Worker::ResetMirror() {
  mirror_.Reset({.vocab = setup_.vocab,
                 .block_size = setup_.options.block_size,
                 .block_count = setup_.options.block_count,
                 .max_rows = setup_.options.max_rows,
                 .max_sampled_rows = setup_.options.max_sampled_rows,
                 .max_positions = setup_.options.max_positions,
                 .draws_known = setup_.samples || setup_.draws_from >= 0});
  masks_.Reset(setup_.grammars);
  failed_ = absl::OkStatus();
}

StepOutcome Worker::Run(const StepPlan& plan) {
  const Time begin = clock_.Now();
  const double waited_before_s = WaitSeconds();
  StepOutcome outcome;
  outcome.epoch = plan.epoch;
  outcome.step = plan.step;
  if (setup_.executable != nullptr && plan.epoch != setup_.epoch) {
    outcome.status = absl::AbortedError(StrCat("step ", plan.step, " is of epoch ", plan.epoch,
                                               "; the worker is in epoch ", setup_.epoch));
    return outcome;
  }
  if (failed_.ok()) failed_ = Compute(plan, outcome);
  outcome.status = failed_;
  if (!failed_.ok()) {
    outcome.sampled.clear();
    outcome.prompt_logprobs.clear();
    outcome.embeddings.clear();
  }
  const double elapsed_s = std::chrono::duration<double>(clock_.Now() - begin).count();
  outcome.compute_s = std::max(0.0, elapsed_s - (WaitSeconds() - waited_before_s));
  return outcome;
}

double Worker::WaitSeconds() const {
  return setup_.group == nullptr ? 0 : setup_.group->stats().wait_s;
}

Status Worker::Compute(const StepPlan& plan, StepOutcome& outcome) {
  STAFFEL_RETURN_IF_ERROR(mirror_.Apply(plan));
  STAFFEL_RETURN_IF_ERROR(LayOutRows(plan));
  BatchTensors batch;
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.sequences = sequences_;
  batch.sampled_rows = sampled_rows_;
  batch.block_copies = plan.block_copies;
  if (setup_.samples) FollowGrammars(plan);
  Status ran;
  if (!tokens_.empty() || !plan.block_copies.empty()) ran = setup_.executable->Run(batch);
  masks_.Wait();
  STAFFEL_RETURN_IF_ERROR(ran);
  if (setup_.samples) {
    ReadLogits(plan, outcome);
    ReadHidden(plan, outcome);
    return SendDraws(outcome);
  }
  return setup_.draws_from >= 0 ? TakeDraws(plan) : absl::OkStatus();
}

// Takes over what the plan says of sequences with a grammar, and has their masks worked out while
// the step computes.
void Worker::FollowGrammars(const StepPlan& plan) {
  for (const ForcedToken& forced : plan.forced_tokens) masks_.Append(forced.slot, forced.token);
  for (Slot slot : plan.released) masks_.Leave(slot);
  for (const NewSequence& added : plan.new_sequences) {
    if (added.sampling.grammar == nullptr) continue;
    masks_.Enter(added.slot, added.sampling.grammar,
                 {added.tokens.begin() + added.prompt_count, added.tokens.end()},
                 MayForce(added.sampling));
  }
  if (masks_.empty()) return;
  draw_slots_.clear();
  for (const LogitsRead& read : reads_) {
    if (read.draws) draw_slots_.push_back(read.slot);
  }
  masks_.Prepare(draw_slots_);
}

Status Worker::SendDraws(const StepOutcome& outcome) {
  if (outcome.sampled.empty()) return absl::OkStatus();
  draws_.clear();
  for (const SampledToken& sampled : outcome.sampled) {
    draws_.push_back(std::bit_cast<float>(sampled.token.token));
  }
  for (int rank : setup_.draws_to) STAFFEL_RETURN_IF_ERROR(setup_.group->Send(rank, draws_));
  return absl::OkStatus();
}

Status Worker::TakeDraws(const StepPlan& plan) {
  const auto draws = [](const Chunk& chunk) { return chunk.samples; };
  draws_.resize(std::count_if(plan.chunks.begin(), plan.chunks.end(), draws));
  if (draws_.empty()) return absl::OkStatus();
  STAFFEL_RETURN_IF_ERROR(setup_.group->Recv(setup_.draws_from, absl::MakeSpan(draws_)));
  auto draw = draws_.begin();
  for (const Chunk& chunk : plan.chunks) {
    if (!chunk.samples) continue;
    const TokenId token = std::bit_cast<TokenId>(*draw++);
    if (token < 0 || token >= setup_.vocab) {
      return absl::DataLossError(StrCat("rank ", setup_.draws_from, " has drawn the token ", token,
                                        "; the vocabulary has ", setup_.vocab));
    }
    mirror_.Append(chunk.slot, token);
  }
  return absl::OkStatus();
}

Status Worker::LayOutRows(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  sampled_rows_.clear();
  reads_.clear();
  for (const Chunk& chunk : plan.chunks) {
    const MirroredSequence& sequence = mirror_.sequence(chunk.slot);
    const int row_begin = static_cast<int>(tokens_.size());
    sequences_.push_back({row_begin, chunk.count, chunk.start, sequence.blocks});
    for (int i = 0; i < chunk.count; ++i) {
      const int position = chunk.start + i;
      const bool draws = chunk.samples && i == chunk.count - 1;
      const bool reports = chunk.prompt_logprobs && position + 1 < sequence.prompt_count;
      tokens_.push_back(sequence.tokens[position]);
      positions_.push_back(position);
      if (!draws && !reports) continue;
      sampled_rows_.push_back(row_begin + i);
      reads_.push_back({chunk.slot, position, draws});
    }
  }
  if (static_cast<int>(sampled_rows_.size()) > setup_.options.max_sampled_rows) {
    return absl::InvalidArgumentError(
        StrCat("the plan asks for the logits of ", sampled_rows_.size(),
               " rows; this worker has room for ", setup_.options.max_sampled_rows));
  }
  return absl::OkStatus();
}

void Worker::ReadLogits(const StepPlan& plan, StepOutcome& outcome) {
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.prompt_logprobs) outcome.prompt_logprobs.push_back({chunk.slot, chunk.start, {}});
  }
  auto report = outcome.prompt_logprobs.begin();
  for (size_t row = 0; row < reads_.size(); ++row) {
    const LogitsRead& read = reads_[row];
    absl::Span<float> logits = setup_.executable->logits(static_cast<int>(row));
    if (read.draws) {
      outcome.sampled.push_back(DrawToken(read.slot, logits));
      mirror_.Append(read.slot, outcome.sampled.back().token.token);
      masks_.Append(read.slot, outcome.sampled.back().token.token);
      continue;
    }
    while (report->slot != read.slot) ++report;
    const MirroredSequence& sequence = mirror_.sequence(read.slot);
    Result<PromptLogprob> logprob = sampler_.Logprob(
        logits, sequence.tokens[read.position + 1], std::max(0, sequence.sampling.prompt_logprobs));
    // A row that cannot be normalised reports NaN: the prompt is as the client gave it, so this is
    // an answer, and the draw that follows tells the error.
    report->entries.push_back(logprob.ok() ? *std::move(logprob)
                                           : PromptLogprob{std::nanf(""), 0, {}});
  }
}

// Sums go on from chunk to chunk row by row, so that an embedding does not depend on how the prompt
// was cut.
void Worker::ReadHidden(const StepPlan& plan, StepOutcome& outcome) {
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const Chunk& chunk = plan.chunks[i];
    const MirroredSequence& sequence = mirror_.sequence(chunk.slot);
    const int end = chunk.start + chunk.count;
    if (sequence.pooling == Pooling::kNone || chunk.start >= sequence.prompt_count) continue;
    const bool complete = end >= sequence.prompt_count;
    const int row_end = sequences_[i].row_begin + std::min(end, sequence.prompt_count) - chunk.start;
    if (sequence.pooling == Pooling::kLast) {
      if (!complete) continue;
      const absl::Span<const float> last = setup_.executable->hidden(row_end - 1);
      outcome.embeddings.push_back({chunk.slot, {last.begin(), last.end()}});
      continue;
    }
    std::vector<float>& sum = mirror_.PoolOf(chunk.slot);
    for (int row = sequences_[i].row_begin; row < row_end; ++row) {
      const absl::Span<const float> hidden = setup_.executable->hidden(row);
      sum.resize(hidden.size());
      for (size_t j = 0; j < hidden.size(); ++j) sum[j] += hidden[j];
    }
    if (!complete) continue;
    for (float& value : sum) value /= static_cast<float>(sequence.prompt_count);
    outcome.embeddings.push_back({chunk.slot, std::move(sum)});
  }
}

SampledToken Worker::DrawToken(Slot slot, absl::Span<float> logits) {
  if (const absl::Span<const TokenId> forced = masks_.Forced(slot); !forced.empty()) {
    return {slot, GeneratedToken{forced[0]}, absl::OkStatus(), {forced.begin() + 1, forced.end()}};
  }
  const MirroredSequence& sequence = mirror_.sequence(slot);
  DrawContext context;
  context.params = &sequence.sampling;
  context.sequence_index = sequence.sequence_index;
  context.position = static_cast<int>(sequence.tokens.size());
  context.counts = &sequence.counts;
  context.generated = absl::MakeConstSpan(sequence.tokens).subspan(sequence.prompt_count);
  if (sequence.generated_count() < sequence.min_tokens) context.banned = sequence.stop_tokens;
  const Result<std::shared_ptr<const grammar::TokenMask>> mask = masks_.Mask(slot);
  if (!mask.ok()) return {slot, GeneratedToken{0}, mask.status(), {}};
  context.allowed = mask->get();
  // Where a grammar allows nothing but the end, it goes before min_tokens.
  const bool complete = !context.banned.empty() && context.allowed != nullptr &&
                        AllowsOnly(*context.allowed, context.banned);
  if (complete) context.banned = {};
  Result<GeneratedToken> drawn = sampler_.Draw(logits, context);
  if (!drawn.ok()) return {slot, GeneratedToken{0}, drawn.status(), {}};
  return {slot, *std::move(drawn), absl::OkStatus(), {}, complete};
}

}  // namespace staffel
