#include "tests/sim/cluster/world_state.h"

namespace staffel::cluster::sim {
namespace {

std::string KeyOf(ReplicaId replica, const RankShard& shard) {
  return StrCat(replica.value, ":", shard.layers.begin, "-", shard.layers.end, ":",
                shard.q_heads.begin, "-", shard.q_heads.end, ":", shard.ffn.begin, "-",
                shard.ffn.end);
}

}  // namespace

WorldResult World::Run() {
  pools_ = MakePools(random_);
  slots_ = MakeSlots(random_, pools_);
  cluster_.secret_key = {1, 2};
  cluster_.capacity_timeout = seconds(2);
  cluster_.load_stall = seconds(3);
  cluster_.step_stall = seconds(10);
  cluster_.link_stall = seconds(2);
  cluster_.link_avoid_min = seconds(5);
  cluster_.link_avoid_max = seconds(20);
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
  stalls_.clear();
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
    const bool link = lost->reason.message().find("data link") != std::string::npos;
    const auto stall = stalls_.find({lost->replica, lost->epoch});
    if (link && (stall == stalls_.end() || stall->second.peer < 0)) {
      Fail("a link that works is taken for broken");
    }
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
  Drop(slot);
  Connect(index);
}

void World::Connect(int index) {
  Slot& slot = slots_[index];
  slot.connected = true;
  slot.brought = true;
  slot.replica = ReplicaId();
  slot.id = WorkerId(next_worker_++);
  slot_of_[slot.id] = index;
  Hello hello;
  hello.name = slot.name;
  hello.host = slot.host;
  hello.machine = slot.machine;
  hello.labels = slot.labels;
  if (slot.shares) hello.memory_pool = slot.machine;
  const int64_t told = slot.shares ? FreeBytes(slot) : slot.told_bytes;
  hello.devices = {{.memory_bytes = told, .speed = slot.speed}};
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
  Drop(slot);
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
  } else if (const auto* release = std::get_if<Release>(&message)) {
    if (!release->replica.valid()) Fail("a Release names no replica");
    Drop(slot);
    if (slot.leaving) Kill(index, Between(milliseconds(200), seconds(3)));
  }
}

void World::OnConfigure(Slot& slot, const Configure& configure) {
  slot.brought = false;
  slot.replica = configure.replica;
  slot.epoch = configure.plan.epoch;
  slot.rank = configure.rank;
  slot.plan = configure.plan;
  slot.formed = false;
  slot.heartbeat = {};
  if (slot.held != KeyOf(slot.replica, configure.plan.ranks[slot.rank])) Drop(slot);
  if (slot.mood == Mood::kSilent) return;
  Offer(slot, configure, now_ + seconds(1));
}

// Waits a moment for what others of the machine are giving up.
void World::Offer(Slot& slot, const Configure& configure, Time deadline) {
  if (slot.shares && FreeBytes(slot) < configure.memory_bytes && now_ < deadline) {
    In(milliseconds(10), [this, id = slot.id, configure, deadline] {
      Slot& again = slots_[slot_of_.at(id)];
      if (again.connected && again.id == id && again.replica == configure.replica &&
          again.epoch == configure.plan.epoch) {
        Offer(again, configure, deadline);
      }
    });
    return;
  }
  const PoolConfig& pool = pools_[manager_->pool_of(configure.replica)];
  const RankShard& shard = configure.plan.ranks[configure.rank];
  Capacity capacity{.replica = configure.replica, .epoch = slot.epoch};
  capacity.weight_bytes = WeightBytes(pool.shape, shard);
  int64_t usable = FreeBytes(slot);
  if (configure.memory_bytes > 0) usable = std::min(usable, configure.memory_bytes);
  capacity.memory_bytes = usable - capacity.weight_bytes;
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

void World::Drop(Slot& slot) {
  slot.held.clear();
  slot.held_bytes = 0;
}

int64_t World::FreeBytes(const Slot& slot) const {
  int64_t free = slot.memory_bytes;
  if (!slot.shares) return free;
  for (const Slot& other : slots_) {
    if (&other != &slot && other.shares && other.machine == slot.machine) free -= other.held_bytes;
  }
  return free;
}

void World::OnForm(int index, const Form& form) {
  const Slot& slot = slots_[index];
  if (slot.replica != form.replica || slot.epoch != form.epoch) return;
  TakeMemory(index, slot.id, slot.epoch, form.block_count, now_ + seconds(1));
}

// Waits a moment for what others of the machine are giving up.
void World::TakeMemory(int index, WorkerId id, int epoch, int block_count, Time deadline) {
  Slot& slot = slots_[index];
  if (!slot.connected || slot.id != id || !slot.replica.valid() || slot.epoch != epoch) return;
  const RankShard& shard = slot.plan.ranks[slot.rank];
  const std::string key = KeyOf(slot.replica, shard);
  const bool kept = slot.held == key;
  const PoolConfig& pool = pools_[manager_->pool_of(slot.replica)];
  const int64_t bytes = WeightBytes(pool.shape, shard) +
                        block_count * KvBytes(pool.shape, shard, pool.options.block_size);
  if (slot.shares && FreeBytes(slot) < bytes) {
    if (now_ < deadline) {
      return In(milliseconds(10), [this, index, id, epoch, block_count, deadline] {
        TakeMemory(index, id, epoch, block_count, deadline);
      });
    }
    // The master cannot know what a worker still holds of whom it does not hear, or which has just
    // come back with what it held.
    const bool squatted = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
      return other.machine == slot.machine && (!other.connected || other.brought) &&
             other.held_bytes > 0;
    });
    if (!squatted) Fail(StrCat("memory of ", slot.machine, " is promised twice"));
    Count("memory taken meanwhile");
    Drop(slot);
    Tell(slot, Formed{.replica = slot.replica,
                      .epoch = epoch,
                      .status = absl::ResourceExhaustedError("others have taken memory")});
    return;
  }
  if (kept) Count("weights kept");
  slot.held = key;
  slot.held_bytes = bytes;
  Load(index, epoch, 0, kept ? milliseconds(1) : Between(milliseconds(10), milliseconds(500)));
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
    Drop(slot);
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
    beat.waiting_for = -1;
    beat.waiting_s = 0;
    const auto stall = stalls_.find({slot.replica, slot.epoch});
    if (stall != stalls_.end()) {
      BeatStalled(slot, stall->second);
    } else if (stalled_.count({slot.replica, slot.epoch}) > 0) {
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

WorldResult RunWorld(uint64_t seed, const WorldOptions& options) {
  return World(seed, options).Run();
}

}  // namespace staffel::cluster::sim
