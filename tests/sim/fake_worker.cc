#include "tests/sim/fake_worker.h"

#include <algorithm>

#include "base/strings.h"
#include "tests/sim/fake_model.h"

namespace staffel::sim {

FakeWorker::FakeWorker(const FakeShape& shape, bool samples)
    : epoch_(shape.epoch),
      block_count_(shape.block_count),
      block_size_(shape.block_size),
      samples_(samples),
      cells_(static_cast<size_t>(shape.block_count) * shape.block_size),
      mirrors_(shape.slot_count),
      tables_with_(shape.block_count) {}

bool FakeWorker::Check(bool condition, const std::string& what) {
  if (!condition && violation_.empty()) violation_ = what;
  return condition;
}

FakeWorker::Mirror* FakeWorker::Find(Slot slot) {
  if (slot.value < 0 || slot.value >= static_cast<int>(mirrors_.size())) return nullptr;
  return mirrors_[slot.value].has_value() ? &*mirrors_[slot.value] : nullptr;
}

bool FakeWorker::ValidBlock(BlockId block) const {
  return block.value >= 0 && block.value < block_count_;
}

FakeWorker::Cell& FakeWorker::CellAt(const Mirror& mirror, int position) {
  const int block = mirror.blocks[position / block_size_].value;
  return cells_[static_cast<size_t>(block) * block_size_ + position % block_size_];
}

StepOutcome FakeWorker::Execute(const StepPlan& plan, const Activations* in, Activations& out) {
  StepOutcome outcome{.epoch = plan.epoch, .step = plan.step};
  Check(plan.epoch == epoch_, "plan of another epoch");
  Check(plan.step > last_step_, "steps out of order");
  last_step_ = plan.step;
  TakeKnown(plan);
  TakeForced(plan);
  Release(plan);
  Enter(plan);
  Append(plan);
  Copy(plan);
  for (const Chunk& chunk : plan.chunks) Run(chunk, in, out, outcome);
  Check(digest_.Apply(plan) == plan.digest, "digest of the mirror differs");
  Check(!plan.chunks.empty(), "a plan without chunks");
  if (!violation_.empty()) outcome.status = absl::InternalError(violation_);
  return outcome;
}

void FakeWorker::TakeKnown(const StepPlan& plan) {
  for (const KnownToken& known : plan.known_tokens) {
    Mirror* mirror = Find(known.slot);
    if (!Check(mirror != nullptr, "a token for an unknown slot")) return;
    std::vector<TokenId>& tokens = mirror->sequence.tokens;
    const int count = static_cast<int>(tokens.size());
    Check(known.position >= mirror->sequence.prompt_count, "a token of the prompt is told");
    if (samples_) {
      if (!Check(known.position < count, "a token is told that was not drawn")) return;
      Check(tokens[known.position] == known.token, "the rank has diverged");
      continue;
    }
    if (!Check(known.position == count && mirror->awaits_token,
               StrCat("token ", known.position, " is told to a rank that knows ", count))) {
      return;
    }
    mirror->awaits_token = false;
    tokens.push_back(known.token);
  }
}

void FakeWorker::TakeForced(const StepPlan& plan) {
  for (const ForcedToken& forced : plan.forced_tokens) {
    Mirror* mirror = Find(forced.slot);
    if (!Check(mirror != nullptr, "a forced token for an unknown slot")) return;
    std::vector<TokenId>& tokens = mirror->sequence.tokens;
    const int count = static_cast<int>(tokens.size());
    Check(mirror->sequence.sampling.grammar != nullptr, "a token is forced without a grammar");
    if (!Check(forced.position == count && !mirror->awaits_token,
               StrCat("token ", forced.position, " is forced on a rank that knows ", count))) {
      return;
    }
    tokens.push_back(forced.token);
  }
}

void FakeWorker::Release(const StepPlan& plan) {
  for (Slot slot : plan.released) {
    Mirror* mirror = Find(slot);
    if (!Check(mirror != nullptr, StrCat("release of unknown slot ", slot.value))) return;
    for (BlockId block : mirror->blocks) --tables_with_[block.value];
    mirrors_[slot.value].reset();
  }
}

void FakeWorker::Enter(const StepPlan& plan) {
  for (const NewSequence& sequence : plan.new_sequences) {
    const int slot = sequence.slot.value;
    if (!Check(slot >= 0 && slot < static_cast<int>(mirrors_.size()), "slot out of range")) return;
    if (!Check(!mirrors_[slot].has_value(), StrCat("slot ", slot, " is in use"))) return;
    Check(sequence.prompt_count > 0 &&
              sequence.prompt_count <= static_cast<int>(sequence.tokens.size()),
          "prompt_count out of range");
    mirrors_[slot] = Mirror{.sequence = sequence};
  }
}

void FakeWorker::Append(const StepPlan& plan) {
  for (const BlockAppend& append : plan.block_appends) {
    Mirror* mirror = Find(append.slot);
    if (!Check(mirror != nullptr, "blocks for an unknown slot")) return;
    const auto chunk = std::find_if(plan.chunks.begin(), plan.chunks.end(),
                                    [&](const Chunk& c) { return c.slot == append.slot; });
    if (!Check(chunk != plan.chunks.end(), "blocks for a slot without a chunk")) return;
    for (BlockId block : append.blocks) {
      if (!Check(ValidBlock(block), StrCat("block ", block.value, " out of range"))) return;
      const int first_position = static_cast<int>(mirror->blocks.size()) * block_size_;
      mirror->blocks.push_back(block);
      ++tables_with_[block.value];
      if (first_position < chunk->start) continue;
      // A fresh block: nobody else may look at it, and what it held before is gone.
      Check(tables_with_[block.value] == 1, StrCat("fresh block ", block.value, " is in use"));
      std::fill_n(cells_.begin() + static_cast<ptrdiff_t>(block.value) * block_size_, block_size_,
                  Cell());
    }
  }
}

void FakeWorker::Copy(const StepPlan& plan) {
  for (const BlockCopy& copy : plan.block_copies) {
    if (!Check(ValidBlock(copy.source) && ValidBlock(copy.target), "copy out of range")) return;
    Check(tables_with_[copy.target.value] == 1, "copy into a block that is not exclusive");
    std::copy_n(cells_.begin() + static_cast<ptrdiff_t>(copy.source.value) * block_size_,
                block_size_,
                cells_.begin() + static_cast<ptrdiff_t>(copy.target.value) * block_size_);
  }
}

bool FakeWorker::CheckChunk(const Chunk& chunk) {
  const Mirror* mirror = Find(chunk.slot);
  if (!Check(mirror != nullptr, "chunk of an unknown slot")) return false;
  const int end = chunk.start + chunk.count;
  const int known = static_cast<int>(mirror->sequence.tokens.size());
  bool good = Check(chunk.count > 0 && chunk.start >= mirror->computed_end,
                    StrCat("chunk from ", chunk.start, " after ", mirror->computed_end));
  good &= Check(end <= known, StrCat("chunk to ", end, " of ", known, " known tokens"));
  good &= Check(!chunk.samples || end == known, "draws before the last token");
  good &=
      Check(end <= static_cast<int>(mirror->blocks.size()) * block_size_, "chunk beyond the table");
  return good;
}

void FakeWorker::Run(const Chunk& chunk, const Activations* in, Activations& out,
                     StepOutcome& outcome) {
  if (!violation_.empty() || !CheckChunk(chunk)) return;
  Mirror& mirror = *Find(chunk.slot);
  NewSequence& sequence = mirror.sequence;
  const int end = chunk.start + chunk.count;
  PromptLogprobs logprobs{.slot = chunk.slot, .start = chunk.start};
  uint64_t prefix = kEmptyPrefix;
  for (int p = 0; p < chunk.start; ++p) {
    const Cell& cell = CellAt(mirror, p);
    if (!Check(cell.written, StrCat("read of position ", p, " that nobody wrote"))) return;
    prefix = ExtendPrefix(prefix, cell.token);
    // What a real cell holds depends on all tokens before it, wherever they lie now.
    if (cell.prefix != prefix) prefix = MixDigest(prefix, cell.prefix);
  }
  for (int p = chunk.start; p < end; ++p) {
    const BlockId block = mirror.blocks[p / block_size_];
    Check(tables_with_[block.value] == 1, StrCat("write into shared block ", block.value));
    const TokenId token = sequence.tokens[p];
    prefix = ExtendPrefix(prefix, token);
    const size_t row = out.size();
    if (in != nullptr && (row >= in->size() || (*in)[row] != prefix)) {
      prefix = MixDigest(prefix, row < in->size() ? (*in)[row] : 0);
    }
    out.push_back(prefix);
    if (p < sequence.prompt_count) Pool(mirror, p, prefix, outcome);
    CellAt(mirror, p) = {.written = true, .token = token, .prefix = prefix};
    if (p + 1 < sequence.prompt_count && chunk.prompt_logprobs) {
      logprobs.entries.push_back({.logprob = PromptLogprobOf(prefix, sequence.tokens[p + 1])});
    }
  }
  mirror.computed_end = end;
  if (!samples_) {
    mirror.awaits_token |= chunk.samples;
    return;
  }
  if (!logprobs.entries.empty()) outcome.prompt_logprobs.push_back(std::move(logprobs));
  if (!chunk.samples) return;
  const int generated = static_cast<int>(sequence.tokens.size()) - sequence.prompt_count;
  const TokenId token = DrawToken(prefix, sequence.sampling.seed, sequence.sequence_index,
                                  generated < sequence.min_tokens, sequence.stop_tokens);
  sequence.tokens.push_back(token);
  outcome.sampled.push_back({.slot = chunk.slot, .token = {.token = token}});
  if (sequence.sampling.grammar == nullptr) return;
  // The grammar knows what the model would draw.
  std::vector<TokenId>& forced = outcome.sampled.back().forced;
  prefix = ExtendPrefix(prefix, token);
  for (int count = ForcedAfter(prefix); count > 0; --count) {
    const int known = generated + 1 + static_cast<int>(forced.size());
    forced.push_back(DrawToken(prefix, sequence.sampling.seed, sequence.sequence_index,
                               known < sequence.min_tokens, sequence.stop_tokens));
    prefix = ExtendPrefix(prefix, forced.back());
  }
}

void FakeWorker::Pool(Mirror& mirror, int position, uint64_t prefix, StepOutcome& outcome) const {
  const NewSequence& sequence = mirror.sequence;
  mirror.pool += HiddenOf(prefix);
  if (!samples_ || position + 1 < sequence.prompt_count) return;
  if (sequence.pooling == Pooling::kLast) {
    outcome.embeddings.push_back({sequence.slot, {HiddenOf(prefix)}});
  } else if (sequence.pooling == Pooling::kMean) {
    outcome.embeddings.push_back(
        {sequence.slot, {mirror.pool / static_cast<float>(sequence.prompt_count)}});
  }
}

}  // namespace staffel::sim
