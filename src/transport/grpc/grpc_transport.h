// The Transport of one replica over a ClusterServer: one serialisation of a plan for all ranks, the
// outcome of the rank that samples.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "staffel/cluster.h"
#include "staffel/transport.h"

namespace staffel {

// Any thread. The owner of the ClusterHandler hands outcomes on; while no epoch is bound, plans are
// refused and outcomes ignored.
class GrpcTransport final : public Transport {
 public:
  GrpcTransport(ClusterServer* server, ReplicaId replica) : server_(server), replica_(replica) {}

  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override;
  // Unavailable: no epoch is bound, or the plan is of another one.
  Status Submit(StepPlan plan) override;

  // From now on plans of `epoch` go to `workers`, by rank; `sampling_rank` (the first of the last
  // stage) gives the outcomes. Steps in flight of earlier epochs are forgotten.
  void Bind(int epoch, std::vector<WorkerId> workers, int sampling_rank);
  // No epoch: a rank is lost.
  void Unbind();
  // What a worker reports. A rank's error is the error of that step, or of the next one if the
  // sampling rank had finished that; outcomes reach the handler in step order. No call of the
  // handler comes after Bind or Unbind has returned for what was before.
  void OnOutcome(WorkerId worker, StepOutcome outcome);

 private:
  ClusterServer* const server_;
  const ReplicaId replica_;

  std::mutex submit_mutex_;  // before mutex_: plans reach every rank in the order of their steps
  std::mutex mutex_;
  // Guarded by mutex_:
  std::function<void(StepOutcome)> handler_;
  int epoch_ = -1;
  std::shared_ptr<const std::vector<WorkerId>> workers_;  // null: no epoch is bound
  WorkerId sampler_;
  std::deque<uint64_t> in_flight_;            // steps submitted and not yet reported
  std::map<uint64_t, StepOutcome> finished_;  // of the sampling rank
  uint64_t failed_step_ = 0;                  // the first step that a rank has failed; 0: none
  StepOutcome failure_;
};

}  // namespace staffel
