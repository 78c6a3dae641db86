// The master's mind about its workers: who serves which rank of which replica, when to place, when
// to place again. Pure: no thread, clock or I/O; events in, actions out; equal events give equal
// actions.
//
// An attempt: choose workers and a layout → Configure to all → Capacity from all → block count →
// Form to all → Formed from all → ReplicaServing. Whatever goes wrong on the way ends the attempt
// with Abort to all and is followed by one with the next epoch, without the worker to blame, after
// a delay that doubles while attempts fail. A serving epoch ends with ReplicaLost (a rank lost, a
// step failed, a better layout at a quiet moment); requests wait in the engine meanwhile.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/action.h"
#include "cluster/config.h"
#include "cluster/snapshot.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/status.h"

namespace staffel::cluster {

struct State;

// One thread. `now` never goes back. Replicas are numbered through the pools in their order, from
// 0; replicas(pool) of each.
class Manager {
 public:
  // InvalidArgument: a pool's layout cannot work for its model on any workers (says the numbers
  // that clash), or settings that cannot be.
  static Result<std::unique_ptr<Manager>> Create(Options options, std::vector<PoolConfig> pools);
  ~Manager();

  Actions OnJoin(Time now, WorkerId worker, const Hello& hello, const std::string& peer_address);
  // StepOutcomes are the engine's; but one that failed after its epoch has ended may tell who was
  // to blame, where a neighbour spoke first.
  Actions OnMessage(Time now, WorkerId worker, const WorkerMessage& message);
  Actions OnGone(Time now, const WorkerGone& gone);
  // The engine's view of a serving epoch: a step failed. rank: who said so or is to blame, -1
  // unknown. DataLoss: that rank's state has diverged; it is disconnected.
  Actions OnStepFailed(Time now, ReplicaId replica, int epoch, int rank, const Status& reason);
  // Whether the replica's engine has no work. Holds until told otherwise.
  Actions OnReplicaIdle(Time now, ReplicaId replica, bool idle);
  // Time passed. Due at next_deadline(), harmless at any other time.
  Actions OnTick(Time now);
  // When OnTick has something to do next; Time::max(): only after another event.
  Time next_deadline() const;

  int replica_count() const;
  // Index of the replica's pool.
  int pool_of(ReplicaId replica) const;
  // OK: the replica serves. Unavailable: why not, for /health.
  Status Health(Time now, ReplicaId replica) const;
  // One sentence if it serves in another layout than the pool's, for want of workers; else "".
  std::string Degraded(Time now, ReplicaId replica) const;
  Snapshot Describe(Time now) const;
  // Aborts the process if the books do not agree; for tests.
  void CheckInvariants() const;

 private:
  explicit Manager(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace staffel::cluster
