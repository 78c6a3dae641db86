// Keeps a worker node connected to its master: dials, dials again after every loss with growing
// pauses, ends at a refusal that no retry can mend.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "app/worker_node.h"
#include "staffel/cluster.h"
#include "staffel/status.h"

namespace staffel {

class WorkerSession final : public MasterHandler {
 public:
  // A link that has not been started. An error is permanent: an address or file that cannot be.
  using MakeLink = std::function<Result<std::unique_ptr<MasterLink>>(const Hello&)>;

  // hello's memory and its pool are filled in from the node at each attempt. `on_joined` is called
  // on the link's thread after each Welcome.
  WorkerSession(WorkerNode* node, Hello hello, MakeLink make_link, std::function<void()> on_joined);

  // Until Stop (OK) or a permanent refusal (its sentence). One line in the log for each change,
  // however many tries it takes.
  Status Run();
  // Any thread: Run ends soon, with whatever the node is doing.
  void Stop();
  // Any thread: tells the master that this worker ends, and waits until it has no part in a
  // replica, at most `grace`. Returns at once when there is no master.
  void Leave(const std::string& reason, Duration grace);

  // Reader thread of the link.
  void OnMessage(MasterMessage message) override;
  void OnGone(const Status& reason, bool permanent) override;

 private:
  struct Gone {
    Status reason;
    bool permanent = false;
  };
  // One connection, from dial to end. nullopt: stopped.
  Result<std::optional<Gone>> Connect();
  void LogLoss(const Gone& gone);

  WorkerNode* const node_;
  Hello hello_;
  const MakeLink make_link_;
  const std::function<void()> on_joined_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;           // guarded by mutex_
  bool open_ = false;           // guarded by mutex_; messages go to the node
  bool joined_ = false;         // guarded by mutex_; this connection had its Welcome
  MasterLink* link_ = nullptr;  // guarded by mutex_
  std::optional<Gone> gone_;    // guarded by mutex_
  std::string logged_;          // of the thread of Run
};

}  // namespace staffel
