// The control plane's share of a step: a plan from the master to two worker processes, which answer
// at once with a token for each sequence, and the outcome back at the thread that sent the plan.
//
//   bench_control [STEPS 3000] [PAUSE_US 0]
//
// For plans of 1, 16 and 64 decoding sequences over TCP and a Unix socket: median, 10th and 99th
// percentile in microseconds, and the part of it that Submit takes. PAUSE_US: idle time between two
// steps, as a model's step leaves it to the control threads.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "staffel/cluster.h"
#include "tests/support/echo_worker.h"
#include "transport/grpc/cluster_server.h"
#include "transport/grpc/grpc_transport.h"

namespace staffel {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

int RunWorker(const char* master, const char* name) {
  MasterLinkOptions options;
  options.master = master;
  options.hello.name = name;
  options.hello.devices.resize(1);
  testing::EchoWorker().RunOnce(options);
  return 0;
}

class Master final : public ClusterHandler {
 public:
  void OnJoin(WorkerId worker, const Hello&, const std::string&) override {
    std::lock_guard lock(mutex_);
    workers_.push_back(worker);
    changed_.notify_one();
  }
  void OnMessage(WorkerId worker, WorkerMessage message) override {
    if (auto* outcome = std::get_if<StepOutcome>(&message)) {
      transport_->OnOutcome(worker, std::move(*outcome));
    }
  }
  void OnGone(WorkerGone) override {}

  void Run(ClusterServer& server, const char* name, int steps, int pause_us) {
    GrpcTransport transport(&server, ReplicaId(0));
    transport_ = &transport;
    transport.SetOutcomeHandler([this](StepOutcome outcome) {
      {
        std::lock_guard lock(mutex_);
        finished_ = outcome.step;
      }
      changed_.notify_one();
    });
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return workers_.size() == 2; });
    }
    transport.Bind(1, workers_, 0);
    for (const int sequences : {1, 16, 64}) Measure(transport, name, sequences, steps, pause_us);
  }

 private:
  void Measure(GrpcTransport& transport, const char* name, int sequences, int steps, int pause_us) {
    std::vector<double> totals, submits;
    for (int i = 0; i < steps; ++i) {
      StepPlan plan;
      plan.epoch = 1;
      plan.step = ++step_;
      for (int s = 0; s < sequences; ++s)
        plan.chunks.push_back({Slot(s), 1000 + i, 1, true, false});
      const auto begin = Clock::now();
      if (!transport.Submit(std::move(plan)).ok()) std::exit(1);
      submits.push_back(Microseconds(Clock::now() - begin));
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return finished_ == step_; });
      }
      totals.push_back(Microseconds(Clock::now() - begin));
      if (pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
    std::sort(totals.begin(), totals.end());
    std::sort(submits.begin(), submits.end());
    std::printf("%-5s %3d sequences: %6.1f us median, %6.1f p10, %6.1f p99; Submit %5.1f\n", name,
                sequences, totals[totals.size() / 2], totals[totals.size() / 10],
                totals[totals.size() * 99 / 100], submits[submits.size() / 2]);
    std::fflush(stdout);
  }

  GrpcTransport* transport_ = nullptr;
  uint64_t step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerId> workers_;  // guarded by mutex_
  uint64_t finished_ = 0;          // guarded by mutex_
};

pid_t StartWorker(const char* program, const std::string& address, const char* name) {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", program, "--worker", address.c_str(), name, nullptr);
    _exit(127);
  }
  return pid;
}

int Run(int argc, char** argv) {
  spdlog::set_level(spdlog::level::err);
  if (argc == 4 && std::strcmp(argv[1], "--worker") == 0) return RunWorker(argv[2], argv[3]);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3000;
  const int pause_us = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::string socket = "unix-abstract:staffel-bench-" + std::to_string(getpid());
  for (const auto& [name, address] :
       {std::pair<const char*, std::string>{"tcp", "127.0.0.1:0"}, {"unix", socket}}) {
    Master master;
    auto server = MakeClusterServer({.listen = {address}, .without_token = true});
    if (!server.ok()) {
      std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
      return 1;
    }
    (*server)->Start(&master);
    const pid_t workers[] = {StartWorker(argv[0], (*server)->address(), "a"),
                             StartWorker(argv[0], (*server)->address(), "b")};
    master.Run(**server, name, std::max(steps, 10), pause_us);
    server->reset();
    for (const pid_t pid : workers) waitpid(pid, nullptr, 0);
  }
  return 0;
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) { return staffel::Run(argc, argv); }
