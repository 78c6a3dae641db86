// Handlers that keep what they are told, and waits for it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "staffel/cluster.h"
#include "transport/grpc/cluster_server.h"
#include "transport/grpc/master_link.h"

namespace staffel::testing {

// Waits of tests: generous, since machines are slow at times; what is timed is measured apart.
inline constexpr auto kPatience = std::chrono::seconds(20);

class Waiter {
 public:
  template <class Change>
  void Do(Change&& change) {
    {
      std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  // What `read` finds while nothing changes.
  template <class Reading>
  auto Get(Reading&& read) {
    std::lock_guard lock(mutex_);
    return read();
  }
  template <class Ready>
  bool Until(Ready&& ready, std::chrono::milliseconds patience = kPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, ready);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class MasterEnd final : public ClusterHandler, public Waiter {
 public:
  struct Joined {
    WorkerId worker;
    Hello hello;
    std::string peer;
  };
  void OnJoin(WorkerId worker, const Hello& hello, const std::string& peer) override {
    Do([&] { joined.push_back({worker, hello, peer}); });
  }
  void OnMessage(WorkerId worker, WorkerMessage message) override {
    if (std::holds_alternative<Heartbeat>(message)) {
      Do([&] { ++heartbeats; });
    } else {
      if (on_message) on_message(worker, message);
      Do([&] { messages.emplace_back(worker, std::move(message)); });
    }
  }
  // The i-th worker that joined, once it has.
  WorkerId Worker(size_t i) {
    EXPECT_TRUE(Until([&] { return joined.size() > i; }));
    return Get([&] { return joined[i].worker; });
  }
  void OnGone(WorkerGone lost) override {
    Do([&] {
      gone_at = std::chrono::steady_clock::now();
      gone.push_back(std::move(lost));
    });
  }

  std::function<void(WorkerId, const WorkerMessage&)> on_message;
  std::vector<Joined> joined;
  std::vector<std::pair<WorkerId, WorkerMessage>> messages;  // without heartbeats
  std::vector<WorkerGone> gone;
  int heartbeats = 0;
  Time gone_at;
};

class WorkerEnd final : public MasterHandler, public Waiter {
 public:
  void OnMessage(MasterMessage message) override {
    if (on_message) on_message(message);
    Do([&] { messages.push_back(std::move(message)); });
  }
  void OnGone(const Status& reason, bool final_word) override {
    Do([&] {
      gone = reason;
      permanent = final_word;
    });
  }

  bool WaitForMessages(size_t count) {
    return Until([&] { return messages.size() >= count || gone.has_value(); }) &&
           Get([&] { return messages.size() >= count; });
  }
  bool WaitForGone() {
    return Until([&] { return gone.has_value(); });
  }

  std::function<void(const MasterMessage&)> on_message;
  std::vector<MasterMessage> messages;
  std::optional<Status> gone;
  bool permanent = false;
};

inline std::unique_ptr<ClusterServer> Serve(MasterEnd& master, ClusterServerOptions options) {
  if (options.listen.empty()) options.listen = {"127.0.0.1:0"};
  if (options.token.empty()) options.without_token = true;
  Result<std::unique_ptr<ClusterServer>> server = MakeClusterServer(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  if (!server.ok()) return nullptr;
  (*server)->Start(&master);
  return *std::move(server);
}

inline Hello TestHello(std::string name) {
  Hello hello;
  hello.build = "test";
  hello.name = std::move(name);
  hello.host = "host-b";
  hello.machine = "machine";
  hello.devices.push_back({.device = {}, .host = "host-b", .memory_bytes = 1 << 30, .speed = 1});
  return hello;
}

inline std::unique_ptr<MasterLink> Dial(WorkerEnd& worker, const std::string& master,
                                        MasterLinkOptions options = {}) {
  options.master = master;
  if (options.hello.name.empty()) options.hello = TestHello("gpu-3");
  Result<std::unique_ptr<MasterLink>> link = MakeMasterLink(std::move(options));
  EXPECT_TRUE(link.ok()) << link.status();
  if (!link.ok()) return nullptr;
  (*link)->Start(&worker);
  return *std::move(link);
}

inline StepPlan TestPlan(int epoch, uint64_t step, int sequences) {
  StepPlan plan;
  plan.epoch = epoch;
  plan.step = step;
  for (int i = 0; i < sequences; ++i) plan.chunks.push_back({Slot(i), 100 + i, 1, true, false});
  return plan;
}

inline StepOutcome TestOutcome(const StepPlan& plan) {
  StepOutcome outcome;
  outcome.epoch = plan.epoch;
  outcome.step = plan.step;
  for (const Chunk& chunk : plan.chunks) {
    SampledToken& sampled = outcome.sampled.emplace_back();
    sampled.slot = chunk.slot;
    sampled.token.token = chunk.start + 1;
  }
  return outcome;
}

}  // namespace staffel::testing
