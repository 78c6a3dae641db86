// What goes wrong in a world, and what must follow from it.
#include "tests/sim/cluster/world_state.h"

namespace staffel::cluster::sim {
namespace {

// More than one rank alone needs for the model.
int64_t EasilyNeeded(const PoolConfig& pool) {
  RankShard whole;
  whole.layers = {0, pool.shape.layers};
  whole.q_heads = {0, pool.shape.q_heads};
  whole.kv_heads = {0, pool.shape.kv_heads};
  whole.ffn = {0, pool.shape.ffn};
  whole.vocab = {0, pool.shape.vocab};
  return 2 * (WeightBytes(pool.shape, whole) + pool.kv_memory_bytes +
              KvBytes(pool.shape, whole, 64 * pool.max_model_len));
}

}  // namespace

void World::Trouble() {
  if (calm()) return;
  In(Between(milliseconds(50), seconds(3)), [this] { Trouble(); });
  const int index = Pick(0, static_cast<int>(slots_.size()) - 1);
  Slot& slot = slots_[index];
  switch (Pick(0, 9)) {
    case 0:
    case 1:
      if (slot.alive) {
        Kill(index, Chance(10) ? Duration(-1) : Between(milliseconds(100), seconds(8)));
      }
      break;
    case 2:  // stopped, or its link is cut: silence, then it comes back as it was
      if (!slot.connected) break;
      Trace(StrCat("silence of ", slot.name));
      Cut(index, kDeadAfter, "no heartbeat for 1 s");
      In(kDeadAfter + Between(milliseconds(1), seconds(5)), [this, index] {
        if (slots_[index].alive && !slots_[index].connected) Connect(index);
      });
      break;
    case 3:
      if (!slot.connected || slot.leaving) break;
      Count("leaves");
      slot.leaving = true;
      Tell(slot, Leaving{"SIGTERM", 5});
      In(seconds(5), [this, index, id = slot.id] {
        Slot& leaver = slots_[index];
        if (!leaver.leaving || leaver.id != id) return;
        if (leaver.connected && leaver.left_epoch_at + seconds(1) < now_ &&
            !leaver.replica.valid()) {
          Fail("a leaver that has nothing to do is not let go");
        }
        if (leaver.connected && CanDoWithout(leaver)) Fail("a leaver is kept without need");
        Kill(index, seconds(1));
      });
      break;
    case 4:
      FailStep();
      break;
    case 5:
      StallRanks();
      break;
    case 6:
      slot.mood =
          Chance(50) ? Mood::kGood : static_cast<Mood>(Pick(0, static_cast<int>(Mood::kEnd) - 1));
      break;
    case 7: {
      const Slot& other = slots_[Pick(0, static_cast<int>(slots_.size()) - 1)];
      if (other.name == slot.name || parted_.size() > 2) {
        parted_.clear();
      } else {
        parted_.insert(std::minmax(slot.name, other.name));
      }
      break;
    }
    case 8: {
      const ReplicaId replica(Pick(0, manager_->replica_count() - 1));
      const int epoch = referee_->epoch(replica);
      if (Chance(30) && referee_->serves(replica) && stalls_.count({replica, epoch}) == 0) {
        Count("stalls");
        stalled_.insert({replica, epoch});
        In(cluster_.step_stall + seconds(6), [this, replica, epoch] {
          if (stalled_.count({replica, epoch}) > 0 && referee_->serves(replica) &&
              referee_->epoch(replica) == epoch) {
            Fail("a step that stands still is not noticed");
          }
        });
      }
      Give("idle", [&] { return manager_->OnReplicaIdle(now_, replica, Chance(60)); });
      break;
    }
    case 9:  // the same name again, before the master knows that the old one is gone
      if (!slot.connected) break;
      Trace(StrCat("twin of ", slot.name));
      Count("twins");
      Cut(index, kDeadAfter, "no heartbeat for 1 s");
      In(Between(milliseconds(1), milliseconds(500)), [this, index] {
        if (slots_[index].alive && !slots_[index].connected) Connect(index);
      });
      break;
  }
}

// A replica that has never served does not wait for ever beside a worker that could hold it alone.
void World::WatchWaiting() {
  if (calm()) return;
  In(seconds(1), [this] { WatchWaiting(); });
  std::map<std::pair<ReplicaId, WorkerId>, Time> together;
  const Snapshot snapshot = manager_->Describe(now_);
  for (size_t p = 0; p < snapshot.pools.size(); ++p) {
    for (const ReplicaStatus& replica : snapshot.pools[p].replicas) {
      if (replica.state != ReplicaState::kWaiting || referee_->has_served(replica.replica))
        continue;
      for (const WorkerStatus& worker : snapshot.workers) {
        const Slot& slot = slots_[slot_of_.at(worker.worker)];
        const bool matches =
            std::all_of(pools_[p].labels.begin(), pools_[p].labels.end(), [&](const auto& label) {
              const auto own = slot.labels.find(label.first);
              return own != slot.labels.end() && own->second == label.second;
            });
        if (worker.state != WorkerState::kSpare || !matches) continue;
        if (slot.shares || slot.memory_bytes < EasilyNeeded(pools_[p])) continue;
        const auto before = waiting_together_.find({replica.replica, worker.worker});
        const Time since = before == waiting_together_.end() ? now_ : before->second;
        together[{replica.replica, worker.worker}] = since;
        if (now_ > since + cluster_.worker_wait + cluster_.retry_max + seconds(3)) {
          Fail(StrCat("replica ", replica.replica.value, " waits on beside ", slot.name));
        }
      }
    }
  }
  waiting_together_ = std::move(together);
}

// Whether a fellow rank of a serving replica holds the whole model easily.
bool World::CanDoWithout(const Slot& leaver) const {
  if (!leaver.replica.valid() || !referee_->serves(leaver.replica)) return false;
  const int64_t needed = EasilyNeeded(pools_[manager_->pool_of(leaver.replica)]);
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.connected && !slot.leaving && !slot.shares && slot.mood == Mood::kGood &&
           slot.replica == leaver.replica && slot.epoch == leaver.epoch &&
           slot.memory_bytes >= needed;
  });
}

void World::FailStep() {
  const ReplicaId replica(Pick(0, manager_->replica_count() - 1));
  if (!referee_->serves(replica)) return;
  const bool stale = Chance(20);
  const int ranks = static_cast<int>(referee_->members(replica).size());
  const int rank = Pick(-1, ranks - 1);
  const Status reasons[] = {absl::DataLossError("digests differ"),
                            absl::UnavailableError("rank 1 is lost"),
                            absl::InternalError("NaN in the logits")};
  const Status& reason = reasons[Pick(0, 2)];
  const int epoch = referee_->epoch(replica) - (stale ? 1 : 0);
  Count("failed steps");
  Give(StrCat("step failed, rank ", rank, " ", std::string(reason.message())),
       [&] { return manager_->OnStepFailed(now_, replica, epoch, rank, reason); });
  if (stale && !referee_->serves(replica)) Fail("an old epoch's failure ended a new one");
}

// A link breaks, or one rank computes while the others wait for it.
void World::StallRanks() {
  const ReplicaId replica(Pick(0, manager_->replica_count() - 1));
  if (!referee_->serves(replica)) return;
  const int ranks = static_cast<int>(referee_->members(replica).size());
  if (ranks < 2) return;
  const std::pair<ReplicaId, int> key(replica, referee_->epoch(replica));
  if (stalled_.count(key) > 0) return;  // no step of it goes on any more
  Stall stall{.rank = Pick(0, ranks - 1), .since = now_};
  if (Chance(50)) stall.peer = (stall.rank + Pick(1, ranks - 1)) % ranks;
  stall.finished = stall.peer >= 0 && Chance(50);
  for (const Slot& slot : slots_) stall.step = std::max(stall.step, slot.heartbeat.step + 1);
  if (!stalls_.emplace(key, stall).second) return;
  Count(stall.peer < 0 ? "long steps" : "broken links");
  Trace(StrCat("rank ", stall.rank, stall.peer < 0 ? " computes for long" : " is cut off from ",
               stall.peer));
  if (stall.peer < 0) {
    In(Between(seconds(1), cluster_.step_stall - seconds(2)), [this, key] { stalls_.erase(key); });
    return;
  }
  In(cluster_.link_stall + seconds(6), [this, key] {
    if (stalls_.count(key) > 0 && referee_->serves(key.first) &&
        referee_->epoch(key.first) == key.second) {
      Fail("a broken link is not noticed");
    }
  });
}

void World::BeatStalled(Slot& slot, const Stall& stall) {
  Heartbeat& beat = slot.heartbeat;
  beat.step = stall.step - 1;
  beat.in_step = true;
  beat.running_step = stall.step;
  beat.waiting_s = std::chrono::duration<double>(now_ - stall.since).count();
  if (slot.rank != stall.rank) {
    beat.waiting_for = slot.rank == stall.peer || stall.peer < 0 ? stall.rank : stall.peer;
    return;
  }
  beat.waiting_for = stall.finished ? -1 : stall.peer;
  if (beat.waiting_for < 0) beat.waiting_s = 0;
  if (!stall.finished) return;
  beat.step = stall.step;
  beat.in_step = false;
  beat.running_step = 0;
}

}  // namespace staffel::cluster::sim
