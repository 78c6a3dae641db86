// What a worker process does for its master: loads the shard it is told, joins the epoch's group,
// runs steps, and keeps the weights when an epoch or the connection ends.
//
// Threads: messages come on the link's reader thread and are queued; Abort, Release and the loss of
// the master take effect there at once, by ending whatever runs. One step thread does the work in
// the order of the messages. The heartbeat may be asked for on any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "app/model_store.h"
#include "app/resident_shard.h"
#include "staffel/backend.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/communicator.h"

namespace staffel {

struct WorkerNodeOptions {
  std::string name;                // for messages
  int64_t memory_limit_bytes = 0;  // 0: what the system can give
  Duration form_timeout = std::chrono::seconds(10);
  ModelStore::Options models;
};

class WorkerNode final : public MasterHandler {
 public:
  // Opens this process's part of the data plane, at the first Configure of a connection; the one
  // before has ended. `local_address`: of the interface that leads to the master.
  using MakeEndpoint =
      std::function<Result<std::unique_ptr<CommEndpoint>>(const std::string& local_address)>;

  // The clock outlives the node.
  WorkerNode(WorkerNodeOptions options, std::unique_ptr<Backend> backend,
             MakeEndpoint make_endpoint, const Clock& clock);
  // Ends what runs. After Disconnect.
  ~WorkerNode() override;

  // A connection begins: answers go to `link` until Disconnect. Before the link's Start.
  void Connect(MasterLink* link);
  // The connection is over; returns when nothing uses the link any more.
  void Disconnect();

  // Reader thread. Welcome is not the node's business.
  void OnMessage(MasterMessage message) override;
  // The epoch ends; a resident shard stays.
  void OnGone(const Status& reason, bool permanent) override;

  Heartbeat heartbeat() const;
  // For weights and KV, what a resident shard takes included.
  int64_t memory_bytes() const;
  // Hello::memory_pool.
  std::string memory_pool() const;
  // Waits until no replica is assigned to this worker; false: still one.
  bool WaitUntilFree(Duration timeout);

 private:
  struct Assignment {
    ReplicaId replica;
    int epoch = 0;
    int rank = 0;
    int rank_count = 0;
    bool samples = false;  // reports outcomes: the first rank of the last stage
    std::vector<std::vector<int>> tensor_groups;
    bool failed = false;  // a step has failed; the epoch's later plans are dropped
  };

  // ---- Any thread (worker_node.cc)
  void EndWork(ReplicaId replica, int epoch);

  // ---- Step thread
  void Work();
  bool Next(MasterMessage& message);
  void Handle(const Welcome&) {}
  void Handle(const Configure& configure);
  void Handle(const Form& form);
  void Handle(const Abort& abort);
  void Handle(const Release& release);
  void Handle(const Step& step);
  Status OpenEndpoint(MasterLink& link);
  Status TakeShard(const Configure& configure, Capacity* capacity);
  Status JoinEpoch(const Form& form, Formed* formed);
  Status LoadShard(const Form& form, Formed* formed);
  void LeaveEpoch();
  void SetAssignment(std::optional<Assignment> assignment);
  void SetShard(std::unique_ptr<ResidentShard> shard);
  int64_t FreeMemory() const;
  void WaitForMemory(int64_t bytes) const;
  Status Named(const Status& status) const;
  MasterLink* CurrentLink() const;
  void Send(const WorkerMessage& message);
  bool cancelled() const { return cancel_.load(std::memory_order_relaxed); }

  const WorkerNodeOptions options_;
  const std::unique_ptr<Backend> backend_;
  const MakeEndpoint make_endpoint_;
  const Clock& clock_;
  ModelStore store_;  // of the step thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MasterMessage> queue_;   // guarded by mutex_
  bool stop_ = false;                 // guarded by mutex_
  bool running_ = false;              // guarded by mutex_; a message is being handled
  ReplicaId running_replica_;         // guarded by mutex_; invalid: of no epoch
  int running_epoch_ = 0;             // guarded by mutex_
  uint64_t connection_ = 0;           // guarded by mutex_; rises with each
  uint64_t endpoint_connection_ = 0;  // guarded by mutex_; that endpoint_ belongs to
  MasterLink* link_ = nullptr;        // guarded by mutex_; used by the step thread
  // Written by the step thread under mutex_, read by it without.
  std::unique_ptr<CommEndpoint> endpoint_;
  std::optional<Assignment> assignment_;
  std::unique_ptr<ResidentShard> shard_;
  std::atomic<bool> cancel_ = false;  // the message being handled is void
  // Messages in the queue and changes of stop_; read while spinning.
  std::atomic<int> waiting_ = 0;

  mutable std::mutex beat_mutex_;
  Heartbeat beat_;     // guarded by beat_mutex_; the communicator's numbers are added
  Time step_begin_{};  // guarded by beat_mutex_
  double step_s_ = 0;  // guarded by beat_mutex_; time in steps of the epoch

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace staffel
