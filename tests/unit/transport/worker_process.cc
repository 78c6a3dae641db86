// A worker for tests and benchmarks: joins, answers every step at once, joins again when the master
// is lost. Arguments: ADDRESS NAME. Exit code 3: the master has refused it for good.
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "staffel/cluster.h"
#include "transport/grpc/backoff.h"
#include "transport/grpc/master_link.h"

namespace staffel {
namespace {

class EchoWorker final : public MasterHandler {
 public:
  // Whether to try again.
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

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  staffel::MasterLinkOptions options;
  options.master = argv[1];
  options.hello.name = argv[2];
  options.hello.host = "host-b";
  options.hello.devices.resize(1);
  staffel::EchoWorker worker;
  staffel::ReconnectBackoff backoff;
  while (worker.RunOnce(options)) std::this_thread::sleep_for(backoff.Next());
  return 3;
}
