#include "transport/proto/cluster_messages.h"

#include <utility>

#include "base/strings.h"
#include "transport/proto/numbers.h"
#include "transport/proto/step_messages.h"

namespace staffel {
namespace {

constexpr int kListMax = 256;  // devices and labels of a worker
constexpr double kSpeedMax = 1e9;
constexpr double kSecondsMax = 1e9;  // 30 years: what is above is no time of a process

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
  capacity.replica = numbers.Replica(in.replica());
  capacity.epoch = numbers.Int(in.epoch(), "epoch");
  capacity.status = ReadStatus(in.status());
  capacity.kv_bytes_per_block = numbers.Count(in.kv_bytes_per_block(), "kv_bytes_per_block");
  capacity.weight_bytes = numbers.Count(in.weight_bytes(), "weight_bytes");
  capacity.memory_bytes = numbers.Count(in.memory_bytes(), "memory_bytes");
  capacity.comm_address = numbers.Text(in.comm_address(), "comm_address", kTextBytesMax);
  return capacity;
}

void Write(const FormProgress& progress, proto::WorkerMessage& message) {
  proto::FormProgress& out = *message.mutable_form_progress();
  out.set_replica(progress.replica.value);
  out.set_epoch(progress.epoch);
  out.set_share(progress.share);
}

FormProgress Read(const proto::FormProgress& in, Numbers& numbers) {
  return {numbers.Replica(in.replica()), numbers.Int(in.epoch(), "epoch"),
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
  formed.replica = numbers.Replica(in.replica());
  formed.epoch = numbers.Int(in.epoch(), "epoch");
  formed.status = ReadStatus(in.status());
  formed.bytes_read = numbers.Count(in.bytes_read(), "bytes_read");
  formed.bytes_fetched = numbers.Count(in.bytes_fetched(), "bytes_fetched");
  formed.load_s = numbers.Real(in.load_s(), "load_s", kSecondsMax);
  formed.form_s = numbers.Real(in.form_s(), "form_s", kSecondsMax);
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
  out.set_running_step(heartbeat.running_step);
  out.set_waiting_for(heartbeat.waiting_for + 1);
  out.set_waiting_s(heartbeat.waiting_s);
}

Heartbeat Read(const proto::Heartbeat& in, Numbers& numbers) {
  Heartbeat heartbeat;
  heartbeat.replica = ReplicaId(numbers.IntOrNone(in.replica(), "replica"));
  heartbeat.epoch = numbers.Int(in.epoch(), "epoch");
  heartbeat.step = in.step();
  heartbeat.collective = in.collective();
  heartbeat.in_step = in.in_step();
  heartbeat.in_step_s = numbers.Real(in.in_step_s(), "in_step_s", kSecondsMax);
  heartbeat.compute_s = numbers.Real(in.compute_s(), "compute_s", kSecondsMax);
  heartbeat.wait_s = numbers.Real(in.wait_s(), "wait_s", kSecondsMax);
  heartbeat.wire_s = numbers.Real(in.wire_s(), "wire_s", kSecondsMax);
  heartbeat.bytes_sent = numbers.Count(in.bytes_sent(), "bytes_sent");
  heartbeat.bytes_received = numbers.Count(in.bytes_received(), "bytes_received");
  heartbeat.resident_bytes = numbers.Count(in.resident_bytes(), "resident_bytes");
  heartbeat.running_step = in.running_step();
  heartbeat.waiting_for = numbers.Int(in.waiting_for(), "waiting_for") - 1;
  heartbeat.waiting_s = numbers.Real(in.waiting_s(), "waiting_s");
  return heartbeat;
}

void Write(const Leaving& leaving, proto::WorkerMessage& message) {
  proto::Leaving& out = *message.mutable_leaving();
  out.set_reason(leaving.reason);
  out.set_grace_s(leaving.grace_s);
}

Leaving Read(const proto::Leaving& in, Numbers& numbers) {
  return {numbers.Text(in.reason(), "reason", kTextBytesMax),
          numbers.Real(in.grace_s(), "grace_s", kSecondsMax)};
}

void Write(const StepOutcome& outcome, proto::WorkerMessage& message) {
  Write(outcome, *message.mutable_outcome());
}

}  // namespace

void WriteHello(const Hello& hello, proto::Hello& out) {
  out.set_protocol_major(hello.protocol.major);
  out.set_protocol_minor(hello.protocol.minor);
  out.set_build(hello.build);
  out.set_name(hello.name);
  out.set_host(hello.host);
  out.set_machine(hello.machine);
  out.set_memory_pool(hello.memory_pool);
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

Result<Hello> ReadHello(const proto::Hello& in) {
  Numbers numbers;
  Hello hello;
  hello.protocol = {in.protocol_major(), in.protocol_minor()};
  hello.build = numbers.Text(in.build(), "build", kNameBytesMax);
  hello.name = numbers.Text(in.name(), "the worker's name", kNameBytesMax);
  if (hello.name.empty()) numbers.Refuse("the worker's name is empty");
  hello.host = numbers.Text(in.host(), "the host's name", kNameBytesMax);
  hello.machine = numbers.Text(in.machine(), "machine", kNameBytesMax);
  hello.memory_pool = numbers.Text(in.memory_pool(), "memory_pool", kNameBytesMax);
  if (in.devices_size() == 0) numbers.Refuse("the worker has no device");
  if (numbers.TooMany(in.devices_size(), kListMax, "devices")) return numbers.status();
  for (const proto::Device& device : in.devices()) {
    DeviceShape& added = hello.devices.emplace_back();
    added.device.kind = numbers.Text(device.kind(), "kind of device", kNameBytesMax);
    added.device.index = numbers.Int(device.index(), "index of device");
    added.host = numbers.Text(device.host(), "host of device", kNameBytesMax);
    added.memory_bytes = numbers.Count(device.memory_bytes(), "memory_bytes");
    added.speed = numbers.Real(device.speed(), "speed", kSpeedMax);
    if (added.speed == 0) numbers.Refuse("the speed of a device is 0");
  }
  if (numbers.TooMany(in.labels_size(), kListMax, "labels")) return numbers.status();
  for (const proto::Label& label : in.labels()) {
    hello.labels[numbers.Text(label.key(), "label", kNameBytesMax)] =
        numbers.Text(label.value(), "value of label", kNameBytesMax);
  }
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return hello;
}

void WriteWorkerMessage(const WorkerMessage& message, proto::WorkerMessage& out) {
  std::visit([&](const auto& body) { Write(body, out); }, message);
}

Result<std::optional<WorkerMessage>> ReadWorkerMessage(const proto::WorkerMessage& in) {
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

}  // namespace staffel
