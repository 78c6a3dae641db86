// Workers come, speak and go.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/strings.h"
#include "cluster/state.h"

namespace staffel::cluster {
namespace {

// Records of names that nobody bears any more are dropped beyond this many.
constexpr size_t kRecordsMax = 1000;

bool Finite(double value) { return std::isfinite(value); }

// What a worker says of itself is not to be trusted with arithmetic.
Hello Sanitised(Hello hello) {
  if (hello.devices.empty()) hello.devices.emplace_back();
  for (DeviceShape& device : hello.devices) {
    if (!Finite(device.speed) || device.speed <= 0) device.speed = 1;
    device.speed = std::clamp(device.speed, 1e-3, 1e3);
    device.memory_bytes = std::max<int64_t>(device.memory_bytes, 0);
    device.host = hello.host;
  }
  if (hello.machine.empty()) hello.machine = StrCat("host ", hello.host);
  return hello;
}

}  // namespace

Duration Backoff(Duration min, Duration max, int failures) {
  if (failures <= 0) return Duration::zero();
  Duration delay = min;
  for (int i = 1; i < failures && delay < max; ++i) delay *= 2;
  return std::min(delay, max);
}

bool IsBetweenRanks(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsCancelled(status);
}

size_t State::LeaveOutBlamed(std::vector<Candidate>& candidates) const {
  const auto blame = [&](const Candidate& candidate) {
    const auto record = records.find(candidate.name);
    return record == records.end()
               ? std::pair(0, Time{})
               : std::pair(record->second.failures, record->second.set_aside_until);
  };
  int least = std::numeric_limits<int>::max();
  Time last{};
  for (const Candidate& candidate : candidates) {
    least = std::min(least, blame(candidate).first);
    last = std::max(last, blame(candidate).second);
  }
  const size_t count = std::erase_if(
      candidates, [&](const Candidate& candidate) { return blame(candidate).first > least; });
  if (count > 0 || least == 0) return count;
  return std::erase_if(candidates,
                       [&](const Candidate& candidate) { return blame(candidate).second == last; });
}

bool State::Eligible(const Worker& worker) const {
  const auto record = records.find(worker.hello.name);
  return (!worker.leaving || IsMutant(Mutant::kUseLeavers)) &&
         (record == records.end() || record->second.set_aside_until <= now);
}

Replica* State::ReplicaOf(const Worker& worker) {
  return worker.replica.valid() ? &replicas[worker.replica.value] : nullptr;
}

bool State::LabelsMatch(const PoolConfig& pool, const Worker& worker) const {
  if (IsMutant(Mutant::kIgnoreLabels)) return true;
  return std::all_of(pool.labels.begin(), pool.labels.end(), [&](const auto& label) {
    const auto own = worker.hello.labels.find(label.first);
    return own != worker.hello.labels.end() && own->second == label.second;
  });
}

// Who comes later sees what others have taken as missing: the most that was told is all there is.
void State::NoteMemory(const Hello& hello) {
  if (hello.memory_pool.empty()) return;
  std::erase_if(memory_pools, [&](const auto& pool) {
    return std::none_of(workers.begin(), workers.end(), [&](const auto& worker) {
      return worker.second.hello.memory_pool == pool.first;
    });
  });
  int64_t& total = memory_pools[hello.memory_pool];
  if (!hello.devices.empty()) total = std::max(total, hello.devices[0].memory_bytes);
}

int64_t State::ReservedBytes(const Worker& rank) const {
  const Replica& replica = replicas[rank.replica.value];
  if (replica.block_count == 0 || !rank.capacity) return rank.granted_bytes;
  const Capacity& capacity = *rank.capacity;
  return std::min(rank.granted_bytes,
                  capacity.weight_bytes + replica.block_count * capacity.kv_bytes_per_block);
}

int64_t State::MemoryFor(const Worker& worker, ReplicaId replica) const {
  const std::string& pool = worker.hello.memory_pool;
  if (pool.empty() || worker.memory_bytes == 0 || IsMutant(Mutant::kPromiseTwice)) {
    return worker.memory_bytes;
  }
  int64_t left = memory_pools.at(pool), count = 0;
  for (const auto& [id, other] : workers) {
    if (other.hello.memory_pool != pool) continue;
    if (other.replica.valid() && other.replica != replica) {
      left -= ReservedBytes(other);
    } else if (!other.leaving) {
      ++count;
    }
  }
  return std::min(worker.memory_bytes, std::max<int64_t>(left / std::max<int64_t>(count, 1), 1));
}

void State::Join(WorkerId id, const Hello& hello, const std::string& address) {
  STAFFEL_CHECK(workers.find(id) == workers.end()) << "worker " << id << " joins twice";
  for (const auto& [other_id, other] : workers) {
    if (other.hello.name != hello.name) continue;
    Expel(other_id, absl::AlreadyExistsError(StrCat("another worker named \"", hello.name,
                                                    "\" has joined from ", address,
                                                    "; give each worker a --name of its own")));
    break;
  }
  if (records.size() > kRecordsMax) {
    std::erase_if(records, [&](const auto& record) {
      return record.second.set_aside_until <= now &&
             std::none_of(workers.begin(), workers.end(), [&](const auto& worker) {
               return worker.second.hello.name == record.first;
             });
    });
  }
  NoteMemory(hello);
  Worker& worker = workers[id];
  worker.id = id;
  worker.hello = Sanitised(hello);
  if (!hello.memory_pool.empty()) {
    worker.hello.devices[0].memory_bytes = memory_pools.at(hello.memory_pool);
  }
  worker.address = address;
  worker.join_order = join_count++;
  worker.memory_bytes = worker.hello.devices[0].memory_bytes;
  worker.heard_at = now;
  joined_at = now;
  replace = true;
  std::string text = StrCat(Describe(worker), " has joined from ", address);
  const Record& record = RecordOf(worker);
  if (Eligible(worker)) {
    // Another shape of the cluster: what did not fit may fit now.
    for (auto& [other_id, other] : workers) {
      Record& other_record = RecordOf(other);
      if (absl::IsResourceExhausted(other_record.reason)) other_record.set_aside_until = now;
    }
  } else {
    StrAppend(text, "; it is set aside for ",
              std::chrono::ceil<std::chrono::seconds>(record.set_aside_until - now).count(),
              " s: ", std::string(record.reason.message()));
  }
  Say(LogLevel::kInfo, std::move(text));
}

void State::Gone(WorkerId id, const Status& reason) {
  const auto found = workers.find(id);
  if (found == workers.end()) return;
  Worker& worker = found->second;
  replace = true;
  Say(worker.leaving ? LogLevel::kInfo : LogLevel::kWarning,
      StrCat(Describe(worker), " is gone: ", std::string(reason.message())));
  if (Replica* replica = ReplicaOf(worker);
      replica != nullptr && !(IsMutant(Mutant::kOverlookLoss) && replica->serving())) {
    const std::string text = StrCat(DescribeRank(worker),
                                    " is lost: ", std::string(reason.message()), LastHeard(worker));
    Record& record = RecordOf(worker);
    if (!worker.leaving) {
      record.losses = now - record.lost_at > options.losses_window ? 1 : record.losses + 1;
      record.lost_at = now;
      if (record.losses > options.losses_free) {
        record.reason = absl::UnavailableError(StrCat(
            "lost ", record.losses, " times in a row, at last: ", std::string(reason.message())));
        record.set_aside_until = now + Backoff(options.set_aside_min, options.set_aside_max,
                                               record.losses - options.losses_free);
      }
    }
    // Nobody else is to hear of it: the connection is gone.
    replica->members[worker.rank] = WorkerId();
    worker.replica = ReplicaId();
    if (replica->serving()) {
      EndServing(*replica, absl::UnavailableError(text), /*planned=*/false);
    } else {
      FailAttempt(*replica, text, /*counts=*/false);
    }
  }
  workers.erase(found);
}

void State::Expel(WorkerId id, const Status& reason) {
  actions.push_back(Disconnect{id, reason});
  Gone(id, reason);
}

void State::SetAside(const Worker& worker, const Status& reason) {
  Record& record = RecordOf(worker);
  ++record.failures;
  record.reason = reason;
  record.set_aside_until =
      now + Backoff(options.set_aside_min, options.set_aside_max, record.failures);
  replace = true;
  Say(LogLevel::kWarning,
      StrCat(Describe(worker), " is set aside for ",
             std::chrono::ceil<std::chrono::seconds>(record.set_aside_until - now).count(),
             " s: ", std::string(reason.message())));
}

void State::Hear(Worker& worker, const Capacity& capacity) {
  Replica* replica = ReplicaOf(worker);
  if (replica == nullptr || replica->phase != Phase::kConfiguring || worker.capacity ||
      capacity.replica != replica->id ||
      (capacity.epoch != replica->epoch && !IsMutant(Mutant::kAcceptOldEpoch))) {
    return;
  }
  Status status = capacity.status;
  if (status.ok() && (capacity.kv_bytes_per_block <= 0 || capacity.weight_bytes < 0 ||
                      capacity.comm_address.empty())) {
    status = absl::InternalError(StrCat(
        "its Capacity makes no sense: ", capacity.kv_bytes_per_block, " bytes for a KV block, ",
        capacity.weight_bytes, " bytes of weights, address \"", capacity.comm_address, "\""));
  }
  if (!status.ok()) {
    SetAside(worker, status);
    FailAttempt(
        *replica,
        StrCat(DescribeRank(worker), " cannot take its shard: ", std::string(status.message())),
        /*counts=*/true);
    return;
  }
  worker.capacity = capacity;
  const bool all =
      IsMutant(Mutant::kFormEarly) ||
      std::all_of(replica->members.begin(), replica->members.end(),
                  [&](WorkerId member) { return workers.at(member).capacity.has_value(); });
  if (all) StartForming(*replica);
}

void State::Hear(Worker& worker, const FormProgress& progress) {
  Replica* replica = ReplicaOf(worker);
  if (replica == nullptr || replica->phase != Phase::kLoading || progress.replica != replica->id ||
      progress.epoch != replica->epoch || !(progress.share > worker.load_share)) {
    return;
  }
  worker.load_share = std::min(progress.share, 1.0);
  replica->progress_at = now;
}

void State::Hear(Worker& worker, const Formed& formed) {
  Replica* replica = ReplicaOf(worker);
  if (replica == nullptr || replica->phase != Phase::kLoading || worker.formed ||
      formed.replica != replica->id || formed.epoch != replica->epoch) {
    return;
  }
  worker.formed = formed;
  if (formed.status.ok()) {
    worker.load_share = 1;
    replica->progress_at = now;
  }
  CheckFormed(*replica);
}

void State::Hear(Worker& worker, const Heartbeat& heartbeat) {
  worker.heard_at = now;
  const Replica* replica = ReplicaOf(worker);
  if (replica == nullptr || heartbeat.replica != replica->id || heartbeat.epoch != replica->epoch) {
    return;
  }
  const Heartbeat& last = worker.heartbeat;
  if (worker.heartbeat_at == Time{} || last.step != heartbeat.step ||
      last.collective != heartbeat.collective || last.in_step != heartbeat.in_step) {
    worker.progress_at = now;
  }
  NoteWaiting(worker, heartbeat);
  worker.heartbeat = heartbeat;
  worker.heartbeat_at = worker.agreed_at = now;
}

void State::Hear(Worker& worker, const StepOutcome& outcome) {
  if (outcome.status.ok() || IsBetweenRanks(outcome.status)) return;
  for (const Replica& replica : replicas) {
    if (!replica.waiting() || replica.epoch != outcome.epoch || replica.retry_at <= now) continue;
    if (std::count(replica.former.begin(), replica.former.end(), worker.id) == 0) continue;
    Blame(worker.id, outcome.status);
    return;
  }
}

void State::Hear(Worker& worker, const Leaving& leaving) {
  if (worker.leaving) return;
  worker.leaving = true;
  worker.leaving_grace_s = Finite(leaving.grace_s) ? std::clamp(leaving.grace_s, 0.0, 86400.0) : 0;
  replace = true;
  Say(LogLevel::kInfo, StrCat(Describe(worker), " is about to leave: ", leaving.reason));
  Replica* replica = ReplicaOf(worker);
  // Of a replica that has served, requests may wait: placing decides whether others can take over.
  if (replica != nullptr && replica->attempting() && !replica->has_served) {
    FailAttempt(*replica, StrCat(DescribeRank(worker), " is about to leave"), /*counts=*/false);
  }
}

void State::ReleaseLeavers() {
  for (auto& [id, worker] : workers) {
    if (!worker.leaving || worker.released || worker.replica.valid()) continue;
    worker.released = true;
    if (!IsMutant(Mutant::kForgetRelease)) LetGo(worker);
  }
}

}  // namespace staffel::cluster
