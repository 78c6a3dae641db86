// The moving parts of a master: the cluster manager on a thread of its own, whose wishes are
// carried out here, and an engine for each replica. What workers say about steps goes straight to
// the engine; all else to the manager.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "app/busy_shares.h"
#include "app/master_options.h"
#include "app/model_text.h"
#include "cluster/manager.h"
#include "engine/engine.h"
#include "model/config.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "transport/grpc/grpc_transport.h"

namespace staffel {

// A model of the cluster, as far as the master reads it: all but the weights.
struct ClusterModel {
  ServeOptions options;
  ModelConfig config;
  ModelText text;
  ModelRef ref;
  int max_model_len = 0;
};

class Cluster final : public ClusterHandler {
 public:
  // Any of the callbacks may be called until Stop has returned.
  struct Callbacks {
    std::function<void()> on_change;  // cluster's thread: a model begins to be served, or is lost
    std::function<void()> on_delivered;  // engines' threads: Front::WakeStreams
  };
  // `server` is used between Start and Stop, and must end before this object.
  // InvalidArgument: a layout that cannot work for its model, with the numbers that clash.
  static Result<std::unique_ptr<Cluster>> Create(const ClusterOptions& options,
                                                 std::vector<ClusterModel> models,
                                                 ClusterServer* server, Callbacks callbacks);
  ~Cluster() override;  // Stop()

  // Lets workers in.
  void Start();
  // Ends open requests with an error and all threads.
  void Stop();

  // Any thread from here on.
  const std::vector<ClusterModel>& models() const { return models_; }
  // The engines of a model, replica by replica; they live as long as this object.
  std::vector<Engine*> engines(int model) const;
  // OK: requests for the model are served now; else why not.
  Status health(int model) const;
  // One sentence for each replica that runs in another layout than asked for; "": none does.
  std::string degraded(int model) const;
  // Whether it has been served at all.
  bool has_served(int model) const;
  cluster::Snapshot Describe() const;

  // ClusterHandler, on the server's threads.
  void OnJoin(WorkerId worker, const Hello& hello, const std::string& peer_address) override;
  void OnMessage(WorkerId worker, WorkerMessage message) override;
  void OnGone(WorkerGone gone) override;

 private:
  struct Joined {
    WorkerId worker;
    Hello hello;
    std::string address;
  };
  struct Said {
    WorkerId worker;
    WorkerMessage message;
  };
  struct StepFailed {
    ReplicaId replica;
    int epoch, rank;
    Status reason;
  };
  using Event = std::variant<Joined, Said, WorkerGone, StepFailed>;

  struct Replica {
    int model = 0;
    std::unique_ptr<GrpcTransport> transport;
    std::unique_ptr<Engine> engine;
    bool idle = false;  // as the manager knows it
  };
  // Where a worker's outcomes go.
  struct Route {
    int replica = 0, rank = 0, epoch = 0;
  };

  Cluster(std::vector<ClusterModel> models, ClusterServer* server, Callbacks callbacks);
  Status AddReplicas();
  void Post(Event event);
  void Run();
  cluster::Actions Handle(Time now, Event& event);
  void ReportIdle(Time now);
  void Carry(cluster::Actions actions);
  void Carry(cluster::SendTo& action);
  void Carry(cluster::Disconnect& action);
  void Carry(cluster::ReplicaServing& action);
  void Carry(cluster::ReplicaLost& action);
  void Carry(cluster::ReplicaGaveUp& action);
  void Carry(cluster::Log& action);

  const SystemClock clock_;
  const std::vector<ClusterModel> models_;
  ClusterServer* const server_;
  const Callbacks callbacks_;

  mutable std::mutex manager_mutex_;  // held for one event
  std::unique_ptr<cluster::Manager> manager_;
  BusyShares busy_shares_;  // guarded by manager_mutex_

  // By ReplicaId; fixed after Create but for `idle`, which is the cluster thread's.
  std::deque<Replica> replicas_;
  std::vector<std::unique_ptr<std::atomic<bool>>> served_;  // by model

  mutable std::shared_mutex routes_mutex_;
  absl::flat_hash_map<WorkerId, Route> routes_;  // guarded by routes_mutex_

  std::mutex inbox_mutex_;
  std::condition_variable inbox_changed_;
  std::deque<Event> inbox_;  // guarded by inbox_mutex_
  bool stop_ = false;        // guarded by inbox_mutex_
  std::thread thread_;
};

}  // namespace staffel
