// Which share of the last seconds each worker has computed, from the totals that its heartbeats
// tell. One thread at a time.
#pragma once

#include <deque>
#include <map>

#include "staffel/clock.h"
#include "staffel/cluster.h"

namespace staffel {

class BusyShares {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(10);

  void Hear(Time now, WorkerId worker, const Heartbeat& heartbeat);
  void Forget(WorkerId worker) { series_.erase(worker); }
  // [0, 1], over kWindow or since its epoch began; -1: not known yet.
  double Share(WorkerId worker) const;

 private:
  struct Sample {
    Time at{};
    double compute_s = 0;
  };
  struct Series {
    ReplicaId replica;
    int epoch = 0;
    std::deque<Sample> kept;  // at distances, the oldest about kWindow old
    Sample last;
  };

  std::map<WorkerId, Series> series_;
};

}  // namespace staffel
