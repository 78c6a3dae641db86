// Sentences and the snapshot.
#include <algorithm>

#include "base/strings.h"
#include "cluster/state.h"

namespace staffel::cluster {
namespace {

constexpr int kSetAsideNamed = 3;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

int64_t Milliseconds(Duration duration) {
  return std::chrono::round<std::chrono::milliseconds>(duration).count();
}

double LoadShare(const State& state, const Replica& replica) {
  if (replica.waiting()) return 0;
  double share = 1;
  for (WorkerId member : replica.members) {
    share = std::min(share, state.workers.at(member).load_share);
  }
  return share;
}

}  // namespace

const char* Name(ReplicaState state) {
  switch (state) {
    case ReplicaState::kWaiting:
      return "waiting";
    case ReplicaState::kConfiguring:
      return "configuring";
    case ReplicaState::kLoading:
      return "loading";
    case ReplicaState::kServing:
      return "serving";
    case ReplicaState::kLost:
      return "lost";
  }
  return "";
}

const char* Name(WorkerState state) {
  switch (state) {
    case WorkerState::kSpare:
      return "spare";
    case WorkerState::kConfiguring:
      return "configuring";
    case WorkerState::kForming:
      return "forming";
    case WorkerState::kServing:
      return "serving";
    case WorkerState::kLeaving:
      return "leaving";
    case WorkerState::kSetAside:
      return "set aside";
  }
  return "";
}

std::string State::NameOf(const Replica& replica) const {
  int index = replica.id.value;
  while (index > 0 && replicas[index - 1].pool == replica.pool) --index;
  return StrCat("model \"", pool(replica).name, "\" replica ", replica.id.value - index);
}

std::string State::Describe(const Worker& worker) const {
  return StrCat("worker \"", worker.hello.name, "\" on host \"", worker.hello.host, "\"");
}

std::string State::DescribeRank(const Worker& worker) const {
  return StrCat("rank ", worker.rank, ", ", Describe(worker), ",");
}

std::string State::LastHeard(const Worker& worker) const {
  if (worker.heartbeat_at == Time{}) return "";
  return StrCat("; it had finished collective ", worker.heartbeat.collective, " and step ",
                worker.heartbeat.step, " when last heard of, ",
                Milliseconds(now - worker.heartbeat_at), " ms ago");
}

std::string State::DescribeSetAside(int pool_index) const {
  std::string text;
  int count = 0;
  for (const auto& [id, worker] : workers) {
    if (worker.leaving || Eligible(worker) || !LabelsMatch(pools[pool_index], worker)) continue;
    if (++count > kSetAsideNamed) continue;
    StrAppend(text, "; ", Describe(worker),
              " is set aside: ", std::string(records.at(worker.hello.name).reason.message()));
  }
  if (count > kSetAsideNamed) StrAppend(text, "; and ", count - kSetAsideNamed, " more");
  return text;
}

std::string State::WhyNot(const Replica& replica) const {
  std::string text = StrCat(NameOf(replica), " ");
  switch (replica.phase) {
    case Phase::kWaiting:
      StrAppend(text, "does not serve: ", replica.reason);
      if (replica.retry_at > now) {
        StrAppend(text, "; next attempt in ", Milliseconds(replica.retry_at - now), " ms");
      }
      break;
    case Phase::kConfiguring:
      StrAppend(text, "is being placed on ", replica.members.size(), " workers");
      break;
    case Phase::kLoading:
      StrAppend(text, "is loading on ", replica.members.size(), " workers, ",
                static_cast<int>(100 * LoadShare(*this, replica)), " % done");
      break;
    case Phase::kServing:
      StrAppend(text, "serves");
      break;
  }
  if (replica.loss_open && replica.reason != replica.loss_reason) {
    StrAppend(text, " (after: ", replica.loss_reason, ")");
  }
  return text;
}

std::string State::WhyDegraded(const Replica& replica) const {
  return StrCat("runs on fewer workers than asked for: ", replica.degraded_why);
}

namespace {

WorkerStatus StatusOf(const State& state, const Worker& worker) {
  WorkerStatus status{.worker = worker.id,
                      .name = worker.hello.name,
                      .host = worker.hello.host,
                      .machine = worker.hello.machine,
                      .address = worker.address,
                      .build = worker.hello.build,
                      .labels = worker.hello.labels,
                      .replica = worker.replica,
                      .rank = worker.replica.valid() ? worker.rank : -1,
                      .memory_bytes = state.MemoryFor(worker, worker.replica),
                      .speed = worker.hello.devices[0].speed};
  if (worker.leaving) {
    status.state = WorkerState::kLeaving;
  } else if (worker.replica.valid()) {
    const Replica& replica = state.replicas[worker.replica.value];
    status.state = replica.serving()                  ? WorkerState::kServing
                   : replica.phase == Phase::kLoading ? WorkerState::kForming
                                                      : WorkerState::kConfiguring;
  } else if (!state.Eligible(worker)) {
    const Record& record = state.records.at(worker.hello.name);
    status.state = WorkerState::kSetAside;
    status.reason = record.reason;
    status.set_aside_s = Seconds(record.set_aside_until - state.now);
  }
  return status;
}

RankStatus RankOf(const State& state, const Replica& replica, size_t rank) {
  const Worker& worker = state.workers.at(replica.members[rank]);
  RankStatus status{.worker = worker.id,
                    .name = worker.hello.name,
                    .host = worker.hello.host,
                    .machine = worker.hello.machine,
                    .address = worker.address,
                    .shard = replica.placement.plan.ranks[rank],
                    .load_share = worker.load_share,
                    .heartbeat = worker.heartbeat};
  if (worker.capacity) {
    status.data_address = worker.capacity->comm_address;
    status.weight_bytes = worker.capacity->weight_bytes;
    status.kv_bytes_per_block = worker.capacity->kv_bytes_per_block;
  }
  if (worker.formed) {
    status.bytes_read = worker.formed->bytes_read;
    status.bytes_fetched = worker.formed->bytes_fetched;
    status.load_s = worker.formed->load_s;
    status.form_s = worker.formed->form_s;
    status.weights_kept = worker.formed->weights_kept;
  }
  if (worker.heartbeat_at != Time{}) {
    status.heartbeat_age_s = Seconds(state.now - worker.heartbeat_at);
  }
  return status;
}

ReplicaStatus StatusOf(const State& state, const Replica& replica) {
  ReplicaStatus status{.replica = replica.id,
                       .epoch = replica.epoch,
                       .state_age_s = Seconds(state.now - replica.phase_since),
                       .load_share = LoadShare(state, replica),
                       .tensor_parallel = TensorParallel(replica.placement.plan),
                       .pipeline_parallel = PipelineParallel(replica.placement.plan),
                       .degraded = !replica.waiting() && replica.degraded,
                       .block_count = replica.block_count,
                       .losses = replica.losses,
                       .planned_changes = replica.planned_changes};
  switch (replica.phase) {
    case Phase::kWaiting:
      status.state = replica.loss_open ? ReplicaState::kLost : ReplicaState::kWaiting;
      break;
    case Phase::kConfiguring:
      status.state = ReplicaState::kConfiguring;
      break;
    case Phase::kLoading:
      status.state = ReplicaState::kLoading;
      break;
    case Phase::kServing:
      status.state = ReplicaState::kServing;
      break;
  }
  if (!replica.serving()) {
    status.reason = state.WhyNot(replica);
  } else if (!replica.reason.empty()) {
    status.reason = replica.reason;
  } else if (replica.degraded) {
    status.reason = state.WhyDegraded(replica);
  } else if (replica.improvable_since) {
    status.reason = "will change to a better layout when idle";
  }
  for (size_t rank = 0; rank < replica.members.size(); ++rank) {
    status.ranks.push_back(RankOf(state, replica, rank));
  }
  return status;
}

}  // namespace

Snapshot State::Describe() const {
  Snapshot snapshot;
  for (const PoolConfig& pool : pools) {
    snapshot.pools.push_back({.name = pool.name,
                              .tensor_parallel = pool.tensor_parallel,
                              .pipeline_parallel = pool.pipeline_parallel,
                              .labels = pool.labels});
  }
  for (const Replica& replica : replicas) {
    snapshot.pools[replica.pool].replicas.push_back(StatusOf(*this, replica));
  }
  std::vector<const Worker*> order;
  for (const auto& [id, worker] : workers) order.push_back(&worker);
  std::sort(order.begin(), order.end(),
            [](const Worker* a, const Worker* b) { return a->join_order < b->join_order; });
  for (const Worker* worker : order) snapshot.workers.push_back(StatusOf(*this, *worker));
  for (const auto& [name, record] : records) {
    const bool connected = std::any_of(order.begin(), order.end(), [&](const Worker* worker) {
      return worker->hello.name == name;
    });
    if (connected || record.set_aside_until <= now) continue;
    snapshot.absent.push_back({.name = name,
                               .state = WorkerState::kSetAside,
                               .reason = record.reason,
                               .set_aside_s = Seconds(record.set_aside_until - now)});
  }
  for (const auto& [key, link] : links) {
    snapshot.links.push_back({.workers = link.workers,
                              .hosts = link.hosts,
                              .reason = link.reason,
                              .age_s = Seconds(now - link.broken_at),
                              .avoided_s = std::max(0.0, Seconds(link.avoid_until - now)),
                              .failures = link.total});
  }
  return snapshot;
}

}  // namespace staffel::cluster
