#include "tests/sim/cluster/world.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "base/strings.h"
#include "cluster/manager.h"
#include "plan/placement.h"
#include "tests/sim/cluster/fleet.h"
#include "tests/sim/cluster/referee.h"

namespace staffel::cluster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kChaos = seconds(40);
constexpr auto kCalm = seconds(160);
constexpr auto kAtRest = seconds(30);    // before the end nothing may change any more
constexpr auto kDeadAfter = seconds(1);  // silence that ends a connection

std::string KeyOf(ReplicaId replica, const RankShard& shard) {
  return StrCat(replica.value, ":", shard.layers.begin, "-", shard.layers.end, ":",
                shard.q_heads.begin, "-", shard.q_heads.end, ":", shard.ffn.begin, "-",
                shard.ffn.end);
}

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

class World {
 public:
  World(uint64_t seed, const WorldOptions& options) : options_(options), random_(seed) {}

  WorldResult Run();

 private:
  int Pick(int min, int max) { return sim::Pick(random_, min, max); }
  bool Chance(int percent) { return sim::Chance(random_, percent); }
  Duration Between(Duration min, Duration max) {
    return Duration(
        std::uniform_int_distribution<Duration::rep>(min.count(), max.count())(random_));
  }
  void At(Time time, std::function<void()> what) { events_.emplace(time, std::move(what)); }
  void In(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  void Fail(const std::string& what) {
    if (result_.failure.empty()) {
      result_.failure =
          StrCat("at ", std::chrono::duration<double>(now_ - kBegin).count(), " s: ", what);
    }
  }
  void Trace(const std::string& line) {
    if (options_.trace) {
      result_.trace.push_back(
          StrCat(std::chrono::duration<double>(now_ - kBegin).count(), " ", line));
    }
  }
  void Count(const std::string& what) {
    if (options_.coverage != nullptr) ++(*options_.coverage)[what];
  }
  bool calm() const { return now_ >= kBegin + kChaos; }

  void CalmDown();

  // ---- the manager
  void Give(const std::string& what, const std::function<Actions()>& event);
  void Carry(const Action& action);
  void Tell(Slot& slot, const WorkerMessage& message);  // worker to master

  // ---- workers
  void StartProcess(int slot);
  void Connect(int slot);
  void Cut(int slot, Duration notice, const std::string& why);
  void Kill(int slot, Duration restart);
  void Deliver(int slot, const MasterMessage& message);
  void OnConfigure(Slot& slot, const Configure& configure);
  void OnForm(int slot, const Form& form);
  void Load(int slot, int epoch, double share, Duration step);
  void TryForm(ReplicaId replica, int epoch);
  void Beat(int slot, WorkerId id);
  bool Parted(const Slot& a, const Slot& b) const {
    return parted_.count(std::minmax(a.name, b.name)) > 0;
  }

  // ---- trouble
  void Trouble();
  void FailStep();
  bool CanDoWithout(const Slot& leaver) const;
  void WatchWaiting();

  static constexpr Time kBegin = Time() + std::chrono::hours(1);
  const WorldOptions options_;
  std::mt19937_64 random_;
  WorldResult result_;
  Time now_ = kBegin;
  std::multimap<Time, std::function<void()>> events_;
  Options cluster_;
  std::vector<PoolConfig> pools_;
  std::unique_ptr<Manager> manager_;
  std::unique_ptr<Referee> referee_;
  std::vector<Slot> slots_;
  std::map<WorkerId, int> slot_of_;
  std::set<std::pair<std::string, std::string>> parted_;
  std::map<std::pair<ReplicaId, int>, std::set<int>> ready_;  // (replica, epoch): ranks
  std::set<std::pair<ReplicaId, int>> stalled_;
  std::map<std::pair<ReplicaId, WorkerId>, Time> waiting_together_;  // since when
  uint64_t next_worker_ = 1;
  int configures_at_rest_ = 0;
};

WorldResult World::Run() {
  pools_ = MakePools(random_);
  slots_ = MakeSlots(random_, pools_);
  cluster_.secret_key = {1, 2};
  cluster_.capacity_timeout = seconds(2);
  cluster_.load_stall = seconds(3);
  cluster_.step_stall = seconds(4);
  cluster_.wrong_epoch_wait = milliseconds(2500);
  cluster_.worker_wait = seconds(10);
  cluster_.improve_patience = seconds(5);
  cluster_.proven_after = seconds(5);
  cluster_.retry_max = seconds(10);
  cluster_.set_aside_max = seconds(15);
  cluster_.improve_retry_min = seconds(2);
  cluster_.improve_retry_max = seconds(20);
  Result<std::unique_ptr<Manager>> manager = Manager::Create(cluster_, pools_);
  if (!manager.ok()) return {std::string(manager.status().message()), {}};
  manager_ = *std::move(manager);
  referee_ = std::make_unique<Referee>(&pools_, &cluster_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Duration delay = slots_[i].fresh ? kChaos + Between(seconds(0), seconds(5))
                                           : Between(seconds(0), seconds(3));
    In(delay, [this, i] { StartProcess(static_cast<int>(i)); });
  }
  In(seconds(1), [this] { Trouble(); });
  In(seconds(1), [this] { WatchWaiting(); });
  At(kBegin + kChaos, [this] { CalmDown(); });

  const Time end = kBegin + kChaos + kCalm;
  while (result_.failure.empty()) {
    const Time due = manager_->next_deadline();
    const Time next = events_.empty() ? Time::max() : events_.begin()->first;
    if (std::min(due, next) > end) break;
    if (due <= next) {
      if (due < now_) Fail("a deadline in the past");
      now_ = std::max(now_, due);
      Give("tick", [this] { return manager_->OnTick(now_); });
      if (manager_->next_deadline() <= now_) Fail("ticks without an end");
    } else {
      now_ = next;
      const std::function<void()> event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
  }
  now_ = end;
  for (int r = 0; r < manager_->replica_count(); ++r) {
    if (!referee_->serves(ReplicaId(r))) {
      Fail(StrCat("replica ", r, " does not serve at the end: ",
                  std::string(manager_->Health(now_, ReplicaId(r)).message())));
    }
  }
  for (const PoolStatus& pool : manager_->Describe(now_).pools) {
    for (const ReplicaStatus& replica : pool.replicas) {
      if (replica.degraded) Fail(StrCat("replica ", replica.replica.value, " is degraded still"));
    }
  }
  if (configures_at_rest_ > 0) Fail("it does not come to rest");
  return result_;
}

void World::CalmDown() {
  Trace("calm");
  parted_.clear();
  stalled_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].mood = Mood::kGood;
    if (!slots_[i].alive && !slots_[i].fresh) {
      In(Between(seconds(0), seconds(2)), [this, i] { StartProcess(static_cast<int>(i)); });
    }
  }
  In(seconds(60), [this] {
    for (int r = 0; r < manager_->replica_count(); ++r) {
      Give("idle", [&] { return manager_->OnReplicaIdle(now_, ReplicaId(r), true); });
    }
  });
}

// ---- the manager

void World::Give(const std::string& what, const std::function<Actions()>& event) {
  if (!what.empty()) Trace(what);
  const Actions actions = event();
  if (options_.check_invariants) manager_->CheckInvariants();
  const std::string wrong = referee_->Judge(now_, actions);
  if (!wrong.empty()) Fail(StrCat(wrong, " (after: ", what, ")"));
  for (const Action& action : actions) Carry(action);
}

void World::Carry(const Action& action) {
  if (const auto* send = std::get_if<SendTo>(&action)) {
    Trace(StrCat("  -> ", slots_[slot_of_.at(send->worker)].name, " message ",
                 send->message.index()));
    const int slot = slot_of_.at(send->worker);
    if (std::holds_alternative<Configure>(send->message)) {
      Count("configures");
      if (now_ > kBegin + kChaos + kCalm - kAtRest) ++configures_at_rest_;
    }
    Slot& to = slots_[slot];
    to.last_to_worker =
        std::max(to.last_to_worker, now_) + Between(milliseconds(0), milliseconds(2));
    At(to.last_to_worker, [this, slot, id = send->worker, message = send->message] {
      if (slots_[slot].connected && slots_[slot].id == id) Deliver(slot, message);
    });
  } else if (const auto* disconnect = std::get_if<Disconnect>(&action)) {
    Count("disconnects");
    const int slot = slot_of_.at(disconnect->worker);
    Slot& to = slots_[slot];
    // The transport says OnGone of its own disconnects too.
    In(milliseconds(1), [this, id = disconnect->worker] {
      Give("gone after disconnect", [&] {
        return manager_->OnGone(now_, {id, absl::AbortedError("disconnected")});
      });
    });
    if (to.id == disconnect->worker && to.connected) {
      to.connected = false;
      to.replica = ReplicaId();
      In(Between(milliseconds(100), seconds(2)), [this, slot] {
        if (slots_[slot].alive && !slots_[slot].connected) Connect(slot);
      });
    }
  } else if (const auto* log = std::get_if<Log>(&action)) {
    Trace(StrCat("  ", log->text));
  } else if (std::holds_alternative<ReplicaServing>(action)) {
    Count("serving");
    Trace("  SERVING");
  } else if (const auto* lost = std::get_if<ReplicaLost>(&action)) {
    Count(lost->planned ? "planned changes" : "losses");
  } else if (std::holds_alternative<ReplicaGaveUp>(action)) {
    Count("gave up");
  }
}

void World::Tell(Slot& slot, const WorkerMessage& message) {
  slot.last_to_master =
      std::max(slot.last_to_master, now_) + Between(milliseconds(0), milliseconds(2));
  At(slot.last_to_master, [this, id = slot.id, message] {
    const Slot& from = slots_[slot_of_.at(id)];
    if (!from.connected || from.id != id) return;
    referee_->Said(now_, id, message);
    const bool beat = std::holds_alternative<Heartbeat>(message);
    Give(beat ? "" : StrCat(from.name, " says ", message.index()),
         [&] { return manager_->OnMessage(now_, id, message); });
  });
}

// ---- workers

void World::StartProcess(int index) {
  Slot& slot = slots_[index];
  if (slot.alive) return;
  slot.alive = true;
  slot.leaving = false;
  slot.held.clear();
  Connect(index);
}

void World::Connect(int index) {
  Slot& slot = slots_[index];
  slot.connected = true;
  slot.replica = ReplicaId();
  slot.id = WorkerId(next_worker_++);
  slot_of_[slot.id] = index;
  Hello hello;
  hello.name = slot.name;
  hello.host = slot.host;
  hello.machine = slot.machine;
  hello.labels = slot.labels;
  hello.devices = {{.memory_bytes = slot.told_bytes, .speed = slot.speed}};
  referee_->Joined(slot.id, hello);
  Give(StrCat("join ", slot.name),
       [&] { return manager_->OnJoin(now_, slot.id, hello, "10.0.0.1:1"); });
  In(seconds(1), [this, index, id = slot.id] { Beat(index, id); });
}

// The connection ends; the master hears of it after `notice`.
void World::Cut(int index, Duration notice, const std::string& why) {
  Slot& slot = slots_[index];
  if (!slot.connected) return;
  slot.connected = false;
  slot.replica = ReplicaId();
  In(notice, [this, id = slot.id, name = slot.name, why] {
    referee_->Gone(id);
    Give(StrCat("gone ", name), [&] {
      return manager_->OnGone(now_, {id, absl::UnavailableError(why)});
    });
  });
}

void World::Kill(int index, Duration restart) {
  Slot& slot = slots_[index];
  Trace(StrCat("kill ", slot.name));
  slot.alive = false;
  Cut(index, Between(milliseconds(0), milliseconds(5)), "connection closed");
  if (restart >= Duration::zero()) In(restart, [this, index] { StartProcess(index); });
}

void World::Deliver(int index, const MasterMessage& message) {
  Slot& slot = slots_[index];
  if (const auto* configure = std::get_if<Configure>(&message)) {
    OnConfigure(slot, *configure);
  } else if (const auto* form = std::get_if<Form>(&message)) {
    OnForm(index, *form);
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    if (slot.replica == abort->replica && slot.epoch == abort->epoch) {
      slot.replica = ReplicaId();
      slot.left_epoch_at = now_;
    }
  } else if (std::holds_alternative<Release>(message)) {
    slot.held.clear();
    if (slot.leaving) Kill(index, Between(milliseconds(200), seconds(3)));
  }
}

void World::OnConfigure(Slot& slot, const Configure& configure) {
  slot.replica = configure.replica;
  slot.epoch = configure.plan.epoch;
  slot.rank = configure.rank;
  slot.plan = configure.plan;
  slot.formed = false;
  slot.heartbeat = {};
  if (slot.mood == Mood::kSilent) return;
  const PoolConfig& pool = pools_[manager_->pool_of(configure.replica)];
  const RankShard& shard = configure.plan.ranks[configure.rank];
  Capacity capacity{.replica = configure.replica, .epoch = slot.epoch};
  capacity.weight_bytes = WeightBytes(pool.shape, shard);
  capacity.memory_bytes = slot.memory_bytes - capacity.weight_bytes;
  capacity.kv_bytes_per_block = KvBytes(pool.shape, shard, pool.options.block_size);
  capacity.comm_address = StrCat("comm-", slot.id.value);
  if (slot.mood == Mood::kRefuses) {
    capacity.status = absl::ResourceExhaustedError("needs 5 MiB, has 4 MiB");
  } else if (slot.mood == Mood::kLies) {
    capacity.epoch += Chance(50) ? 1 : -1;
    Tell(slot, capacity);
    capacity.epoch = slot.epoch;
    capacity.kv_bytes_per_block = Chance(50) ? -7 : 0;
  }
  Tell(slot, capacity);
  if (Chance(5)) Tell(slot, capacity);
}

void World::OnForm(int index, const Form& form) {
  Slot& slot = slots_[index];
  if (slot.replica != form.replica || slot.epoch != form.epoch) return;
  const std::string key = KeyOf(slot.replica, slot.plan.ranks[slot.rank]);
  const bool kept = slot.held == key;
  if (kept) Count("weights kept");
  slot.held = key;
  Load(index, slot.epoch, 0, kept ? milliseconds(1) : Between(milliseconds(10), milliseconds(500)));
}

void World::Load(int index, int epoch, double share, Duration step) {
  Slot& slot = slots_[index];
  const ReplicaId replica = slot.replica;
  if (!slot.connected || !replica.valid() || slot.epoch != epoch) return;
  if (share < 1) {
    if (slot.mood == Mood::kHangs && share >= 0.5) return;
    Tell(slot, FormProgress{replica, epoch, share});
    In(step, [this, index, epoch, share, step, id = slot.id] {
      if (slots_[index].id == id) Load(index, epoch, share + 0.25, step);
    });
    return;
  }
  if (slot.mood == Mood::kCannotForm) {
    slot.held.clear();
    Tell(slot, Formed{.replica = replica,
                      .epoch = epoch,
                      .status = absl::InternalError("disk full: 3 MiB left")});
    return;
  }
  ready_[{replica, epoch}].insert(slot.rank);
  TryForm(replica, epoch);
}

void World::TryForm(ReplicaId replica, int epoch) {
  std::vector<Slot*> members;
  for (Slot& slot : slots_) {
    if (slot.connected && slot.replica == replica && slot.epoch == epoch) members.push_back(&slot);
  }
  const size_t ranks = members.empty() ? 0 : members[0]->plan.ranks.size();
  if (members.size() != ranks || ready_[{replica, epoch}].size() != ranks) return;
  for (Slot* slot : members) {
    bool parted = false;
    for (Slot* other : members) parted = parted || Parted(*slot, *other);
    slot->formed = !parted;
    if (parted) Count("parted");
    Tell(*slot, Formed{.replica = replica,
                       .epoch = epoch,
                       .status = parted ? absl::DeadlineExceededError("ranks are missing")
                                        : absl::OkStatus()});
  }
}

void World::Beat(int index, WorkerId id) {
  Slot& slot = slots_[index];
  if (!slot.connected || slot.id != id) return;
  Heartbeat& beat = slot.heartbeat;
  beat.replica = slot.replica;
  beat.epoch = slot.epoch;
  if (slot.mood == Mood::kDeaf) --beat.epoch;
  if (slot.replica.valid() && slot.formed) {
    if (stalled_.count({slot.replica, slot.epoch}) > 0) {
      beat.in_step = true;
    } else {
      beat.step += static_cast<uint64_t>(Pick(0, 3));
      beat.collective += static_cast<uint64_t>(Pick(1, 30));
      beat.in_step = Chance(70);
    }
  }
  Tell(slot, beat);
  In(seconds(1), [this, index, id] { Beat(index, id); });
}

// ---- trouble

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
    case 5:
      FailStep();
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
      if (Chance(30) && referee_->serves(replica)) {
        Count("stalls");
        const int epoch = referee_->epoch(replica);
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
        if (slot.memory_bytes < EasilyNeeded(pools_[p])) continue;
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
    return slot.connected && !slot.leaving && slot.mood == Mood::kGood &&
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

}  // namespace

WorldResult RunWorld(uint64_t seed, const WorldOptions& options) {
  return World(seed, options).Run();
}

}  // namespace staffel::cluster::sim
