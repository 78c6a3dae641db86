// One epoch of one replica, from Configure to its end.
#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/check.h"
#include "base/strings.h"
#include "cluster/state.h"
#include "plan/kv_pool.h"

namespace staffel::cluster {
namespace {

// A connection that took part in so many failures is set aside, whosever fault they are.
constexpr int kSuspicionMax = 3;
constexpr int kPoolGrowthIgnored = 2;
// How long the memory that a Capacity has shown is believed at least, where it is less than
// Hello's.
constexpr Duration kMemoryKnown = std::chrono::seconds(60);

// 256 bits that nobody can know without the key.
std::string SecretOf(const Hash128& key, ReplicaId replica, int epoch) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string secret;
  for (uint32_t part = 0; part < 2; ++part) {
    const uint32_t message[] = {0x5ec4e7, static_cast<uint32_t>(replica.value),
                                static_cast<uint32_t>(epoch), part};
    const Hash128 hash = SipHash128(key, message, sizeof message);
    for (uint64_t word : {hash.low, hash.high}) {
      for (int shift = 60; shift >= 0; shift -= 4) secret += kHex[word >> shift & 15];
    }
  }
  return secret;
}

}  // namespace

void State::Begin(Replica& replica, Choice choice, bool improving) {
  STAFFEL_CHECK(replica.waiting() && replica.members.empty());
  if (!IsMutant(Mutant::kKeepEpoch) || replica.epoch == 0) ++replica.epoch;
  replica.said.clear();
  replica.phase = Phase::kConfiguring;
  replica.phase_since = now;
  replica.members = choice.workers;
  replica.placement = std::move(choice.placement);
  replica.placement.plan.epoch = replica.epoch;
  replica.degraded = choice.degraded;
  replica.degraded_why = choice.why;
  replica.improving = improving;
  replica.improvable_since.reset();
  replica.block_count = 0;
  replica.blame_at = Time::max();
  const PlacementPlan& plan = replica.placement.plan;
  std::string names;
  for (WorkerId member : replica.members) {
    Worker& worker = workers.at(member);
    worker.granted_bytes = worker.hello.memory_pool.empty() ? 0 : MemoryFor(worker, replica.id);
  }
  ReleaseNeighbours(replica);
  for (size_t rank = 0; rank < replica.members.size(); ++rank) {
    Worker& worker = workers.at(replica.members[rank]);
    STAFFEL_CHECK(!worker.replica.valid() && !worker.leaving);
    worker.replica = replica.id;
    worker.rank = static_cast<int>(rank);
    worker.capacity.reset();
    worker.formed.reset();
    worker.load_share = 0;
    worker.heartbeat = {};
    worker.cut_since.reset();
    worker.heartbeat_at = worker.progress_at = worker.agreed_at = Time{};
    if (worker.configured.valid() && worker.configured != replica.id) LetGo(worker);
    worker.configured = replica.id;
    worker.may_hold = false;
    Send(worker.id, Configure{replica.id, pool(replica).model, plan, worker.rank,
                              pool(replica).options, worker.granted_bytes});
    StrAppend(names, rank == 0 ? "" : ", ", "\"", worker.hello.name, "\" on ", worker.hello.host);
  }
  Say(LogLevel::kInfo,
      StrCat(NameOf(replica), " epoch ", replica.epoch, ": tensor parallel ", TensorParallel(plan),
             ", pipeline parallel ", PipelineParallel(plan), " over ", names,
             replica.degraded ? "; fewer workers than asked for: " : "", replica.degraded_why));
}

// An idle worker gives up what it holds, of whichever replica. One that nothing is known of is told
// so, too: any replica's name does.
void State::LetGo(Worker& worker) {
  Send(worker.id, Release{worker.configured.valid() ? worker.configured : ReplicaId(0)});
  worker.configured = ReplicaId();
  worker.may_hold = false;
}

// What idle workers keep for their former replica is in nobody's grant: it must make room for the
// new members with whom they share memory.
void State::ReleaseNeighbours(const Replica& replica) {
  std::set<std::string> pools;
  for (WorkerId member : replica.members) pools.insert(workers.at(member).hello.memory_pool);
  for (auto& [id, worker] : workers) {
    const bool idle = !worker.replica.valid() &&
                      std::count(replica.members.begin(), replica.members.end(), id) == 0;
    if (!idle || worker.hello.memory_pool.empty() || pools.count(worker.hello.memory_pool) == 0) {
      continue;
    }
    if (worker.configured.valid() || worker.may_hold) LetGo(worker);
  }
}

void State::StartForming(Replica& replica) {
  const PoolConfig& config = pool(replica);
  int block_count = 0;
  for (WorkerId member : replica.members) {
    Worker& worker = workers.at(member);
    if (IsMutant(Mutant::kFormEarly) && !worker.capacity) continue;
    const Capacity& capacity = *worker.capacity;
    const Result<KvPoolSize> size = SizeKvPool({.memory_bytes = capacity.memory_bytes,
                                                .kv_bytes_per_block = capacity.kv_bytes_per_block,
                                                .block_size = config.options.block_size,
                                                .max_model_len = config.max_model_len,
                                                .max_sequences = config.max_sequences,
                                                .kv_blocks = config.kv_blocks,
                                                .kv_memory_bytes = config.kv_memory_bytes});
    if (!size.ok()) {
      // Shares that reckon with what there is may fit; if they have done so already, it is the
      // worker.
      const int64_t usable = std::max<int64_t>(capacity.memory_bytes + capacity.weight_bytes, 1);
      if (worker.memory_bytes == 0 || usable < worker.memory_bytes) {
        worker.memory_bytes = usable;
        worker.memory_known_until = now + kMemoryKnown;
      } else {
        SetAside(worker, size.status());
      }
      FailAttempt(replica,
                  StrCat(DescribeRank(worker),
                         " has too little memory: ", std::string(size.status().message())),
                  /*counts=*/true);
      return;
    }
    block_count = block_count == 0 || IsMutant(Mutant::kLargestPool)
                      ? std::max(block_count, size->block_count)
                      : std::min(block_count, size->block_count);
  }
  // Another pool size would cost the ranks that keep their shards a load: the old one will do.
  const PlacementPlan& plan = replica.placement.plan;
  const auto seats = replica.seats.find({TensorParallel(plan), PipelineParallel(plan)});
  if (seats != replica.seats.end() && SameShards(seats->second.plan, plan) &&
      seats->second.block_count <= block_count &&
      block_count <= kPoolGrowthIgnored * seats->second.block_count) {
    block_count = seats->second.block_count;
  }
  Form form{replica.id,  replica.epoch,
            block_count, {},
            {},          SecretOf(options.secret_key, replica.id, replica.epoch)};
  for (WorkerId member : replica.members) {
    if (IsMutant(Mutant::kFormEarly) && !workers.at(member).capacity) continue;
    form.addresses.push_back(workers.at(member).capacity->comm_address);
    form.machines.push_back(workers.at(member).hello.machine);
  }
  replica.block_count = block_count;
  replica.phase = Phase::kLoading;
  replica.phase_since = replica.progress_at = now;
  for (WorkerId member : replica.members) Send(member, form);
}

void State::CheckFormed(Replica& replica) {
  bool all = true, failed = false;
  for (WorkerId member : replica.members) {
    const std::optional<Formed>& formed = workers.at(member).formed;
    all = all && formed.has_value();
    failed = failed || (formed && !formed->status.ok());
  }
  if (!failed) {
    if (all || IsMutant(Mutant::kServeEarly)) Serve(replica);
  } else if (all) {
    JudgeForming(replica);
  } else {
    if (IsMutant(Mutant::kForgetBlame)) return;
    replica.blame_at = std::min(replica.blame_at, now + options.blame_wait);
  }
}

// Who failed by itself is set aside. If they only missed each other, suspicion falls on all of
// them, and the one with most of it, the newest among those, is set aside: the others may do
// without.
void State::JudgeForming(Replica& replica) {
  std::vector<Worker*> own, between;
  std::string text;
  for (WorkerId member : replica.members) {
    Worker& worker = workers.at(member);
    if (!worker.formed || worker.formed->status.ok()) continue;
    const Status& status = worker.formed->status;
    (IsBetweenRanks(status) ? between : own).push_back(&worker);
    if (!IsBetweenRanks(status) || text.empty()) {
      text = StrCat(DescribeRank(worker), " could not form: ", std::string(status.message()));
    }
  }
  for (Worker* worker : own) SetAside(*worker, worker->formed->status);
  if (own.empty()) {
    Worker* suspect = nullptr;
    for (Worker* worker : between) {
      ++RecordOf(*worker).suspicion;
      if (suspect == nullptr || std::pair(RecordOf(*worker).suspicion, worker->join_order) >
                                    std::pair(RecordOf(*suspect).suspicion, suspect->join_order)) {
        suspect = worker;
      }
    }
    SetAside(*suspect, suspect->formed->status);
  }
  FailAttempt(replica, text, /*counts=*/true);
}

void State::Serve(Replica& replica) {
  replica.phase = Phase::kServing;
  replica.phase_since = now;
  replica.reason.clear();
  replica.has_served = true;
  replica.loss_open = false;
  const PlacementPlan& plan = replica.placement.plan;
  Seats& seats = replica.seats[{TensorParallel(plan), PipelineParallel(plan)}];
  seats = {plan, {}, {}, replica.block_count};
  for (WorkerId member : replica.members) {
    Worker& worker = workers.at(member);
    worker.progress_at = worker.agreed_at = now;
    seats.names.push_back(worker.hello.name);
    seats.devices.push_back(worker.hello.devices[0]);
  }
  for (auto& [id, worker] : workers) {
    if (worker.configured == replica.id && !worker.replica.valid()) LetGo(worker);
  }
  actions.push_back(
      ReplicaServing{replica.id, replica.epoch, plan, replica.members, replica.block_count});
  Say(LogLevel::kInfo,
      StrCat(NameOf(replica), " epoch ", replica.epoch, " serves: ", replica.members.size(),
             " ranks, ", replica.block_count, " KV blocks"));
  replace = true;
}

void State::StepFailed(Replica& replica, int rank, const Status& reason) {
  const bool known = rank >= 0 && rank < static_cast<int>(replica.members.size());
  const WorkerId id = known ? replica.members[rank] : WorkerId();
  std::string text = known ? StrCat("a step failed on ", DescribeRank(workers.at(id)), ": ")
                           : std::string("a step failed: ");
  StrAppend(text, std::string(reason.message()));
  const bool proven = now - replica.phase_since >= options.proven_after;
  EndServing(replica, Status(reason.code(), text), /*planned=*/false);
  if (!proven) ++replica.failures;
  if (!proven && replica.improving) HoldImprovements(replica);
  // A lost peer shows first at its neighbours: the next attempt waits for who it was.
  replica.retry_at =
      now +
      std::max(options.blame_wait, Backoff(options.retry_min, options.retry_max, replica.failures));
  if (known) Blame(id, reason);
}

void State::Blame(WorkerId id, const Status& reason) {
  const Worker& worker = workers.at(id);
  if (absl::IsDataLoss(reason)) {
    SetAside(worker, reason);
    Expel(id, reason);
  } else if (!IsBetweenRanks(reason)) {
    SetAside(worker, reason);
  } else if (++RecordOf(worker).suspicion >= kSuspicionMax) {
    SetAside(worker, reason);
  }
}

void State::LeaveEpoch(Replica& replica, const std::string& reason) {
  for (WorkerId member : replica.members) {
    if (!member.valid()) continue;  // gone
    Worker& worker = workers.at(member);
    worker.replica = ReplicaId();
    worker.rank = -1;
    if (!IsMutant(Mutant::kForgetAbort)) Send(member, Abort{replica.id, replica.epoch, reason});
  }
  replica.former = std::move(replica.members);
  replica.members.clear();
  replica.placement = {};
  replica.phase = Phase::kWaiting;
  replica.phase_since = now;
  replica.reason = reason;
  replica.block_count = 0;
  replica.blame_at = Time::max();
  replica.improvable_since.reset();
  replace = true;
}

void State::HoldImprovements(Replica& replica) {
  ++replica.improve_failures;
  replica.improve_after =
      now + Backoff(options.improve_retry_min, options.improve_retry_max, replica.improve_failures);
}

void State::FailAttempt(Replica& replica, const std::string& reason, bool counts) {
  STAFFEL_CHECK(replica.attempting());
  if (counts && !IsMutant(Mutant::kNoBackoff)) ++replica.failures;
  replica.retry_at =
      counts ? now + Backoff(options.retry_min, options.retry_max, replica.failures) : now;
  if (replica.improving) HoldImprovements(replica);
  Say(LogLevel::kWarning,
      StrCat(NameOf(replica), " epoch ", replica.epoch, " is given up: ", reason));
  LeaveEpoch(replica, reason);
  GiveUpIfDue(replica);
}

void State::EndServing(Replica& replica, const Status& reason, bool planned) {
  STAFFEL_CHECK(replica.serving());
  const std::string text(reason.message());
  if (now - replica.phase_since >= options.proven_after) {
    replica.failures = 0;
    replica.improve_failures = 0;
    for (WorkerId member : replica.members) {
      if (!member.valid()) continue;
      Record& record = RecordOf(workers.at(member));
      record.failures = record.suspicion = 0;
    }
    ForgiveLinks(replica);
  }
  ++(planned ? replica.planned_changes : replica.losses);
  replica.retry_at = now;
  replica.loss_open = true;
  replica.lost_at = now;
  replica.loss_reason = text;
  actions.push_back(ReplicaLost{replica.id, replica.epoch, reason, planned});
  Say(planned ? LogLevel::kInfo : LogLevel::kError,
      StrCat(NameOf(replica), " epoch ", replica.epoch, " ends: ", text));
  LeaveEpoch(replica, text);
}

void State::GiveUpIfDue(Replica& replica) {
  if (!replica.waiting() || !replica.loss_open || now < replica.lost_at + options.worker_wait) {
    return;
  }
  if (IsMutant(Mutant::kNeverGiveUp)) return;
  replica.loss_open = IsMutant(Mutant::kGiveUpTwice) && replica.loss_open;
  const std::string text =
      StrCat(NameOf(replica), " has found no workers to go on with for ",
             std::chrono::floor<std::chrono::seconds>(now - replica.lost_at).count(),
             " s: ", replica.reason, " (lost: ", replica.loss_reason, ")");
  Say(LogLevel::kError, text);
  actions.push_back(ReplicaGaveUp{replica.id, absl::UnavailableError(text)});
}

}  // namespace staffel::cluster
