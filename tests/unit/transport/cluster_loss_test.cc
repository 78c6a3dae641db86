// Workers and masters that die, hang or fall silent, and what the other side notices.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/strings.h"
#include "tests/unit/transport/cluster_ends.h"
#include "transport/grpc/backoff.h"

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::Dial;
using testing::MasterEnd;
using testing::Serve;
using testing::TestHello;
using testing::TestPlan;
using testing::WorkerEnd;

Time Now() { return std::chrono::steady_clock::now(); }

class Process {
 public:
  Process(const std::string& address, const std::string& name) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(STAFFEL_WORKER_PROCESS, "worker_process", address.c_str(), name.c_str(), nullptr);
    _exit(127);
  }
  ~Process() {
    if (!waited_) {
      Signal(SIGKILL);
      Wait();
    }
  }
  void Signal(int number) const { kill(pid_, number); }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  const pid_t pid_;
  bool waited_ = false;
};

// Forwards connections to a port of this host until it swallows everything, with no FIN or RST.
class Hole {
 public:
  explicit Hole(const std::string& target)
      : target_port_(std::stoi(target.substr(target.rfind(':') + 1))) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener_, 8);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Hole() {
    stop_ = true;
    thread_.join();
    for (const auto& [a, b] : pairs_) {
      close(a);
      close(b);
    }
    close(listener_);
  }
  std::string address() const { return StrCat("127.0.0.1:", port_); }
  void Swallow() { swallow_ = true; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void Accept() {
    const int from = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(target_port_);
    if (connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      close(from);
      close(to);
      return;
    }
    pairs_.emplace_back(from, to);
  }
  void Forward(int from, int to) {
    char buffer[65536];
    const ssize_t count = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0 && !swallow_) send(to, buffer, static_cast<size_t>(count), MSG_NOSIGNAL);
    if (count == 0 && !swallow_) shutdown(to, SHUT_WR);
  }
  void Run() {
    while (!stop_) {
      std::vector<pollfd> waits = {{listener_, POLLIN, 0}};
      for (const auto& [a, b] : pairs_) {
        waits.push_back({a, POLLIN, 0});
        waits.push_back({b, POLLIN, 0});
      }
      if (poll(waits.data(), waits.size(), 20) <= 0) continue;
      for (size_t i = 0; i < pairs_.size(); ++i) {
        if (waits[1 + 2 * i].revents != 0) Forward(pairs_[i].first, pairs_[i].second);
        if (waits[2 + 2 * i].revents != 0) Forward(pairs_[i].second, pairs_[i].first);
      }
      if (waits[0].revents != 0) Accept();
      if (swallow_) std::this_thread::sleep_for(5ms);
    }
  }

  const int target_port_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false, swallow_ = false;
  std::vector<std::pair<int, int>> pairs_;
  std::thread thread_;
};

TEST(ClusterLoss, KilledWorkerIsGoneAtOnce) {
  MasterEnd master;
  auto server = Serve(master, {});
  std::vector<double> milliseconds;
  for (size_t round = 0; round < 5; ++round) {
    Process worker(server->address(), "victim");
    ASSERT_TRUE(master.Until([&] { return master.joined.size() == round + 1; }));
    const Time begin = Now();
    worker.Signal(SIGKILL);
    ASSERT_TRUE(master.Until([&] { return master.gone.size() == round + 1; }));
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(master.gone_at - begin).count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::cout << "kill -9 to OnGone: median " << milliseconds[2] << " ms, worst " << milliseconds[4]
            << " ms\n";
  EXPECT_LT(milliseconds[2], 200);
  EXPECT_THAT(std::string(master.gone[0].reason.message()),
              HasSubstr("worker victim on host host-b (127.0.0.1:"));
}

TEST(ClusterLoss, StoppedWorkerIsNamedAndComesBack) {
  MasterEnd master;
  auto server = Serve(master, {});
  Process worker(server->address(), "gpu-3");
  ASSERT_TRUE(master.Until([&] { return master.joined.size() == 1; }));
  for (int step = 1; step <= 7; ++step) {
    server->Send(master.Worker(0), Step{ReplicaId(0), TestPlan(1, step, 3)});
  }
  ASSERT_TRUE(master.Until([&] { return master.messages.size() == 7; }));
  const int heartbeats = master.Get([&] { return master.heartbeats; });
  ASSERT_TRUE(master.Until([&] { return master.heartbeats >= heartbeats + 2; }));
  const Time begin = Now();
  worker.Signal(SIGSTOP);
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  EXPECT_GT(master.gone_at - begin, 900ms);
  EXPECT_LT(master.gone_at - begin, 2s);
  EXPECT_THAT(
      std::string(master.gone[0].reason.message()),
      ContainsRegex("worker gpu-3 on host host-b \\(127.0.0.1:[0-9]+\\) sent nothing for "
                    "1\\.[0-9] s; last finished step 7, collective 42, [1-9]\\.[0-9] s ago"));
  worker.Signal(SIGCONT);
  ASSERT_TRUE(master.Until([&] { return master.joined.size() == 2; }));
  EXPECT_EQ(master.joined[1].hello.name, "gpu-3");
  EXPECT_NE(master.joined[1].worker, master.joined[0].worker);
}

TEST(ClusterLoss, BlackHoleIsNoticedOnBothSidesWhileIdle) {
  MasterEnd master;
  auto server = Serve(master, {});
  Hole hole(server->address());
  WorkerEnd worker;
  auto link = Dial(worker, hole.address());
  ASSERT_TRUE(master.Until([&] { return master.heartbeats >= 2; }));
  const Time begin = Now();
  hole.Swallow();
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  EXPECT_LT(master.gone_at - begin, 2s);
  ASSERT_TRUE(worker.WaitForGone());
  EXPECT_LT(Now() - begin, 2s);
  EXPECT_FALSE(worker.permanent);
  EXPECT_THAT(std::string(worker.gone->message()),
              AllOf(HasSubstr(StrCat("the master at ", hole.address(), " sent nothing for 1."))));
  const Time closing = Now();
  link.reset();
  EXPECT_LT(Now() - closing, 1s);
}

TEST(ClusterLoss, HungHeartbeatIsSilence) {
  MasterEnd master;
  auto server = Serve(master, {.heartbeat_ms = 20, .dead_after_ms = 300});
  WorkerEnd worker;
  auto options = MasterLinkOptions{.master = server->address(), .hello = TestHello("hung")};
  auto link = MakeMasterLink(options);
  ASSERT_TRUE(link.ok());
  std::atomic<int> beats = 0;
  (*link)->SetHeartbeat([&] {
    if (++beats == 5) std::this_thread::sleep_for(800ms);
    Heartbeat heartbeat;
    heartbeat.step = 812;
    heartbeat.collective = 5120;
    return heartbeat;
  });
  (*link)->Start(&worker);
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  EXPECT_THAT(std::string(master.gone[0].reason.message()),
              AllOf(HasSubstr("sent nothing for 0."),
                    HasSubstr("last finished step 812, collective 5120, 0.")));
  ASSERT_TRUE(worker.WaitForGone());
  EXPECT_FALSE(worker.permanent);
  EXPECT_THAT(std::string(worker.gone->message()), HasSubstr("heard nothing from this worker"));
}

TEST(ClusterLoss, AnnouncedLeaveIsNamed) {
  MasterEnd master;
  auto server = Serve(master, {});
  WorkerEnd worker;
  auto link = Dial(worker, server->address());
  ASSERT_TRUE(worker.WaitForMessages(1));
  link->Send(Leaving{"SIGTERM", 30});
  link.reset();  // delivers it
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  ASSERT_EQ(master.messages.size(), 1u);
  EXPECT_THAT(std::string(master.gone[0].reason.message()), HasSubstr("has left: SIGTERM"));
}

TEST(ClusterLoss, WorkersFindTheRestartedMaster) {
  MasterEnd first, second;
  auto server = Serve(first, {});
  const std::string address = server->address();
  Process a(address, "a"), b(address, "b");
  ASSERT_TRUE(first.Until([&] { return first.joined.size() == 2; }));
  server.reset();
  std::this_thread::sleep_for(200ms);
  server = Serve(second, {.listen = {address}});
  ASSERT_NE(server, nullptr);
  ASSERT_TRUE(second.Until([&] { return second.joined.size() == 2; }, 5s));
}

TEST(ClusterLoss, BackoffGrowsToHalfASecond) {
  ReconnectBackoff backoff;
  for (int i = 0; i < 20; ++i) {
    const Duration delay = backoff.Next();
    EXPECT_LE(delay, i == 0 ? 75ms : 500ms);
    EXPECT_GE(delay, i > 5 ? 330ms : 50ms);
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), 75ms);
}

size_t Count(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                           std::filesystem::directory_iterator()));
}

// gRPC keeps a few threads and descriptors of its own; they do not grow with the joins.
TEST(ClusterLoss, JoinsLeakNoThreadsOrDescriptors) {
  MasterEnd master;
  auto server = Serve(master, {});
  size_t threads = 0, descriptors = 0;
  for (size_t round = 1; round <= 60; ++round) {
    WorkerEnd worker;
    auto link = Dial(worker, server->address());
    ASSERT_TRUE(worker.WaitForMessages(1));
    link.reset();
    ASSERT_TRUE(master.Until([&] { return master.gone.size() == round; }));
    if (round == 10) {
      std::this_thread::sleep_for(100ms);
      threads = Count("/proc/self/task");
      descriptors = Count("/proc/self/fd");
    }
  }
  std::this_thread::sleep_for(100ms);
  EXPECT_LE(Count("/proc/self/task"), threads + 4);
  EXPECT_LE(Count("/proc/self/fd"), descriptors + 4);
}

}  // namespace
}  // namespace staffel
