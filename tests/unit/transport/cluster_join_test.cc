// Join, refusal, messages both ways and the end of a membership, over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/unit/transport/cluster_ends.h"

namespace staffel {
namespace {

using testing::Dial;
using ::testing::HasSubstr;
using testing::MasterEnd;
using testing::Serve;
using testing::TestHello;
using testing::TestPlan;
using testing::WorkerEnd;

class ClusterAddress : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string Address() {
    if (GetParam() == "unix:") return StrCat("unix:/tmp/staffel-test-", getpid(), ".sock");
    if (GetParam() == "unix-abstract:") return StrCat("unix-abstract:staffel-test-", getpid());
    return GetParam();
  }
};

TEST_P(ClusterAddress, JoinsAndTalksBothWays) {
  const std::string address = Address();
  MasterEnd master;
  auto server = Serve(master, {.listen = {address}});
  ASSERT_NE(server, nullptr);
  WorkerEnd worker;
  auto link = Dial(worker, server->address());
  ASSERT_TRUE(worker.WaitForMessages(1)) << *worker.gone;
  ASSERT_TRUE(master.Until([&] { return master.joined.size() == 1; }));
  EXPECT_EQ(master.joined[0].hello.name, "gpu-3");
  EXPECT_EQ(worker.Get([&] { return std::get<Welcome>(worker.messages[0]).worker; }),
            master.Worker(0));

  server->Send(master.Worker(0), Release{ReplicaId(4)});
  ASSERT_TRUE(worker.WaitForMessages(2));
  EXPECT_EQ(std::get<Release>(worker.messages[1]).replica, ReplicaId(4));
  link->Send(FormProgress{ReplicaId(4), 2, 0.5});
  ASSERT_TRUE(master.Until([&] { return master.messages.size() == 1; }));
  EXPECT_EQ(std::get<FormProgress>(master.messages[0].second).share, 0.5);

  const bool unix_socket = address.starts_with("unix");
  EXPECT_EQ(link->local_address(), unix_socket ? ""
                                   : address.substr(0, address.rfind(':')) == "[::1]"
                                       ? "::1"
                                       : "127.0.0.1");
  if (unix_socket) {
    EXPECT_EQ(master.joined[0].peer, "unix socket");
  } else {
    EXPECT_THAT(master.joined[0].peer, HasSubstr(address.substr(0, address.rfind(':') + 1)));
  }
  link.reset();
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  EXPECT_THAT(std::string(master.gone[0].reason.message()),
              HasSubstr("worker gpu-3 on host host-b ("));
}

TEST_P(ClusterAddress, StepsReachAllRanksInOrderAndOutcomesComeBack) {
  MasterEnd master;
  auto server = Serve(master, {.listen = {Address()}});
  ASSERT_NE(server, nullptr);
  WorkerEnd a, b;
  auto link_a = Dial(a, server->address(), {.hello = TestHello("a")});
  auto link_b = Dial(b, server->address(), {.hello = TestHello("b")});
  ASSERT_TRUE(master.Until([&] { return master.joined.size() == 2; }));
  const std::vector<WorkerId> workers = {master.Worker(0), master.Worker(1)};
  constexpr int kSteps = 2000;
  for (int step = 1; step <= kSteps; ++step) {
    server->SendToAll(workers, Step{ReplicaId(0), TestPlan(1, step, step % 70)});
  }
  for (WorkerEnd* end : {&a, &b}) {
    ASSERT_TRUE(end->WaitForMessages(kSteps + 1));
    for (int step = 1; step <= kSteps; ++step) {
      const StepPlan& plan = std::get<Step>(end->messages[step]).plan;
      ASSERT_EQ(plan.step, static_cast<uint64_t>(step));
      ASSERT_EQ(plan.chunks.size(), static_cast<size_t>(step % 70));
    }
  }
  for (int step = 1; step <= kSteps; ++step) {
    StepOutcome outcome;
    outcome.step = step;
    link_a->Send(outcome);
  }
  ASSERT_TRUE(master.Until([&] { return master.messages.size() == kSteps; }));
  const WorkerId a_joined = workers[master.joined[0].hello.name == "a" ? 0 : 1];
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_EQ(master.messages[step - 1].first, a_joined);
    ASSERT_EQ(std::get<StepOutcome>(master.messages[step - 1].second).step,
              static_cast<uint64_t>(step));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ClusterAddress,
                         ::testing::Values("127.0.0.1:0", "[::1]:0", "unix:", "unix-abstract:"));

TEST(ClusterJoin, DialsNamesAndScopedAddresses) {
  MasterEnd master;
  auto server = Serve(master, {.listen = {"[::]:0"}});  // IPv4 too
  ASSERT_NE(server, nullptr);
  const std::string port = server->address().substr(server->address().rfind(':'));
  int joined = 0;
  for (const char* host : {"localhost", "127.0.0.1", "[::1]", "[::1%lo]"}) {
    WorkerEnd worker;
    auto link = Dial(worker, StrCat(host, port), {.hello = TestHello(host)});
    ASSERT_TRUE(worker.WaitForMessages(1)) << host << ": " << *worker.gone;
    EXPECT_TRUE(master.Worker(joined++).valid());
    EXPECT_NE(link->local_address(), "");
  }
  EXPECT_THAT(master.Get([&] { return master.joined[1].peer; }), HasSubstr("127.0.0.1:"));
}

TEST(ClusterJoin, DisconnectTellsBothSides) {
  MasterEnd master;
  auto server = Serve(master, {});
  WorkerEnd worker;
  auto link = Dial(worker, server->address());
  ASSERT_TRUE(master.Until([&] { return master.joined.size() == 1; }));
  server->Disconnect(master.Worker(0), absl::DataLossError("its digest of step 5 differs"));
  ASSERT_TRUE(worker.WaitForGone());
  EXPECT_FALSE(worker.permanent);
  EXPECT_THAT(std::string(worker.gone->message()), HasSubstr("its digest of step 5 differs"));
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  EXPECT_EQ(master.gone[0].reason.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(master.gone[0].reason.message()),
              HasSubstr("was disconnected: its digest of step 5 differs"));
}

TEST(ClusterJoin, EndOfTheMasterIsToldAtOnce) {
  MasterEnd master;
  auto server = Serve(master, {});
  WorkerEnd worker;
  auto link = Dial(worker, server->address());
  ASSERT_TRUE(worker.WaitForMessages(1));
  const Time begin = std::chrono::steady_clock::now();
  server.reset();
  ASSERT_TRUE(worker.WaitForGone());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(800));
  EXPECT_FALSE(worker.permanent);
  EXPECT_THAT(std::string(worker.gone->message()), HasSubstr("the master is shutting down"));
}

}  // namespace
}  // namespace staffel
