#include "transport/proto/cluster_codec.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "cluster.pb.h"
#include "transport/proto/numbers.h"
#include "transport/proto/step_messages.h"

namespace staffel {
namespace {

constexpr int kRanksMax = 4096;
constexpr int kPartsMax = 99999;  // what the names of a split model's files can count
constexpr int kListMax = 256;     // devices and labels of a worker
constexpr size_t kNameBytesMax = 256;
constexpr size_t kTextBytesMax = 64 << 10;  // reasons, paths, addresses
constexpr double kSpeedMax = 1e9;
// A plan in one step is bounded by the token budget, an outcome by its log-probabilities.
constexpr size_t kMessageBytesMax = 256 << 20;

template <class Message>
Status Parse(std::string_view bytes, const char* what, Message& message) {
  if (bytes.size() > kMessageBytesMax ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(StrCat(bytes.size(), " bytes are not a ", what));
  }
  return absl::OkStatus();
}

std::string Text(const std::string& text, const char* name, size_t bytes_max, Numbers& numbers) {
  if (text.size() <= bytes_max) return text;
  numbers.Refuse(StrCat(name, " has ", text.size(), " bytes; at most ", bytes_max, " are allowed"));
  return {};
}

bool TooMany(int count, int max, const char* name, Numbers& numbers) {
  if (count <= max) return false;
  numbers.Refuse(StrCat(count, " ", name, " are too many; at most ", max, " are allowed"));
  return true;
}

ReplicaId Replica(uint32_t value, Numbers& numbers) {
  return ReplicaId(numbers.Int(value, "replica"));
}

// ---- worker to master

void Write(const Hello& hello, proto::Hello& out) {
  out.set_protocol_major(hello.protocol.major);
  out.set_protocol_minor(hello.protocol.minor);
  out.set_build(hello.build);
  out.set_name(hello.name);
  out.set_host(hello.host);
  out.set_machine(hello.machine);
  for (const DeviceShape& device : hello.devices) {
    proto::Device& added = *out.add_devices();
    added.set_kind(device.device.kind);
    added.set_index(device.device.index);
    added.set_host(device.host);
    added.set_memory_bytes(device.memory_bytes);
    added.set_speed(device.speed);
  }
  for (const auto& [key, value] : hello.labels) {
    proto::Label& added = *out.add_labels();
    added.set_key(key);
    added.set_value(value);
  }
}

Hello Read(const proto::Hello& in, Numbers& numbers) {
  Hello hello;
  hello.protocol = {in.protocol_major(), in.protocol_minor()};
  hello.build = Text(in.build(), "build", kNameBytesMax, numbers);
  hello.name = Text(in.name(), "the worker's name", kNameBytesMax, numbers);
  if (hello.name.empty()) numbers.Refuse("the worker's name is empty");
  hello.host = Text(in.host(), "the host's name", kNameBytesMax, numbers);
  hello.machine = Text(in.machine(), "machine", kNameBytesMax, numbers);
  if (in.devices_size() == 0) numbers.Refuse("the worker has no device");
  if (TooMany(in.devices_size(), kListMax, "devices", numbers)) return hello;
  for (const proto::Device& device : in.devices()) {
    DeviceShape& added = hello.devices.emplace_back();
    added.device.kind = Text(device.kind(), "kind of device", kNameBytesMax, numbers);
    added.device.index = numbers.Int(device.index(), "index of device");
    added.host = Text(device.host(), "host of device", kNameBytesMax, numbers);
    added.memory_bytes = numbers.Count(device.memory_bytes(), "memory_bytes");
    added.speed = numbers.Real(device.speed(), "speed", kSpeedMax);
    if (added.speed == 0) numbers.Refuse("the speed of a device is 0");
  }
  if (TooMany(in.labels_size(), kListMax, "labels", numbers)) return hello;
  for (const proto::Label& label : in.labels()) {
    hello.labels[Text(label.key(), "label", kNameBytesMax, numbers)] =
        Text(label.value(), "value of label", kNameBytesMax, numbers);
  }
  return hello;
}

void Write(const Capacity& capacity, proto::WorkerMessage& message) {
  proto::Capacity& out = *message.mutable_capacity();
  out.set_replica(capacity.replica.value);
  out.set_epoch(capacity.epoch);
  if (!capacity.status.ok()) WriteStatus(capacity.status, *out.mutable_status());
  out.set_kv_bytes_per_block(capacity.kv_bytes_per_block);
  out.set_weight_bytes(capacity.weight_bytes);
  out.set_memory_bytes(capacity.memory_bytes);
  out.set_comm_address(capacity.comm_address);
}

Capacity Read(const proto::Capacity& in, Numbers& numbers) {
  Capacity capacity;
  capacity.replica = Replica(in.replica(), numbers);
  capacity.epoch = numbers.Int(in.epoch(), "epoch");
  capacity.status = ReadStatus(in.status());
  capacity.kv_bytes_per_block = numbers.Count(in.kv_bytes_per_block(), "kv_bytes_per_block");
  capacity.weight_bytes = numbers.Count(in.weight_bytes(), "weight_bytes");
  capacity.memory_bytes = numbers.Count(in.memory_bytes(), "memory_bytes");
  capacity.comm_address = Text(in.comm_address(), "comm_address", kTextBytesMax, numbers);
  return capacity;
}

void Write(const FormProgress& progress, proto::WorkerMessage& message) {
  proto::FormProgress& out = *message.mutable_form_progress();
  out.set_replica(progress.replica.value);
  out.set_epoch(progress.epoch);
  out.set_share(progress.share);
}

FormProgress Read(const proto::FormProgress& in, Numbers& numbers) {
  return {Replica(in.replica(), numbers), numbers.Int(in.epoch(), "epoch"),
          numbers.Real(in.share(), "share", 1)};
}

void Write(const Formed& formed, proto::WorkerMessage& message) {
  proto::Formed& out = *message.mutable_formed();
  out.set_replica(formed.replica.value);
  out.set_epoch(formed.epoch);
  if (!formed.status.ok()) WriteStatus(formed.status, *out.mutable_status());
  out.set_bytes_read(formed.bytes_read);
  out.set_bytes_fetched(formed.bytes_fetched);
  out.set_load_s(formed.load_s);
  out.set_form_s(formed.form_s);
  out.set_weights_kept(formed.weights_kept);
}

Formed Read(const proto::Formed& in, Numbers& numbers) {
  Formed formed;
  formed.replica = Replica(in.replica(), numbers);
  formed.epoch = numbers.Int(in.epoch(), "epoch");
  formed.status = ReadStatus(in.status());
  formed.bytes_read = numbers.Count(in.bytes_read(), "bytes_read");
  formed.bytes_fetched = numbers.Count(in.bytes_fetched(), "bytes_fetched");
  formed.load_s = numbers.Real(in.load_s(), "load_s");
  formed.form_s = numbers.Real(in.form_s(), "form_s");
  formed.weights_kept = in.weights_kept();
  return formed;
}

void Write(const Heartbeat& heartbeat, proto::WorkerMessage& message) {
  proto::Heartbeat& out = *message.mutable_heartbeat();
  out.set_replica(heartbeat.replica.value);
  out.set_epoch(heartbeat.epoch);
  out.set_step(heartbeat.step);
  out.set_collective(heartbeat.collective);
  out.set_in_step(heartbeat.in_step);
  out.set_in_step_s(heartbeat.in_step_s);
  out.set_compute_s(heartbeat.compute_s);
  out.set_wait_s(heartbeat.wait_s);
  out.set_wire_s(heartbeat.wire_s);
  out.set_bytes_sent(heartbeat.bytes_sent);
  out.set_bytes_received(heartbeat.bytes_received);
  out.set_resident_bytes(heartbeat.resident_bytes);
}

Heartbeat Read(const proto::Heartbeat& in, Numbers& numbers) {
  Heartbeat heartbeat;
  heartbeat.replica = ReplicaId(numbers.IntOrNone(in.replica(), "replica"));
  heartbeat.epoch = numbers.Int(in.epoch(), "epoch");
  heartbeat.step = in.step();
  heartbeat.collective = in.collective();
  heartbeat.in_step = in.in_step();
  heartbeat.in_step_s = numbers.Real(in.in_step_s(), "in_step_s");
  heartbeat.compute_s = numbers.Real(in.compute_s(), "compute_s");
  heartbeat.wait_s = numbers.Real(in.wait_s(), "wait_s");
  heartbeat.wire_s = numbers.Real(in.wire_s(), "wire_s");
  heartbeat.bytes_sent = numbers.Count(in.bytes_sent(), "bytes_sent");
  heartbeat.bytes_received = numbers.Count(in.bytes_received(), "bytes_received");
  heartbeat.resident_bytes = numbers.Count(in.resident_bytes(), "resident_bytes");
  return heartbeat;
}

void Write(const Leaving& leaving, proto::WorkerMessage& message) {
  proto::Leaving& out = *message.mutable_leaving();
  out.set_reason(leaving.reason);
  out.set_grace_s(leaving.grace_s);
}

Leaving Read(const proto::Leaving& in, Numbers& numbers) {
  return {Text(in.reason(), "reason", kTextBytesMax, numbers),
          numbers.Real(in.grace_s(), "grace_s")};
}

void Write(const StepOutcome& outcome, proto::WorkerMessage& message) {
  Write(outcome, *message.mutable_outcome());
}

// ---- master to worker

void Write(const Welcome& welcome, proto::MasterMessage& message) {
  proto::Welcome& out = *message.mutable_welcome();
  out.set_worker(welcome.worker.value);
  out.set_heartbeat_ms(welcome.heartbeat_ms);
  out.set_dead_after_ms(welcome.dead_after_ms);
}

Welcome Read(const proto::Welcome& in, Numbers& numbers) {
  return {WorkerId(in.worker()), numbers.Int(in.heartbeat_ms(), "heartbeat_ms", 1),
          numbers.Int(in.dead_after_ms(), "dead_after_ms", 1)};
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
  if (TooMany(in.size(), rank_count, "ranks in a group", numbers)) return ranks;
  for (uint32_t rank : in) ranks.push_back(numbers.Int(rank, "rank", 0, rank_count - 1));
  return ranks;
}

RankShard Read(const proto::RankShard& in, int rank, int rank_count, Numbers& numbers) {
  RankShard shard;
  shard.rank = rank;
  shard.stage = numbers.Int(in.stage(), "stage", 0, rank_count - 1);
  shard.device.kind = Text(in.device_kind(), "kind of device", kNameBytesMax, numbers);
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
  if (TooMany(rank_count, kRanksMax, "ranks", numbers) ||
      TooMany(in.tensor_groups_size(), rank_count, "tensor groups", numbers)) {
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
}

Configure Read(const proto::Configure& in, Numbers& numbers) {
  Configure configure;
  configure.replica = Replica(in.replica(), numbers);
  configure.model.name = Text(in.model().name(), "name of the model", kTextBytesMax, numbers);
  configure.model.path = Text(in.model().path(), "path of the model", kTextBytesMax, numbers);
  configure.model.digest = Text(in.model().digest(), "digest", kNameBytesMax, numbers);
  if (TooMany(in.model().parts_size(), kPartsMax, "files of a model", numbers)) return configure;
  for (const proto::ModelPart& part : in.model().parts()) {
    configure.model.parts.push_back({numbers.Count(part.bytes(), "bytes of a file"),
                                     numbers.Count(part.header_bytes(), "header_bytes of a file")});
  }
  configure.plan = Read(in.plan(), numbers);
  configure.rank = numbers.Int(in.rank(), "rank", 0, std::max(0, in.plan().ranks_size() - 1));
  const proto::RankOptions& options = in.options();
  configure.options.block_size = numbers.Int(options.block_size(), "block_size", 1);
  configure.options.max_rows = numbers.Int(options.max_rows(), "max_rows", 1);
  configure.options.max_sampled_rows =
      numbers.Int(options.max_sampled_rows(), "max_sampled_rows", 1);
  configure.options.max_positions = numbers.Int(options.max_positions(), "max_positions", 1);
  configure.options.activations =
      Text(options.activations(), "activations", kNameBytesMax, numbers);
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
  form.replica = Replica(in.replica(), numbers);
  form.epoch = numbers.Int(in.epoch(), "epoch");
  form.block_count = numbers.Int(in.block_count(), "block_count", 1);
  form.secret = Text(in.secret(), "secret", kNameBytesMax, numbers);
  if (in.addresses_size() != in.machines_size()) {
    numbers.Refuse(StrCat(in.addresses_size(), " addresses and ", in.machines_size(),
                          " machines are not the same ranks"));
  }
  if (TooMany(in.addresses_size(), kRanksMax, "addresses", numbers) ||
      TooMany(in.machines_size(), kRanksMax, "machines", numbers)) {
    return form;
  }
  for (const std::string& address : in.addresses()) {
    form.addresses.push_back(Text(address, "address", kTextBytesMax, numbers));
  }
  for (const std::string& machine : in.machines()) {
    form.machines.push_back(Text(machine, "machine", kNameBytesMax, numbers));
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
  return {Replica(in.replica(), numbers), numbers.Int(in.epoch(), "epoch"),
          Text(in.reason(), "reason", kTextBytesMax, numbers)};
}

void Write(const Release& release, proto::MasterMessage& message) {
  message.mutable_release()->set_replica(release.replica.value);
}

void Write(const Step& step, proto::MasterMessage& message) {
  message.mutable_step()->set_replica(step.replica.value);
  Write(step.plan, *message.mutable_step()->mutable_plan());
}

}  // namespace

std::string SerializeHello(const Hello& hello) {
  proto::WorkerMessage message;
  Write(hello, *message.mutable_hello());
  return message.SerializeAsString();
}

std::string SerializeWorkerMessage(const WorkerMessage& message) {
  proto::WorkerMessage out;
  std::visit([&](const auto& body) { Write(body, out); }, message);
  return out.SerializeAsString();
}

std::string SerializeMasterMessage(const MasterMessage& message) {
  proto::MasterMessage out;
  std::visit([&](const auto& body) { Write(body, out); }, message);
  return out.SerializeAsString();
}

std::string SerializePing() {
  proto::MasterMessage message;
  message.mutable_ping();
  return message.SerializeAsString();
}

std::string SerializeModelRequest(const ModelRequest& request) {
  proto::ReadModelRequest out;
  out.set_digest(request.digest);
  for (const ModelRange& range : request.ranges) {
    out.add_offsets(range.offset);
    out.add_sizes(range.size);
  }
  return out.SerializeAsString();
}

std::string ModelBytesHeader(size_t data_bytes) {
  constexpr uint8_t kDataTag = proto::ModelBytes::kDataFieldNumber << 3 | 2;  // length-delimited
  uint8_t buffer[16] = {kDataTag};
  const uint8_t* end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(data_bytes, buffer + 1);
  return std::string(reinterpret_cast<const char*>(buffer), end - buffer);
}

Result<Hello> ParseHello(std::string_view bytes, ProtocolVersion own) {
  proto::WorkerMessage in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "Hello", in));
  if (!in.has_hello()) {
    return absl::InvalidArgumentError("the first message of a worker must be its Hello");
  }
  const uint32_t major = in.hello().protocol_major(), minor = in.hello().protocol_minor();
  const uint32_t distance = std::max(minor, own.minor) - std::min(minor, own.minor);
  if (major != own.major || distance > 1) {
    return absl::FailedPreconditionError(
        StrCat("the worker speaks protocol ", major, ".", minor, " and the master ", own.major, ".",
               own.minor,
               "; the major version must be equal and the minor one at most 1 apart: "
               "use neighbouring versions of staffel on both"));
  }
  Numbers numbers;
  Hello hello = Read(in.hello(), numbers);
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return hello;
}

Result<std::optional<WorkerMessage>> ParseWorkerMessage(std::string_view bytes) {
  proto::WorkerMessage in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "WorkerMessage", in));
  Numbers numbers;
  std::optional<WorkerMessage> message;
  switch (in.body_case()) {
    case proto::WorkerMessage::kHello:
      return absl::InvalidArgumentError("a worker says Hello once only");
    case proto::WorkerMessage::kCapacity:
      message = Read(in.capacity(), numbers);
      break;
    case proto::WorkerMessage::kFormProgress:
      message = Read(in.form_progress(), numbers);
      break;
    case proto::WorkerMessage::kFormed:
      message = Read(in.formed(), numbers);
      break;
    case proto::WorkerMessage::kHeartbeat:
      message = Read(in.heartbeat(), numbers);
      break;
    case proto::WorkerMessage::kLeaving:
      message = Read(in.leaving(), numbers);
      break;
    case proto::WorkerMessage::kOutcome: {
      STAFFEL_ASSIGN_OR_RETURN(message, Read(in.outcome()));
      break;
    }
    case proto::WorkerMessage::BODY_NOT_SET:
      break;
  }
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return message;
}

Result<std::optional<MasterMessage>> ParseMasterMessage(std::string_view bytes) {
  proto::MasterMessage in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "MasterMessage", in));
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
      message = Release{Replica(in.release().replica(), numbers)};
      break;
    case proto::MasterMessage::kStep: {
      STAFFEL_ASSIGN_OR_RETURN(StepPlan plan, Read(in.step().plan()));
      message = Step{Replica(in.step().replica(), numbers), std::move(plan)};
      break;
    }
    case proto::MasterMessage::kPing:
    case proto::MasterMessage::BODY_NOT_SET:
      break;
  }
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return message;
}

Result<ModelRequest> ParseModelRequest(std::string_view bytes) {
  proto::ReadModelRequest in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "ReadModelRequest", in));
  Numbers numbers;
  ModelRequest request;
  request.digest = Text(in.digest(), "digest", kNameBytesMax, numbers);
  if (in.offsets_size() != in.sizes_size()) numbers.Refuse("offsets and sizes differ in number");
  TooMany(in.offsets_size(), MasterLink::kReadRangesMax, "ranges", numbers);
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  for (int i = 0; i < in.offsets_size(); ++i) {
    const ModelRange range{numbers.Count(in.offsets(i), "offset"),
                           numbers.Count(in.sizes(i), "size")};
    if (range.size > std::numeric_limits<int64_t>::max() - range.offset) {
      numbers.Refuse(
          StrCat("offset ", range.offset, " and size ", range.size, " are out of range"));
    }
    request.ranges.push_back(range);
  }
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return request;
}

Result<std::string> ParseModelBytes(std::string_view bytes) {
  proto::ModelBytes in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "ModelBytes", in));
  return std::move(*in.mutable_data());
}

}  // namespace staffel
