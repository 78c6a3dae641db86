#include "transport/proto/cluster_messages.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "transport/proto/numbers.h"
#include "transport/proto/step_messages.h"

namespace staffel {
namespace {

constexpr int kRanksMax = 4096;
constexpr int kPartsMax = 99999;  // what the names of a split model's files can count

void Write(const Welcome& welcome, proto::MasterMessage& message) {
  proto::Welcome& out = *message.mutable_welcome();
  out.set_worker(welcome.worker.value);
  out.set_heartbeat_ms(welcome.heartbeat_ms);
  out.set_dead_after_ms(welcome.dead_after_ms);
  out.set_lane_name(welcome.lane_name);
  out.set_lane_secret(welcome.lane_secret);
}

Welcome Read(const proto::Welcome& in, Numbers& numbers) {
  return {WorkerId(in.worker()), numbers.Int(in.heartbeat_ms(), "heartbeat_ms", 1),
          numbers.Int(in.dead_after_ms(), "dead_after_ms", 1), in.lane_name(), in.lane_secret()};
}

void Write(const Range& range, proto::Range& out) {
  out.set_begin(range.begin);
  out.set_end(range.end);
}

Range Read(const proto::Range& in, const char* name, Numbers& numbers) {
  const Range range{numbers.Int(in.begin(), name), numbers.Int(in.end(), name)};
  if (range.begin > range.end) {
    numbers.Refuse(StrCat("the range of ", name, " [", range.begin, ", ", range.end,
                          ") ends before it begins"));
  }
  return range;
}

void Write(const RankShard& shard, proto::RankShard& out) {
  out.set_stage(shard.stage);
  out.set_device_kind(shard.device.kind);
  out.set_device_index(shard.device.index);
  Write(shard.layers, *out.mutable_layers());
  Write(shard.q_heads, *out.mutable_q_heads());
  Write(shard.kv_heads, *out.mutable_kv_heads());
  Write(shard.ffn, *out.mutable_ffn());
  Write(shard.vocab, *out.mutable_vocab());
  out.set_first_stage(shard.first_stage);
  out.set_last_stage(shard.last_stage);
  out.mutable_group()->Add(shard.group.begin(), shard.group.end());
  out.mutable_group_vocab()->Add(shard.group_vocab.begin(), shard.group_vocab.end());
  out.set_previous_rank(shard.previous_rank);
  out.set_next_rank(shard.next_rank);
}

template <class Repeated>
std::vector<int> ReadRanks(const Repeated& in, int rank_count, Numbers& numbers) {
  std::vector<int> ranks;
  if (numbers.TooMany(in.size(), rank_count, "ranks in a group")) return ranks;
  for (uint32_t rank : in) ranks.push_back(numbers.Int(rank, "rank", 0, rank_count - 1));
  return ranks;
}

RankShard Read(const proto::RankShard& in, int rank, int rank_count, Numbers& numbers) {
  RankShard shard;
  shard.rank = rank;
  shard.stage = numbers.Int(in.stage(), "stage", 0, rank_count - 1);
  shard.device.kind = numbers.Text(in.device_kind(), "kind of device", kNameBytesMax);
  shard.device.index = numbers.Int(in.device_index(), "index of device");
  shard.layers = Read(in.layers(), "layers", numbers);
  shard.q_heads = Read(in.q_heads(), "q_heads", numbers);
  shard.kv_heads = Read(in.kv_heads(), "kv_heads", numbers);
  shard.ffn = Read(in.ffn(), "ffn", numbers);
  shard.vocab = Read(in.vocab(), "vocab", numbers);
  shard.first_stage = in.first_stage();
  shard.last_stage = in.last_stage();
  shard.group = ReadRanks(in.group(), rank_count, numbers);
  if (std::count(shard.group.begin(), shard.group.end(), rank) != 1) {
    numbers.Refuse(StrCat("rank ", rank, " is not once in its own group"));
  }
  if (in.group_vocab_size() != 0 && in.group_vocab_size() != in.group_size()) {
    numbers.Refuse("group_vocab and group differ in size");
    return shard;
  }
  for (uint32_t rows : in.group_vocab()) {
    shard.group_vocab.push_back(numbers.Int(rows, "group_vocab"));
  }
  shard.previous_rank = numbers.IntOrNone(in.previous_rank(), "previous_rank", rank_count - 1);
  shard.next_rank = numbers.IntOrNone(in.next_rank(), "next_rank", rank_count - 1);
  return shard;
}

void Write(const PlacementPlan& plan, proto::PlacementPlan& out) {
  out.set_epoch(plan.epoch);
  for (const RankShard& shard : plan.ranks) Write(shard, *out.add_ranks());
  for (const std::vector<int>& group : plan.tensor_groups) {
    out.add_tensor_groups()->mutable_ranks()->Add(group.begin(), group.end());
  }
}

PlacementPlan Read(const proto::PlacementPlan& in, Numbers& numbers) {
  PlacementPlan plan;
  plan.epoch = numbers.Int(in.epoch(), "epoch");
  const int rank_count = in.ranks_size();
  if (rank_count == 0) numbers.Refuse("the placement has no rank");
  if (numbers.TooMany(rank_count, kRanksMax, "ranks") ||
      numbers.TooMany(in.tensor_groups_size(), rank_count, "tensor groups")) {
    return plan;
  }
  for (int rank = 0; rank < rank_count; ++rank) {
    plan.ranks.push_back(Read(in.ranks(rank), rank, rank_count, numbers));
  }
  for (const proto::TensorGroup& group : in.tensor_groups()) {
    plan.tensor_groups.push_back(ReadRanks(group.ranks(), rank_count, numbers));
  }
  return plan;
}

void Write(const Configure& configure, proto::MasterMessage& message) {
  proto::Configure& out = *message.mutable_configure();
  out.set_replica(configure.replica.value);
  out.mutable_model()->set_name(configure.model.name);
  out.mutable_model()->set_path(configure.model.path);
  out.mutable_model()->set_digest(configure.model.digest);
  for (const ModelPartSize& part : configure.model.parts) {
    proto::ModelPart& to = *out.mutable_model()->add_parts();
    to.set_bytes(part.bytes);
    to.set_header_bytes(part.header_bytes);
  }
  Write(configure.plan, *out.mutable_plan());
  out.set_rank(configure.rank);
  proto::RankOptions& options = *out.mutable_options();
  options.set_block_size(configure.options.block_size);
  options.set_max_rows(configure.options.max_rows);
  options.set_max_sampled_rows(configure.options.max_sampled_rows);
  options.set_max_positions(configure.options.max_positions);
  options.set_activations(configure.options.activations);
  out.set_memory_bytes(configure.memory_bytes);
}

Configure Read(const proto::Configure& in, Numbers& numbers) {
  Configure configure;
  configure.replica = numbers.Replica(in.replica());
  configure.model.name = numbers.Text(in.model().name(), "name of the model", kTextBytesMax);
  configure.model.path = numbers.Text(in.model().path(), "path of the model", kTextBytesMax);
  configure.model.digest = numbers.Text(in.model().digest(), "digest", kNameBytesMax);
  if (numbers.TooMany(in.model().parts_size(), kPartsMax, "files of a model")) return configure;
  for (const proto::ModelPart& part : in.model().parts()) {
    configure.model.parts.push_back({numbers.Count(part.bytes(), "bytes of a file"),
                                     numbers.Count(part.header_bytes(), "header_bytes of a file")});
    if (part.header_bytes() > part.bytes()) {
      numbers.Refuse(StrCat("the header of a file has ", part.header_bytes(),
                            " bytes and the file ", part.bytes()));
    }
  }
  configure.plan = Read(in.plan(), numbers);
  configure.rank = numbers.Int(in.rank(), "rank", 0, std::max(0, in.plan().ranks_size() - 1));
  const proto::RankOptions& options = in.options();
  configure.options.block_size = numbers.Int(options.block_size(), "block_size", 1);
  configure.options.max_rows = numbers.Int(options.max_rows(), "max_rows", 1);
  configure.options.max_sampled_rows =
      numbers.Int(options.max_sampled_rows(), "max_sampled_rows", 1);
  configure.options.max_positions = numbers.Int(options.max_positions(), "max_positions", 1);
  configure.options.activations = numbers.Text(options.activations(), "activations", kNameBytesMax);
  configure.memory_bytes = numbers.Count(in.memory_bytes(), "memory_bytes");
  return configure;
}

void Write(const Form& form, proto::MasterMessage& message) {
  proto::Form& out = *message.mutable_form();
  out.set_replica(form.replica.value);
  out.set_epoch(form.epoch);
  out.set_block_count(form.block_count);
  for (const std::string& address : form.addresses) out.add_addresses(address);
  for (const std::string& machine : form.machines) out.add_machines(machine);
  out.set_secret(form.secret);
}

Form Read(const proto::Form& in, Numbers& numbers) {
  Form form;
  form.replica = numbers.Replica(in.replica());
  form.epoch = numbers.Int(in.epoch(), "epoch");
  form.block_count = numbers.Int(in.block_count(), "block_count", 1);
  form.secret = numbers.Text(in.secret(), "secret", kNameBytesMax);
  if (in.addresses_size() != in.machines_size()) {
    numbers.Refuse(StrCat(in.addresses_size(), " addresses and ", in.machines_size(),
                          " machines are not the same ranks"));
  }
  if (numbers.TooMany(in.addresses_size(), kRanksMax, "addresses") ||
      numbers.TooMany(in.machines_size(), kRanksMax, "machines")) {
    return form;
  }
  for (const std::string& address : in.addresses()) {
    form.addresses.push_back(numbers.Text(address, "address", kTextBytesMax));
  }
  for (const std::string& machine : in.machines()) {
    form.machines.push_back(numbers.Text(machine, "machine", kNameBytesMax));
  }
  return form;
}

void Write(const Abort& abort, proto::MasterMessage& message) {
  proto::Abort& out = *message.mutable_abort();
  out.set_replica(abort.replica.value);
  out.set_epoch(abort.epoch);
  out.set_reason(abort.reason);
}

Abort Read(const proto::Abort& in, Numbers& numbers) {
  return {numbers.Replica(in.replica()), numbers.Int(in.epoch(), "epoch"),
          numbers.Text(in.reason(), "reason", kTextBytesMax)};
}

void Write(const Release& release, proto::MasterMessage& message) {
  message.mutable_release()->set_replica(release.replica.value);
}

void Write(const Step& step, proto::MasterMessage& message) {
  message.mutable_step()->set_replica(step.replica.value);
  Write(step.plan, *message.mutable_step()->mutable_plan());
}

}  // namespace

void WriteMasterMessage(const MasterMessage& message, proto::MasterMessage& out) {
  std::visit([&](const auto& body) { Write(body, out); }, message);
}

Result<std::optional<MasterMessage>> ReadMasterMessage(const proto::MasterMessage& in) {
  Numbers numbers;
  std::optional<MasterMessage> message;
  switch (in.body_case()) {
    case proto::MasterMessage::kWelcome:
      message = Read(in.welcome(), numbers);
      break;
    case proto::MasterMessage::kConfigure:
      message = Read(in.configure(), numbers);
      break;
    case proto::MasterMessage::kForm:
      message = Read(in.form(), numbers);
      break;
    case proto::MasterMessage::kAbort:
      message = Read(in.abort(), numbers);
      break;
    case proto::MasterMessage::kRelease:
      message = Release{numbers.Replica(in.release().replica())};
      break;
    case proto::MasterMessage::kStep: {
      STAFFEL_ASSIGN_OR_RETURN(StepPlan plan, Read(in.step().plan()));
      message = Step{numbers.Replica(in.step().replica()), std::move(plan)};
      break;
    }
    case proto::MasterMessage::kPing:
    case proto::MasterMessage::BODY_NOT_SET:
      break;
  }
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return message;
}

}  // namespace staffel
