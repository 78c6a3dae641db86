#include "tests/sim/cluster/referee.h"

#include <algorithm>
#include <variant>

#include "base/strings.h"

namespace staffel::cluster::sim {
namespace {

// Attempts of one replica within ten seconds. Failures of workers back off; deaths and joins, which
// do not, are as frequent as the world makes them.
constexpr size_t kAttemptsMax = 60;

// An attempt that is under way when the wait is over may go on.
constexpr Duration kGiveUpSlack = std::chrono::seconds(10);

std::string CheckPlan(const PlacementPlan& plan, const ModelShape& model) {
  int layer = 0;
  for (const std::vector<int>& group : plan.tensor_groups) {
    int q = 0, ffn = 0;
    for (int rank : group) {
      const RankShard& shard = plan.ranks[rank];
      if (shard.rank != rank || shard.layers.begin != layer || shard.q_heads.begin != q ||
          shard.ffn.begin != ffn || shard.layers.size() < 1) {
        return StrCat("the shard of rank ", rank, " does not join its neighbour's");
      }
      q = shard.q_heads.end;
      ffn = shard.ffn.end;
    }
    layer = plan.ranks[group[0]].layers.end;
    if (q != model.q_heads || ffn != model.ffn) return "a layer is not covered";
  }
  return layer == model.layers ? "" : "layers are missing";
}

}  // namespace

Referee::Referee(const std::vector<PoolConfig>* pools, const Options* options)
    : pools_(pools), options_(options) {
  for (size_t pool = 0; pool < pools->size(); ++pool) {
    for (int i = 0; i < std::max((*pools)[pool].data_parallel, 1); ++i) {
      replicas_.emplace_back().pool = static_cast<int>(pool);
    }
  }
}

void Referee::Joined(WorkerId worker, const Hello& hello) {
  workers_[worker].labels = hello.labels;
}

void Referee::Said(Time now, WorkerId id, const WorkerMessage& message) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  WorkerBook& worker = found->second;
  auto current = [&](ReplicaId replica, int epoch) {
    return worker.replica.valid() && worker.replica == replica && worker.epoch == epoch;
  };
  if (const auto* capacity = std::get_if<Capacity>(&message)) {
    if (!current(capacity->replica, capacity->epoch)) return;
    if (!capacity->status.ok() && !worker.capacity) {
      replicas_[worker.replica.value].refused_at = now;
    } else if (capacity->status.ok()) {
      worker.capacity = true;
      worker.offer = *capacity;
    }
  } else if (const auto* formed = std::get_if<Formed>(&message)) {
    if (!current(formed->replica, formed->epoch) || !worker.form) return;
    ReplicaBook& replica = replicas_[worker.replica.value];
    if (formed->status.ok()) {
      worker.formed = true;
    } else if (!worker.formed && replica.blame_due == Time::max()) {
      replica.blame_due = now + options_->blame_wait + std::chrono::milliseconds(100);
    }
  } else if (std::holds_alternative<Leaving>(message)) {
    worker.leaving = true;
  }
}

void Referee::Gone(WorkerId worker) { workers_.erase(worker); }

std::string Referee::Judge(Time now, const Actions& actions) {
  if (actions.size() > 30 + 12 * workers_.size()) {
    return StrCat(actions.size(), " actions after one event");
  }
  for (const Action& action : actions) {
    std::string wrong = std::visit([&](const auto& it) { return Check(now, it); }, action);
    if (!wrong.empty()) return wrong;
  }
  return CheckRest(now);
}

std::string Referee::Check(Time now, const SendTo& send) {
  const auto found = workers_.find(send.worker);
  if (found == workers_.end())
    return StrCat("a message to worker ", send.worker.value, ", who is gone");
  WorkerBook& worker = found->second;
  if (const auto* configure = std::get_if<Configure>(&send.message)) {
    return CheckConfigure(now, send.worker, *configure);
  }
  if (const auto* form = std::get_if<Form>(&send.message)) return CheckForm(send.worker, *form);
  if (const auto* abort = std::get_if<Abort>(&send.message)) {
    if (worker.replica != abort->replica || worker.epoch != abort->epoch) {
      return "Abort of an epoch that the worker has no part in";
    }
    worker.replica = ReplicaId();
    return "";
  }
  if (std::holds_alternative<Release>(send.message)) {
    return worker.replica.valid() ? "Release of a rank of a live epoch" : "";
  }
  return "a message that is not the manager's to send";
}

std::string Referee::CheckConfigure(Time now, WorkerId id, const Configure& configure) {
  WorkerBook& worker = workers_.at(id);
  ReplicaBook& replica = replicas_[configure.replica.value];
  const PoolConfig& pool = (*pools_)[replica.pool];
  if (worker.replica.valid()) return "a worker is a rank of two epochs";
  if (worker.leaving) return "a leaving worker is configured";
  for (const auto& [key, value] : pool.labels) {
    const auto own = worker.labels.find(key);
    if (own == worker.labels.end() || own->second != value) return "labels do not match";
  }
  if (replica.serving) return "Configure while serving";
  if (configure.rank == 0) {
    if (configure.plan.epoch <= replica.epoch) return "the epoch does not rise";
    replica.epoch = configure.plan.epoch;
    replica.workers.clear();
    replica.plan = configure.plan;
    replica.blame_due = Time::max();
    if (now < replica.refused_at + options_->retry_min) return "no pause after a refusal";
    replica.attempts.push_back(now);
    while (replica.attempts.front() < now - std::chrono::seconds(10)) replica.attempts.pop_front();
    if (replica.attempts.size() > kAttemptsMax) return "attempts follow each other without a pause";
    std::string wrong = CheckPlan(configure.plan, pool.shape);
    if (!wrong.empty()) return wrong;
  }
  if (configure.plan.epoch != replica.epoch ||
      configure.rank != static_cast<int>(replica.workers.size())) {
    return "ranks of one epoch are not configured in order";
  }
  replica.workers.push_back(id);
  worker = {worker.labels, configure.replica, configure.plan.epoch, configure.rank};
  return "";
}

std::string Referee::CheckForm(WorkerId id, const Form& form) {
  WorkerBook& worker = workers_.at(id);
  ReplicaBook& replica = replicas_[form.replica.value];
  if (worker.replica != form.replica || worker.epoch != form.epoch) return "Form to a stranger";
  if (replica.workers.size() != replica.plan.ranks.size()) return "Form before every Configure";
  if (form.addresses.size() != replica.workers.size() || form.block_count < 1 ||
      form.secret.size() < 32) {
    return "Form is incomplete";
  }
  for (size_t rank = 0; rank < replica.workers.size(); ++rank) {
    const auto member = workers_.find(replica.workers[rank]);
    if (member == workers_.end() || !member->second.capacity) return "Form before every Capacity";
    const Capacity& offer = member->second.offer;
    if (form.block_count * offer.kv_bytes_per_block > offer.memory_bytes) {
      return "more blocks than a rank has memory for";
    }
    if (form.addresses[rank] != StrCat("comm-", member->first.value)) return "a wrong address";
  }
  worker.form = true;
  return "";
}

std::string Referee::Check(Time, const Disconnect& disconnect) {
  if (workers_.erase(disconnect.worker) == 0) return "Disconnect of a worker that is gone";
  return disconnect.reason.ok() ? "Disconnect without a reason" : "";
}

std::string Referee::Check(Time, const ReplicaServing& serving) {
  ReplicaBook& replica = replicas_[serving.replica.value];
  if (replica.serving) return "serves twice";
  if (serving.epoch != replica.epoch || serving.workers != replica.workers) {
    return "serves with others than it formed with";
  }
  for (WorkerId id : serving.workers) {
    const auto member = workers_.find(id);
    if (member == workers_.end()) return "serves with a worker that is gone";
    if (!member->second.formed) return "serves before every Formed";
  }
  replica.serving = replica.has_served = true;
  replica.loss_open = false;
  return "";
}

std::string Referee::Check(Time now, const ReplicaLost& lost) {
  ReplicaBook& replica = replicas_[lost.replica.value];
  if (!replica.serving || lost.epoch != replica.epoch) return "lost without serving";
  if (lost.reason.message().size() < 10) return "lost without a reason";
  replica.serving = false;
  replica.loss_open = true;
  replica.lost_at = now;
  return "";
}

std::string Referee::Check(Time now, const ReplicaGaveUp& gave_up) {
  ReplicaBook& replica = replicas_[gave_up.replica.value];
  if (!replica.loss_open) return "gave up twice, or what was not lost";
  if (now < replica.lost_at + options_->worker_wait) return "gave up too soon";
  replica.loss_open = false;
  return "";
}

std::string Referee::Check(Time, const Log& log) {
  return log.text.empty() || log.text.size() > 2000 ? "a log line of odd size" : "";
}

std::string Referee::CheckRest(Time now) {
  for (const ReplicaBook& replica : replicas_) {
    const bool attempting = std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
      const ReplicaId in = worker.second.replica;
      return in.valid() && &replicas_[in.value] == &replica;
    });
    if (attempting && !replica.serving && now > replica.blame_due) {
      return "an attempt goes on although a rank could not form";
    }
    if (replica.loss_open && now > replica.lost_at + options_->worker_wait + kGiveUpSlack) {
      return "a lost replica is not given up";
    }
    if (!replica.serving) continue;
    for (WorkerId id : replica.workers) {
      const auto member = workers_.find(id);
      if (member == workers_.end()) return "serves on although a worker is gone";
      if (!member->second.replica.valid() || member->second.epoch != replica.epoch) {
        return "serves on with a worker that was aborted";
      }
    }
  }
  for (const auto& [id, worker] : workers_) {
    if (!worker.replica.valid()) continue;
    if (replicas_[worker.replica.value].epoch != worker.epoch) {
      return "a worker was left in an old epoch";
    }
  }
  return "";
}

}  // namespace staffel::cluster::sim
