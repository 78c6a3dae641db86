// What must hold of the manager's actions whatever happens: the books of one who sees only events
// and actions.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster/action.h"
#include "cluster/config.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"

namespace staffel::cluster::sim {

class Referee {
 public:
  Referee(const std::vector<PoolConfig>* pools, const Options* options);

  // Before the event is given to the manager.
  void Joined(WorkerId worker, const Hello& hello);
  void Said(Time now, WorkerId worker, const WorkerMessage& message);
  void Gone(WorkerId worker);
  // The event's actions, in order. Empty: all is right.
  std::string Judge(Time now, const Actions& actions);

  bool serves(ReplicaId replica) const { return replicas_[replica.value].serving; }
  bool has_served(ReplicaId replica) const { return replicas_[replica.value].has_served; }
  int epoch(ReplicaId replica) const { return replicas_[replica.value].epoch; }
  const std::vector<WorkerId>& members(ReplicaId replica) const {
    return replicas_[replica.value].workers;
  }
  const PlacementPlan& plan(ReplicaId replica) const { return replicas_[replica.value].plan; }

 private:
  struct WorkerBook {
    std::map<std::string, std::string> labels;
    ReplicaId replica;  // of its Configure, until Abort
    int epoch = 0;
    int rank = -1;
    Capacity offer;  // its good Capacity
    bool capacity = false, form = false, formed = false, leaving = false;
  };
  struct ReplicaBook {
    int pool = 0;
    int epoch = 0;                  // of the last Configure
    std::vector<WorkerId> workers;  // by rank
    PlacementPlan plan;
    bool serving = false, has_served = false, loss_open = false;
    Time lost_at{};
    std::deque<Time> attempts;
    Time refused_at{};             // the last Capacity with an error
    Time blame_due = Time::max();  // a rank could not form: the attempt must end by then
  };
  std::string Check(Time now, const SendTo& send);
  std::string CheckConfigure(Time now, WorkerId id, const Configure& configure);
  std::string CheckForm(WorkerId id, const Form& form);
  std::string Check(Time now, const Disconnect& disconnect);
  std::string Check(Time now, const ReplicaServing& serving);
  std::string Check(Time now, const ReplicaLost& lost);
  std::string Check(Time now, const ReplicaGaveUp& gave_up);
  std::string Check(Time now, const Log& log);
  std::string CheckRest(Time now);

  const std::vector<PoolConfig>* pools_;
  const Options* options_;
  std::map<WorkerId, WorkerBook> workers_;
  std::vector<ReplicaBook> replicas_;
};

}  // namespace staffel::cluster::sim
