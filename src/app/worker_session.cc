#include "app/worker_session.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/strings.h"
#include "transport/grpc/backoff.h"

namespace staffel {

WorkerSession::WorkerSession(WorkerNode* node, Hello hello, MakeLink make_link,
                             std::function<void()> on_joined)
    : node_(node),
      hello_(std::move(hello)),
      make_link_(std::move(make_link)),
      on_joined_(std::move(on_joined)) {}

Status WorkerSession::Run() {
  ReconnectBackoff backoff;
  // Of a master that is there but cannot be trusted, or does not trust this worker: people mend it.
  ReconnectBackoff slow(std::chrono::seconds(1), std::chrono::seconds(30));
  while (true) {
    STAFFEL_ASSIGN_OR_RETURN(const std::optional<Gone> gone, Connect());
    if (!gone) return absl::OkStatus();
    if (gone->permanent) return gone->reason;
    LogLoss(*gone);
    std::unique_lock lock(mutex_);
    const bool distrust = absl::IsUnauthenticated(gone->reason);
    if (joined_) backoff.Reset();
    if (!distrust) slow.Reset();
    const Duration pause = distrust ? slow.Next() : backoff.Next();
    if (changed_.wait_for(lock, pause, [this] { return stop_; })) return absl::OkStatus();
  }
}

Result<std::optional<WorkerSession::Gone>> WorkerSession::Connect() {
  for (DeviceShape& device : hello_.devices) device.memory_bytes = node_->memory_bytes();
  hello_.memory_pool = node_->memory_pool();
  STAFFEL_ASSIGN_OR_RETURN(std::unique_ptr<MasterLink> link, make_link_(hello_));
  link->SetHeartbeat([this] { return node_->heartbeat(); });
  node_->Connect(link.get());
  {
    std::lock_guard lock(mutex_);
    gone_.reset();
    joined_ = false;
    open_ = true;
    link_ = link.get();
  }
  link->Start(this);
  std::optional<Gone> gone;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || gone_; });
    gone = gone_;
    open_ = false;
    link_ = nullptr;
  }
  if (!gone) node_->OnGone(absl::CancelledError("this worker ends"), false);
  node_->Disconnect();
  return gone;
}

void WorkerSession::LogLoss(const Gone& gone) {
  const std::string reason(gone.reason.message());
  bool joined = false;
  {
    std::lock_guard lock(mutex_);
    joined = joined_;
  }
  if (!joined && reason == logged_) return;
  logged_ = reason;
  spdlog::warn("{}: {}; trying again until it answers",
               joined ? "the master is lost" : "no master yet", reason);
}

void WorkerSession::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void WorkerSession::Leave(const std::string& reason, Duration grace) {
  {
    std::lock_guard lock(mutex_);
    if (link_ == nullptr || !joined_) return;
    link_->Send(Leaving{reason, std::chrono::duration<double>(grace).count()});
  }
  node_->WaitUntilFree(grace);
}

void WorkerSession::OnMessage(MasterMessage message) {
  const bool welcome = std::holds_alternative<Welcome>(message);
  {
    std::lock_guard lock(mutex_);
    if (!open_) return;
    if (welcome) joined_ = true;
    node_->OnMessage(std::move(message));
  }
  if (welcome) on_joined_();
}

void WorkerSession::OnGone(const Status& reason, bool permanent) {
  {
    std::lock_guard lock(mutex_);
    if (!open_ || gone_) return;
    gone_ = Gone{reason, permanent};
    node_->OnGone(reason, permanent);
  }
  changed_.notify_all();
}

}  // namespace staffel
