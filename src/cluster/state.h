// The manager's state and what changes it, split by theme over workers.cc, attempt.cc, timers.cc,
// placing.cc and describe.cc. Internal to cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/action.h"
#include "cluster/choice.h"
#include "cluster/config.h"
#include "cluster/mutation.h"
#include "cluster/snapshot.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/placement.h"

namespace staffel::cluster {

// A connected worker.
struct Worker {
  WorkerId id;
  Hello hello;
  std::string address;
  uint64_t join_order = 0;
  // A rank of that replica's current epoch, or no replica.
  ReplicaId replica;
  int rank = -1;
  ReplicaId configured;  // whose Configure it has had, without Release since
  bool may_hold = true;  // from before it joined: it has had neither Configure nor Release
  bool leaving = false;
  bool released = false;  // leaving, and told that it may
  double leaving_grace_s = 0;
  // Usable memory: what Hello said, or less, as its last Capacity has shown; then until that time
  // at least.
  int64_t memory_bytes = 0;
  Time memory_known_until = Time::max();
  int64_t granted_bytes = 0;  // of a memory pool, for the current epoch

  // Of the current epoch:
  std::optional<Capacity> capacity;
  double load_share = 0;
  std::optional<Formed> formed;  // not OK: failed
  Heartbeat heartbeat;
  Time heartbeat_at{};  // of this epoch
  Time heard_at{};      // of any heartbeat
  Time progress_at{};   // its heartbeat showed another step, collective or in_step
  // Since when it has been in a wait that nothing can end, and heartbeats of that wait since then.
  std::optional<Time> cut_since;
  int cut_beats = 0;
  Time agreed_at{};  // its heartbeat named this epoch
};

// What is remembered of a worker's name; outlives connections.
struct Record {
  int failures = 0;  // of its own making, without a proven epoch since
  int losses = 0;    // while it was a rank, within the window
  Time lost_at{};
  int suspicion = 0;  // failures of connections that it took part in
  Time set_aside_until{};
  Status reason;
};

// What is remembered of the way between two machines, or two workers of one machine.
struct LinkRecord {
  std::pair<std::string, std::string> workers, hosts;  // as of the last failure
  bool machines_apart = false;
  std::string reason;
  Time broken_at{}, avoid_until{};
  int failures = 0;   // without a proven epoch over it since
  int64_t total = 0;  // failures ever
};

enum class Phase { kWaiting, kConfiguring, kLoading, kServing };

struct Replica {
  ReplicaId id;
  int pool = 0;
  Phase phase = Phase::kWaiting;
  Time phase_since{};
  std::string reason;  // why it waits; serving: why a leaver stays
  std::string said;    // what of it the log has been told
  int epoch = 0;

  // Of the current epoch, while not waiting:
  std::vector<WorkerId> members;  // by rank
  Placement placement;
  bool degraded = false;
  std::string degraded_why;
  bool improving = false;  // the attempt replaces a layout that worked
  int block_count = 0;
  Time progress_at{};           // loading: of any rank
  Time blame_at = Time::max();  // loading: when to judge the failures so far

  std::vector<WorkerId> former;  // by rank, of the epoch that ended last; may be gone

  // Attempts that failed since an epoch was proven.
  int failures = 0;
  Time retry_at{};

  bool has_served = false;
  bool loss_open = false;  // lost and neither served since nor given up
  Time lost_at{};
  std::string loss_reason;
  int64_t losses = 0, planned_changes = 0;

  bool idle = false;
  // Until it has served: since when free workers are there, and when the last one was gone again.
  std::optional<Time> candidates_since, candidates_gone_at;
  std::optional<Time> improvable_since;
  int improve_failures = 0;
  Time improve_after{};
  std::map<std::pair<int, int>, Seats> seats;  // by (tensor, pipeline) parallel sizes

  bool waiting() const { return phase == Phase::kWaiting; }
  bool attempting() const { return phase == Phase::kConfiguring || phase == Phase::kLoading; }
  bool serving() const { return phase == Phase::kServing; }
};

struct State {
  Options options;
  std::vector<PoolConfig> pools;
  std::vector<Replica> replicas;  // index: ReplicaId
  std::map<WorkerId, Worker> workers;
  std::map<std::string, Record> records;                            // by worker name
  std::map<std::pair<std::string, std::string>, LinkRecord> links;  // by LinkKey
  std::map<std::string, int64_t> memory_pools;  // most that was ever seen of it, by name
  uint64_t join_count = 0;
  Time joined_at{};  // the last join
  Time now{};
  Actions actions;              // of the event at hand
  bool replace = false;         // something changed that placing depends on
  Time place_at = Time::max();  // when time alone may change what placing does

  // ---- manager.cc
  Actions Settle();  // after every event: timers, placing; returns the actions
  Time NextTimer() const;

  // ---- workers.cc
  void Join(WorkerId id, const Hello& hello, const std::string& address);
  void NoteMemory(const Hello& hello);
  void Gone(WorkerId id, const Status& reason);
  void Hear(Worker& worker, const Capacity& capacity);
  void Hear(Worker& worker, const FormProgress& progress);
  void Hear(Worker& worker, const Formed& formed);
  void Hear(Worker& worker, const Heartbeat& heartbeat);
  void Hear(Worker& worker, const Leaving& leaving);
  void Hear(Worker& worker, const StepOutcome& outcome);
  void Expel(WorkerId id, const Status& reason);  // disconnects, and treats it as gone
  void SetAside(const Worker& worker, const Status& reason);
  void ReleaseLeavers();
  bool Eligible(const Worker& worker) const;
  // Removes those that were set aside more often than others since an epoch was proven, or else the
  // one that was set aside last. Returns how many: 0 if none ever was.
  size_t LeaveOutBlamed(std::vector<Candidate>& candidates) const;
  Record& RecordOf(const Worker& worker) { return records[worker.hello.name]; }
  Replica* ReplicaOf(const Worker& worker);  // that it is a rank of, or null

  // What the worker may use as a rank of that replica (or of one that has no ranks now): of memory
  // that other workers take from as well, an equal part of what ranks of other replicas leave.
  int64_t MemoryFor(const Worker& worker, ReplicaId replica) const;
  int64_t ReservedBytes(const Worker& rank) const;

  // ---- attempt.cc
  void Begin(Replica& replica, Choice choice, bool improving);
  void LetGo(Worker& worker);
  void ReleaseNeighbours(const Replica& replica);
  void StartForming(Replica& replica);
  void CheckFormed(Replica& replica);
  void JudgeForming(Replica& replica);
  void Serve(Replica& replica);
  void StepFailed(Replica& replica, int rank, const Status& reason);
  // For the end of a serving epoch.
  void Blame(WorkerId id, const Status& reason);
  // Ends an attempt. counts: it was the attempt's own failure, the next one waits longer.
  void FailAttempt(Replica& replica, const std::string& reason, bool counts);
  // Ends a serving epoch.
  void EndServing(Replica& replica, const Status& reason, bool planned);
  void LeaveEpoch(Replica& replica, const std::string& reason);  // Abort to all, no members
  void HoldImprovements(Replica& replica);                       // one has failed
  void GiveUpIfDue(Replica& replica);

  // ---- timers.cc
  void CheckTimers(Replica& replica);
  void CheckServing(Replica& replica);
  Time TimerOf(const Replica& replica) const;

  // ---- links.cc
  void NoteWaiting(Worker& worker, const Heartbeat& beat);  // before it becomes the last one
  int CutFrom(const Replica& replica, int rank) const;
  bool CheckLinks(Replica& replica);  // serving; true: one is broken, and the epoch has ended
  void LinkBroken(Replica& replica, int rank, int peer);
  static std::pair<std::string, std::string> LinkKey(const Worker& a, const Worker& b);
  void SuspectLink(const Worker& a, const Worker& b, const std::string& reason);
  // Null: the two may be ranks of one replica.
  const LinkRecord* AvoidedLink(WorkerId a, WorkerId b) const;
  // The best choice of `choose` without two workers whose link is avoided; nothing if there is
  // none. avoided: one such link among the candidates; null: there is none, nothing was chosen.
  std::optional<Choice> ChooseApart(
      const std::vector<Candidate>& candidates, const LinkRecord*& avoided,
      const std::function<Result<Choice>(const std::vector<Candidate>&)>& choose,
      int depth = 0) const;
  void ForgiveLinks(const Replica& replica);

  // ---- placing.cc
  void Place();

  // ---- describe.cc
  std::string NameOf(const Replica& replica) const;
  std::string Describe(const Worker& worker) const;      // worker "a" on host "b"
  std::string DescribeRank(const Worker& worker) const;  // rank 1, worker "a" on host "b"
  // What its last heartbeat told and how old that is; empty without one of this epoch.
  std::string LastHeard(const Worker& worker) const;
  std::string DescribeSetAside(int pool) const;
  std::string WhyNot(const Replica& replica) const;
  std::string WhyDegraded(const Replica& replica) const;
  Snapshot Describe() const;

  void Send(WorkerId worker, MasterMessage message) {
    actions.push_back(SendTo{worker, std::move(message)});
  }
  void Say(LogLevel level, std::string text) { actions.push_back(Log{level, std::move(text)}); }
  const PoolConfig& pool(const Replica& replica) const { return pools[replica.pool]; }
  bool LabelsMatch(const PoolConfig& pool, const Worker& worker) const;
};

// min · 2^(failures - 1), at most max; 0 without failures.
Duration Backoff(Duration min, Duration max, int failures);
// An error of the connection between ranks, which does not tell whose fault it is.
bool IsBetweenRanks(const Status& status);

}  // namespace staffel::cluster
