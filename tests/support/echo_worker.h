// A worker without a model: joins, and answers every step at once with a token for each chunk.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "staffel/cluster.h"
#include "transport/grpc/master_link.h"

namespace staffel::testing {

class EchoWorker final : public MasterHandler {
 public:
  // One connection, from dial to end; whether another one may be tried.
  bool RunOnce(const MasterLinkOptions& options) {
    auto link = MakeMasterLink(options);
    if (!link.ok()) return false;
    link_ = link->get();
    link_->SetHeartbeat([this] {
      std::lock_guard lock(mutex_);
      return heartbeat_;
    });
    link_->Start(this);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return permanent_.has_value(); });
    const bool again = !*permanent_;
    permanent_.reset();
    return again;
  }
  void OnMessage(MasterMessage message) override {
    const auto* step = std::get_if<Step>(&message);
    if (step == nullptr) return;
    StepOutcome outcome;
    outcome.epoch = step->plan.epoch;
    outcome.step = step->plan.step;
    for (const Chunk& chunk : step->plan.chunks) {
      SampledToken& sampled = outcome.sampled.emplace_back();
      sampled.slot = chunk.slot;
      sampled.token.token = chunk.start + 1;
    }
    link_->Send(outcome);
    std::lock_guard lock(mutex_);
    heartbeat_.step = step->plan.step;
    heartbeat_.collective += 6;
  }
  void OnGone(const Status&, bool permanent) override {
    {
      std::lock_guard lock(mutex_);
      permanent_ = permanent;
    }
    ended_.notify_one();
  }

 private:
  MasterLink* link_ = nullptr;
  std::mutex mutex_;
  std::condition_variable ended_;
  Heartbeat heartbeat_;            // guarded by mutex_
  std::optional<bool> permanent_;  // guarded by mutex_
};

}  // namespace staffel::testing
