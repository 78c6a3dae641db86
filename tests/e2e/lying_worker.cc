// A worker that does all that `staffel worker` does, but lies. usage: lying_worker LIE OPTIONS...
//
//   protocol=MAJOR.MINOR  speaks another version
//   speed=NUMBER          says that it is so fast
//   clock=NUMBER          after a second, says that its step has taken so long
//   state                 once, from step 8 on, keeps another block than it was told
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "transport/grpc/master_link.h"

namespace staffel {
namespace {

constexpr int kHonestHeartbeats = 20;
constexpr uint64_t kHonestSteps = 8;

struct Lie {
  ProtocolVersion protocol = kClusterProtocol;
  std::string speed, clock;
  bool state = false;
};

bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool Parse(std::string_view text, Lie* lie) {
  if (text == "state") return lie->state = true;
  if (TakePrefix("speed=", &text)) return lie->speed = text, true;
  if (TakePrefix("clock=", &text)) return lie->clock = text, true;
  if (!TakePrefix("protocol=", &text)) return false;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, lie->protocol.major);
  return major.ptr != end && *major.ptr == '.' &&
         std::from_chars(major.ptr + 1, end, lie->protocol.minor).ptr == end;
}

// Stands between the worker and its master.
class LyingLink final : public MasterLink, private MasterHandler {
 public:
  LyingLink(Lie lie, std::unique_ptr<MasterLink> link)
      : lie_(std::move(lie)), link_(std::move(link)) {}

  void Start(MasterHandler* handler) override {
    handler_ = handler;
    link_->Start(this);
  }
  void Send(const WorkerMessage& message) override { link_->Send(message); }
  void SetHeartbeat(std::function<Heartbeat()> heartbeat) override {
    link_->SetHeartbeat([this, heartbeat = std::move(heartbeat)] {
      Heartbeat beat = heartbeat();
      if (!lie_.clock.empty() && ++heartbeats_ > kHonestHeartbeats) {
        beat.in_step_s = std::strtod(lie_.clock.c_str(), nullptr);
      }
      return beat;
    });
  }
  std::string local_address() const override { return link_->local_address(); }
  Status ReadModel(const std::string& digest, absl::Span<const ModelRange> ranges,
                   const std::function<Status(absl::Span<const uint8_t>)>& sink) override {
    return link_->ReadModel(digest, ranges, sink);
  }

 private:
  void OnMessage(MasterMessage message) override {
    if (auto* step = std::get_if<Step>(&message); step != nullptr && lie_.state)
      Falsify(step->plan);
    handler_->OnMessage(std::move(message));
  }
  void OnGone(const Status& reason, bool permanent) override {
    handler_->OnGone(reason, permanent);
  }

  static void Falsify(StepPlan& plan) {
    static std::atomic<bool> done = false;
    if (done || plan.step < kHonestSteps || plan.block_appends.empty()) return;
    done = true;
    BlockId& block = plan.block_appends.front().blocks.front();
    block = BlockId(block.value > 0 ? block.value - 1 : 1);
  }

  const Lie lie_;
  MasterHandler* handler_ = nullptr;
  std::atomic<int> heartbeats_ = 0;
  const std::unique_ptr<MasterLink> link_;  // last: its threads use the rest
};

int Run(std::vector<std::string> args) {
  Lie lie;
  if (args.empty() || !Parse(args.front(), &lie)) {
    std::fputs("usage: lying_worker LIE OPTIONS...\n", stderr);
    return kExitUsage;
  }
  args.erase(args.begin());
  return RunWorkerOver(
      [lie](MasterLinkOptions options) -> Result<std::unique_ptr<MasterLink>> {
        options.hello.protocol = lie.protocol;
        if (!lie.speed.empty()) {
          options.hello.devices.front().speed = std::strtod(lie.speed.c_str(), nullptr);
        }
        STAFFEL_ASSIGN_OR_RETURN(std::unique_ptr<MasterLink> link,
                                 MakeMasterLink(std::move(options)));
        return std::make_unique<LyingLink>(lie, std::move(link));
      },
      std::move(args));
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return staffel::Run({argv + 1, argv + argc});
}
