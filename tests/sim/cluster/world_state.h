// The inside of a world: its clock, its workers, and what happens to them (trouble.cc).
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "cluster/manager.h"
#include "plan/placement.h"
#include "tests/sim/cluster/fleet.h"
#include "tests/sim/cluster/referee.h"
#include "tests/sim/cluster/world.h"

namespace staffel::cluster::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr auto kChaos = seconds(40);
inline constexpr auto kCalm = seconds(160);
inline constexpr auto kAtRest = seconds(30);    // before the end nothing may change any more
inline constexpr auto kDeadAfter = seconds(1);  // silence that ends a connection

// A link between two ranks of an epoch that carries nothing any more, or a rank that computes for
// long: what heartbeats tell of it.
struct Stall {
  int rank = 0, peer = -1;  // peer: at the other end of the broken link; -1: the rank computes
  bool finished = false;    // the rank has finished the step that its peer waits in
  uint64_t step = 0;
  Time since{};
};

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
  void Offer(Slot& slot, const Configure& configure, Time deadline);
  void OnForm(int slot, const Form& form);
  void TakeMemory(int slot, WorkerId id, int epoch, int block_count, Time deadline);
  int64_t FreeBytes(const Slot& slot) const;  // with what it holds itself
  static void Drop(Slot& slot);               // the shard that it holds
  void Load(int slot, int epoch, double share, Duration step);
  void TryForm(ReplicaId replica, int epoch);
  void Beat(int slot, WorkerId id);
  bool Parted(const Slot& a, const Slot& b) const {
    return parted_.count(std::minmax(a.name, b.name)) > 0;
  }

  // ---- trouble
  void Trouble();
  void FailStep();
  void StallRanks();
  void BeatStalled(Slot& slot, const Stall& stall);
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
  std::map<std::pair<ReplicaId, int>, Stall> stalls_;
  std::map<std::pair<ReplicaId, WorkerId>, Time> waiting_together_;  // since when
  uint64_t next_worker_ = 1;
  int configures_at_rest_ = 0;
};

}  // namespace staffel::cluster::sim
