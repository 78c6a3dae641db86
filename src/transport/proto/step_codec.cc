#include "transport/proto/step_codec.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/strings.h"
#include "transport/proto/numbers.h"
#include "transport/proto/step_messages.h"

namespace staffel {
namespace {

// A plan in one step is bounded by the token budget, an outcome by its log-probabilities.
constexpr int kMessageBytesMax = 256 << 20;

template <class Message>
Status Parse(std::string_view bytes, const char* what, Message& message) {
  if (bytes.size() > kMessageBytesMax ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(StrCat(bytes.size(), " bytes are not a ", what));
  }
  return absl::OkStatus();
}

void Write(const grammar::GrammarSpec& spec, proto::GrammarSpec& out) {
  out.set_kind(static_cast<uint32_t>(spec.kind));
  out.set_source(spec.source);
  for (const std::string& choice : spec.choices) out.add_choices(choice);
  for (const std::string& trigger : spec.triggers) out.add_triggers(trigger);
  for (const grammar::StructuralTag& tag : spec.tags) {
    proto::StructuralTag& added = *out.add_tags();
    added.set_begin(tag.begin);
    added.set_schema(tag.schema);
    added.set_end(tag.end);
    added.set_form(static_cast<uint32_t>(tag.form));
  }
  out.set_tag_required(spec.tag_required);
  out.set_single_tag(spec.single_tag);
  out.set_space(static_cast<uint32_t>(spec.space));
  out.set_list_begin(spec.list_begin);
  out.set_list_separator(spec.list_separator);
  out.set_list_end(spec.list_end);
  out.set_text_begin(spec.text_begin);
  out.set_reasoning_begin(spec.reasoning_begin);
  out.set_reasoning_end(spec.reasoning_end);
  out.set_reasoning_open(spec.reasoning_open);
  out.set_leading_tags(spec.leading_tags);
  out.set_reasoning_tokens_limit(static_cast<uint32_t>(spec.reasoning_tokens_max) + 1);
}

// Kinds that this version does not know are refused where the grammar is compiled.
grammar::GrammarSpec Read(const proto::GrammarSpec& in) {
  grammar::GrammarSpec spec;
  spec.kind = static_cast<grammar::GrammarSpec::Kind>(std::min(in.kind(), 255u));
  spec.source = in.source();
  spec.choices.assign(in.choices().begin(), in.choices().end());
  spec.triggers.assign(in.triggers().begin(), in.triggers().end());
  for (const proto::StructuralTag& tag : in.tags()) {
    const auto form = static_cast<grammar::ValueForm>(std::min(tag.form(), 255u));
    spec.tags.push_back({tag.begin(), tag.schema(), tag.end(), form});
  }
  spec.tag_required = in.tag_required();
  spec.single_tag = in.single_tag();
  spec.space = in.space() == 0 ? grammar::JsonSpace::kFlexible : grammar::JsonSpace::kNone;
  spec.list_begin = in.list_begin();
  spec.list_separator = in.list_separator();
  spec.list_end = in.list_end();
  spec.text_begin = in.text_begin();
  spec.reasoning_begin = in.reasoning_begin();
  spec.reasoning_end = in.reasoning_end();
  spec.reasoning_open = in.reasoning_open();
  spec.leading_tags = in.leading_tags();
  spec.reasoning_tokens_max = static_cast<int>(in.reasoning_tokens_limit() - 1);
  return spec;
}

void Write(const SamplingParams& params, proto::SamplingParams& out) {
  out.set_temperature(params.temperature);
  out.set_top_p(params.top_p);
  out.set_top_k(params.top_k);
  out.set_min_p(params.min_p);
  out.set_presence_penalty(params.presence_penalty);
  out.set_frequency_penalty(params.frequency_penalty);
  out.set_repetition_penalty(params.repetition_penalty);
  out.set_seed(params.seed);
  for (const LogitBias& bias : params.logit_bias) {
    proto::LogitBias& added = *out.add_logit_bias();
    added.set_token(bias.token);
    added.set_bias(bias.bias);
  }
  out.mutable_allowed_tokens()->Add(params.allowed_tokens.begin(), params.allowed_tokens.end());
  for (const std::vector<TokenId>& sequence : params.banned_sequences) {
    out.add_banned_sequences()->mutable_tokens()->Add(sequence.begin(), sequence.end());
  }
  out.set_top_logprobs(params.top_logprobs);
  out.set_prompt_logprobs(params.prompt_logprobs);
  if (params.grammar != nullptr) Write(*params.grammar, *out.mutable_grammar());
}

SamplingParams Read(const proto::SamplingParams& in, Numbers& numbers) {
  SamplingParams params;
  params.temperature = in.temperature();
  params.top_p = in.top_p();
  params.top_k = numbers.Int(in.top_k(), "top_k");
  params.min_p = in.min_p();
  params.presence_penalty = in.presence_penalty();
  params.frequency_penalty = in.frequency_penalty();
  params.repetition_penalty = in.repetition_penalty();
  params.seed = in.seed();
  for (const proto::LogitBias& bias : in.logit_bias()) {
    params.logit_bias.push_back({numbers.Token(bias.token()), bias.bias()});
  }
  params.allowed_tokens = numbers.Tokens(in.allowed_tokens());
  for (const proto::TokenSequence& sequence : in.banned_sequences()) {
    params.banned_sequences.push_back(numbers.Tokens(sequence.tokens()));
  }
  params.top_logprobs = in.top_logprobs();
  params.prompt_logprobs = in.prompt_logprobs();
  if (in.has_grammar()) {
    params.grammar = std::make_shared<const grammar::GrammarSpec>(Read(in.grammar()));
  }
  return params;
}

void Write(const NewSequence& sequence, proto::NewSequence& out) {
  out.set_slot(sequence.slot.value);
  out.mutable_tokens()->Add(sequence.tokens.begin(), sequence.tokens.end());
  out.set_prompt_count(sequence.prompt_count);
  out.set_sequence_index(sequence.sequence_index);
  Write(sequence.sampling, *out.mutable_sampling());
  out.set_min_tokens(sequence.min_tokens);
  out.mutable_stop_tokens()->Add(sequence.stop_tokens.begin(), sequence.stop_tokens.end());
  out.set_pooling(static_cast<proto::Pooling>(sequence.pooling));
}

NewSequence Read(const proto::NewSequence& in, Numbers& numbers) {
  NewSequence sequence;
  sequence.slot = numbers.SlotOf(in.slot());
  sequence.tokens = numbers.Tokens(in.tokens());
  sequence.prompt_count = numbers.Int(in.prompt_count(), "prompt_count");
  sequence.sequence_index = numbers.Int(in.sequence_index(), "sequence_index");
  sequence.sampling = Read(in.sampling(), numbers);
  sequence.min_tokens = numbers.Int(in.min_tokens(), "min_tokens");
  sequence.stop_tokens = numbers.Tokens(in.stop_tokens());
  sequence.pooling = numbers.PoolingOf(in.pooling());
  return sequence;
}

void WriteChunks(const StepPlan& plan, proto::StepPlan& out) {
  bool front = true;  // decode chunks beyond the front keep their place among the others
  for (const Chunk& chunk : plan.chunks) {
    front = front && chunk.count == 1 && chunk.samples && !chunk.prompt_logprobs;
    if (front) {
      out.add_decode_slots(chunk.slot.value);
      out.add_decode_starts(chunk.start);
      continue;
    }
    proto::Chunk& added = *out.add_chunks();
    added.set_slot(chunk.slot.value);
    added.set_start(chunk.start);
    added.set_count(chunk.count);
    added.set_samples(chunk.samples);
    added.set_prompt_logprobs(chunk.prompt_logprobs);
  }
}

void ReadChunks(const proto::StepPlan& in, Numbers& numbers, StepPlan& plan) {
  if (in.decode_slots_size() != in.decode_starts_size()) {
    return numbers.Refuse("decode_slots and decode_starts differ in size");
  }
  for (int i = 0; i < in.decode_slots_size(); ++i) {
    plan.chunks.push_back({numbers.SlotOf(in.decode_slots(i)),
                           numbers.Int(in.decode_starts(i), "start"), 1, true, false});
  }
  for (const proto::Chunk& chunk : in.chunks()) {
    plan.chunks.push_back({numbers.SlotOf(chunk.slot()), numbers.Int(chunk.start(), "start"),
                           numbers.Int(chunk.count(), "count"), chunk.samples(),
                           chunk.prompt_logprobs()});
  }
}

bool Tells(const KnownToken& known, uint32_t slot, uint32_t position) {
  return known.slot.value == static_cast<int>(slot) && known.position == static_cast<int>(position);
}

// After WriteChunks: most known tokens are what the decode chunks compute.
void WriteKnownTokens(const StepPlan& plan, proto::StepPlan& out) {
  const std::vector<KnownToken>& known = plan.known_tokens;
  size_t next = 0;
  for (int i = 0; i < out.decode_slots_size() && next < known.size(); ++i) {
    const bool tells = Tells(known[next], out.decode_slots(i), out.decode_starts(i));
    out.add_decode_tokens(tells ? static_cast<uint32_t>(known[next++].token) + 1 : 0);
  }
  if (next == 0) out.clear_decode_tokens();
  for (; next < known.size(); ++next) {
    out.add_known_slots(known[next].slot.value);
    out.add_known_positions(known[next].position);
    out.add_known_tokens(known[next].token);
  }
}

void ReadKnownTokens(const proto::StepPlan& in, Numbers& numbers, StepPlan& plan) {
  if (in.decode_tokens_size() > in.decode_slots_size()) {
    return numbers.Refuse("decode_tokens are more than decode_slots");
  }
  for (int i = 0; i < in.decode_tokens_size(); ++i) {
    if (in.decode_tokens(i) == 0) continue;
    plan.known_tokens.push_back({numbers.SlotOf(in.decode_slots(i)),
                                 numbers.Int(in.decode_starts(i), "start"),
                                 numbers.Token(in.decode_tokens(i) - 1)});
  }
  if (in.known_slots_size() != in.known_tokens_size() ||
      in.known_positions_size() != in.known_tokens_size()) {
    return numbers.Refuse("known_slots, known_positions and known_tokens differ in size");
  }
  for (int i = 0; i < in.known_tokens_size(); ++i) {
    plan.known_tokens.push_back({numbers.SlotOf(in.known_slots(i)),
                                 numbers.Int(in.known_positions(i), "position"),
                                 numbers.Token(in.known_tokens(i))});
  }
}

void WriteForcedTokens(const StepPlan& plan, proto::StepPlan& out) {
  for (const ForcedToken& forced : plan.forced_tokens) {
    out.add_forced_slots(forced.slot.value);
    out.add_forced_positions(forced.position);
    out.add_forced_tokens(forced.token);
  }
}

void ReadForcedTokens(const proto::StepPlan& in, Numbers& numbers, StepPlan& plan) {
  if (in.forced_slots_size() != in.forced_tokens_size() ||
      in.forced_positions_size() != in.forced_tokens_size()) {
    return numbers.Refuse("forced_slots, forced_positions and forced_tokens differ in size");
  }
  for (int i = 0; i < in.forced_tokens_size(); ++i) {
    plan.forced_tokens.push_back({numbers.SlotOf(in.forced_slots(i)),
                                  numbers.Int(in.forced_positions(i), "position"),
                                  numbers.Token(in.forced_tokens(i))});
  }
}

template <class Repeated>
void WriteTop(const std::vector<TokenLogprob>& top, Repeated& out) {
  for (const TokenLogprob& entry : top) {
    proto::TokenLogprob& added = *out.Add();
    added.set_token(entry.token);
    added.set_logprob(entry.logprob);
  }
}

template <class Repeated>
std::vector<TokenLogprob> ReadTop(const Repeated& in, Numbers& numbers) {
  std::vector<TokenLogprob> top;
  for (const proto::TokenLogprob& entry : in) {
    top.push_back({numbers.Token(entry.token()), entry.logprob()});
  }
  return top;
}

}  // namespace

void WriteStatus(const Status& status, proto::Status& out) {
  out.set_code(static_cast<uint32_t>(status.code()));
  out.set_message(std::string(status.message()));
}

Status ReadStatus(const proto::Status& in) {
  const bool known = in.code() <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return Status(known ? static_cast<absl::StatusCode>(in.code()) : absl::StatusCode::kUnknown,
                in.message());
}

void Write(const StepPlan& plan, proto::StepPlan& out) {
  out.set_epoch(plan.epoch);
  out.set_step(plan.step);
  for (Slot slot : plan.released) out.add_released(slot.value);
  for (const NewSequence& sequence : plan.new_sequences) Write(sequence, *out.add_new_sequences());
  for (const BlockAppend& append : plan.block_appends) {
    proto::BlockAppend& added = *out.add_block_appends();
    added.set_slot(append.slot.value);
    for (BlockId block : append.blocks) added.add_blocks(block.value);
  }
  for (const BlockCopy& copy : plan.block_copies) {
    proto::BlockCopy& added = *out.add_block_copies();
    added.set_source(copy.source.value);
    added.set_target(copy.target.value);
  }
  WriteChunks(plan, out);
  WriteKnownTokens(plan, out);
  WriteForcedTokens(plan, out);
  out.set_digest(plan.digest);
}

Result<StepPlan> Read(const proto::StepPlan& in) {
  Numbers numbers;
  StepPlan plan;
  plan.epoch = numbers.Int(in.epoch(), "epoch");
  plan.step = in.step();
  for (uint32_t slot : in.released()) plan.released.push_back(numbers.SlotOf(slot));
  for (const proto::NewSequence& sequence : in.new_sequences()) {
    plan.new_sequences.push_back(Read(sequence, numbers));
  }
  for (const proto::BlockAppend& append : in.block_appends()) {
    BlockAppend& added = plan.block_appends.emplace_back();
    added.slot = numbers.SlotOf(append.slot());
    for (uint32_t block : append.blocks()) added.blocks.push_back(numbers.Block(block));
  }
  for (const proto::BlockCopy& copy : in.block_copies()) {
    plan.block_copies.push_back({numbers.Block(copy.source()), numbers.Block(copy.target())});
  }
  ReadChunks(in, numbers, plan);
  if (numbers.status().ok()) ReadKnownTokens(in, numbers, plan);
  if (numbers.status().ok()) ReadForcedTokens(in, numbers, plan);
  plan.digest = in.digest();
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return plan;
}

void Write(const StepOutcome& outcome, proto::StepOutcome& out) {
  out.set_epoch(outcome.epoch);
  out.set_step(outcome.step);
  if (!outcome.status.ok()) WriteStatus(outcome.status, *out.mutable_status());
  for (const SampledToken& sampled : outcome.sampled) {
    proto::SampledToken& added = *out.add_sampled();
    added.set_slot(sampled.slot.value);
    added.set_token(sampled.token.token);
    added.set_logprob(sampled.token.logprob);
    WriteTop(sampled.token.top, *added.mutable_top());
    if (!sampled.error.ok()) WriteStatus(sampled.error, *added.mutable_error());
    added.mutable_forced()->Add(sampled.forced.begin(), sampled.forced.end());
    added.set_complete(sampled.complete);
  }
  for (const PromptLogprobs& logprobs : outcome.prompt_logprobs) {
    proto::PromptLogprobs& added = *out.add_prompt_logprobs();
    added.set_slot(logprobs.slot.value);
    added.set_start(logprobs.start);
    for (const PromptLogprob& entry : logprobs.entries) {
      proto::PromptLogprob& added_entry = *added.add_entries();
      added_entry.set_logprob(entry.logprob);
      added_entry.set_rank(entry.rank);
      WriteTop(entry.top, *added_entry.mutable_top());
    }
  }
  for (const Embedding& embedding : outcome.embeddings) {
    proto::Embedding& added = *out.add_embeddings();
    added.set_slot(embedding.slot.value);
    added.mutable_values()->Add(embedding.values.begin(), embedding.values.end());
  }
  out.set_compute_s(outcome.compute_s);
}

Result<StepOutcome> Read(const proto::StepOutcome& in) {
  Numbers numbers;
  StepOutcome outcome;
  outcome.epoch = numbers.Int(in.epoch(), "epoch");
  outcome.step = in.step();
  outcome.status = ReadStatus(in.status());
  for (const proto::SampledToken& sampled : in.sampled()) {
    SampledToken& added = outcome.sampled.emplace_back();
    added.slot = numbers.SlotOf(sampled.slot());
    added.token.token = numbers.Token(sampled.token());
    added.token.logprob = sampled.logprob();
    added.token.top = ReadTop(sampled.top(), numbers);
    added.error = ReadStatus(sampled.error());
    added.forced = numbers.Tokens(sampled.forced());
    added.complete = sampled.complete();
  }
  for (const proto::PromptLogprobs& logprobs : in.prompt_logprobs()) {
    PromptLogprobs& added = outcome.prompt_logprobs.emplace_back();
    added.slot = numbers.SlotOf(logprobs.slot());
    added.start = numbers.Int(logprobs.start(), "start");
    for (const proto::PromptLogprob& entry : logprobs.entries()) {
      added.entries.push_back(
          {entry.logprob(), numbers.Int(entry.rank(), "rank"), ReadTop(entry.top(), numbers)});
    }
  }
  for (const proto::Embedding& embedding : in.embeddings()) {
    outcome.embeddings.push_back({numbers.SlotOf(embedding.slot()),
                                  {embedding.values().begin(), embedding.values().end()}});
  }
  outcome.compute_s = numbers.Real(in.compute_s(), "compute_s");
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return outcome;
}

std::string SerializePlan(const StepPlan& plan) {
  proto::StepPlan out;
  Write(plan, out);
  return out.SerializeAsString();
}

Result<StepPlan> ParsePlan(std::string_view bytes) {
  proto::StepPlan in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "StepPlan", in));
  return Read(in);
}

std::string SerializeOutcome(const StepOutcome& outcome) {
  proto::StepOutcome out;
  Write(outcome, out);
  return out.SerializeAsString();
}

Result<StepOutcome> ParseOutcome(std::string_view bytes) {
  proto::StepOutcome in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "StepOutcome", in));
  return Read(in);
}

}  // namespace staffel
