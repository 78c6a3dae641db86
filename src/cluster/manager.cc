#include "cluster/manager.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/strings.h"
#include "cluster/state.h"
#include "plan/placement.h"

namespace staffel::cluster {
namespace {

// Passes over placing after one event; more means that it does not come to rest.
constexpr int kPassesMax = 100;

Status CheckPool(const PoolConfig& pool) {
  auto refuse = [&](const std::string& text) {
    return absl::InvalidArgumentError(StrCat("model \"", pool.name, "\": ", text));
  };
  const Status layout = CheckLayout(pool.shape, pool.tensor_parallel, pool.pipeline_parallel);
  if (!layout.ok()) return refuse(std::string(layout.message()));
  if (pool.data_parallel < 0) {
    return refuse(StrCat("data parallel size ", pool.data_parallel, " must not be negative"));
  }
  if (pool.max_model_len <= 0 || pool.max_sequences <= 0 || pool.options.block_size <= 0) {
    return refuse(StrCat("--max-model-len ", pool.max_model_len, ", --max-num-seqs ",
                         pool.max_sequences, " and --block-size ", pool.options.block_size,
                         " must be positive"));
  }
  if (pool.kv_blocks < 0 || pool.kv_memory_bytes < 0) {
    return refuse(StrCat("--kv-blocks ", pool.kv_blocks, " and --kv-memory ", pool.kv_memory_bytes,
                         " must not be negative"));
  }
  return absl::OkStatus();
}

}  // namespace

Result<std::unique_ptr<Manager>> Manager::Create(Options options, std::vector<PoolConfig> pools) {
  if (pools.empty()) return absl::InvalidArgumentError("there is no model to serve");
  if (options.secret_key == Hash128{}) {
    return absl::InvalidArgumentError("the key that secrets are derived from must be random");
  }
  auto state = std::make_unique<State>();
  for (size_t i = 0; i < pools.size(); ++i) {
    STAFFEL_RETURN_IF_ERROR(CheckPool(pools[i]));
    for (int count = std::max(pools[i].data_parallel, 1); count > 0; --count) {
      Replica& replica = state->replicas.emplace_back();
      replica.id = ReplicaId(static_cast<int32_t>(state->replicas.size()) - 1);
      replica.pool = static_cast<int>(i);
      replica.reason = "waits for workers";
    }
  }
  state->options = std::move(options);
  state->pools = std::move(pools);
  return std::unique_ptr<Manager>(new Manager(std::move(state)));
}

Manager::Manager(std::unique_ptr<State> state) : state_(std::move(state)) {}
Manager::~Manager() = default;

Actions Manager::OnJoin(Time now, WorkerId worker, const Hello& hello,
                        const std::string& peer_address) {
  state_->now = now;
  state_->Join(worker, hello, peer_address);
  return state_->Settle();
}

Actions Manager::OnMessage(Time now, WorkerId worker, const WorkerMessage& message) {
  state_->now = now;
  const auto found = state_->workers.find(worker);
  if (found == state_->workers.end()) return {};
  std::visit([&](const auto& content) { state_->Hear(found->second, content); }, message);
  return state_->Settle();
}

Actions Manager::OnGone(Time now, const WorkerGone& gone) {
  state_->now = now;
  state_->Gone(gone.worker, gone.reason);
  return state_->Settle();
}

Actions Manager::OnStepFailed(Time now, ReplicaId replica, int epoch, int rank,
                              const Status& reason) {
  state_->now = now;
  STAFFEL_CHECK(replica.value >= 0 && replica.value < replica_count());
  Replica& failed = state_->replicas[replica.value];
  if (failed.serving() && failed.epoch == epoch) state_->StepFailed(failed, rank, reason);
  return state_->Settle();
}

Actions Manager::OnReplicaIdle(Time now, ReplicaId replica, bool idle) {
  state_->now = now;
  STAFFEL_CHECK(replica.value >= 0 && replica.value < replica_count());
  Replica& changed = state_->replicas[replica.value];
  if (changed.idle != idle && changed.improvable_since) state_->replace = true;
  changed.idle = idle;
  return state_->Settle();
}

Actions Manager::OnTick(Time now) {
  state_->now = now;
  return state_->Settle();
}

Time Manager::next_deadline() const { return state_->NextTimer(); }

int Manager::replica_count() const { return static_cast<int>(state_->replicas.size()); }

int Manager::pool_of(ReplicaId replica) const { return state_->replicas.at(replica.value).pool; }

Status Manager::Health(Time now, ReplicaId replica) const {
  const Replica& asked = state_->replicas.at(replica.value);
  if (asked.serving()) return absl::OkStatus();
  state_->now = now;
  return absl::UnavailableError(state_->WhyNot(asked));
}

std::string Manager::Degraded(Time now, ReplicaId replica) const {
  const Replica& asked = state_->replicas.at(replica.value);
  if (!asked.serving() || !asked.degraded) return "";
  state_->now = now;
  return StrCat(state_->NameOf(asked), " ", state_->WhyDegraded(asked));
}

Snapshot Manager::Describe(Time now) const {
  state_->now = now;
  return state_->Describe();
}

Actions State::Settle() {
  for (Replica& replica : replicas) CheckTimers(replica);
  for (int pass = 0; replace || place_at <= now; ++pass) {
    STAFFEL_CHECK_LT(pass, kPassesMax);
    Place();
    for (Replica& replica : replicas) GiveUpIfDue(replica);
  }
  return std::exchange(actions, {});
}

Time State::NextTimer() const {
  Time due = place_at;
  for (const Replica& replica : replicas) due = std::min(due, TimerOf(replica));
  return due;
}

void Manager::CheckInvariants() const {
  const State& s = *state_;
  for (const Replica& replica : s.replicas) {
    STAFFEL_CHECK_EQ(replica.waiting(), replica.members.empty());
    STAFFEL_CHECK_EQ(replica.members.size(), replica.placement.plan.ranks.size());
    for (size_t rank = 0; rank < replica.members.size(); ++rank) {
      const auto worker = s.workers.find(replica.members[rank]);
      STAFFEL_CHECK(worker != s.workers.end());
      STAFFEL_CHECK(worker->second.replica == replica.id);
      STAFFEL_CHECK_EQ(worker->second.rank, static_cast<int>(rank));
      STAFFEL_CHECK(worker->second.configured == replica.id);
      STAFFEL_CHECK(s.LabelsMatch(s.pool(replica), worker->second));
      if (replica.phase == Phase::kLoading) STAFFEL_CHECK(worker->second.capacity.has_value());
      if (replica.serving())
        STAFFEL_CHECK(worker->second.formed && worker->second.formed->status.ok());
    }
  }
  for (const auto& [id, worker] : s.workers) {
    STAFFEL_CHECK(worker.id == id);
    if (!worker.replica.valid()) continue;
    const Replica& replica = s.replicas[worker.replica.value];
    STAFFEL_CHECK(replica.members[worker.rank] == id);
  }
  STAFFEL_CHECK(s.actions.empty() && !s.replace);
}

}  // namespace staffel::cluster
