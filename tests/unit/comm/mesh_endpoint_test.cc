// Who is let into a mesh, and who is not.
#include "comm/mesh/mesh_endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <random>

#include "base/fd.h"
#include "comm/mesh/greeting.h"
#include "comm/mesh/socket_address.h"
#include "tests/support/seed.h"
#include "tests/unit/comm/mesh_world.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

MeshOptions QuickOptions(bool shared_memory = false) {
  MeshOptions options;
  options.shared_memory = shared_memory;
  options.greeting_timeout = milliseconds(400);
  return options;
}

Fd ConnectTo(const CommEndpoint& endpoint, bool local = false) {
  const EndpointAddress address = *ParseEndpoint(endpoint.address());
  const SocketAddress target = local ? UnixAddress(address.unix_name) : address.tcp;
  Fd fd(socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), target.get(), target.size), 0) << strerror(errno);
  return fd;
}

// False if the other side has gone before all was taken.
bool SendAll(const Fd& fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = send(fd.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (size <= 0) return false;
    done += static_cast<size_t>(size);
  }
  return true;
}

// Reads to the end; false if that has not come after 5 s.
bool IsClosed(const Fd& fd) {
  const timeval wait{5, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  char buffer[256];
  ssize_t size;
  while ((size = recv(fd.get(), buffer, sizeof buffer, 0)) > 0) continue;
  return size == 0 || errno == ECONNRESET;
}

std::string HelloBytes(int epoch, int from, int to) {
  HelloFrame hello;
  hello.epoch = epoch;
  hello.from = from;
  hello.to = to;
  return std::string(reinterpret_cast<const char*>(&hello), sizeof hello);
}

int64_t ResidentKb() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * 4;
}

Result<std::unique_ptr<Communicator>> FormOne(const Endpoints& endpoints, const GroupSpec& spec,
                                              milliseconds timeout) {
  return endpoints[spec.rank]->Form(spec, timeout);
}

TEST(MeshEndpoint, StrangersAreTurnedAwayAndHarmNothing) {
  std::mt19937_64 random(TestSeed());
  const Endpoints endpoints = MakeEndpoints(2, QuickOptions(true));
  Communicators comms = FormAll(endpoints, {{0, 1}}, 3);
  std::atomic<bool> over = false;
  std::thread work([&] {
    OnThreads(2, [&](int rank) {
      for (bool last = false; !last;) {
        std::vector<float> data = {1, rank == 0 && over ? 1.0f : 0.0f};
        ASSERT_TRUE(comms[rank]->AllReduceSum(absl::MakeSpan(data)).ok());
        ASSERT_EQ(data[0], 2.0f);
        last = data[1] > 0;
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  });
  std::string noise(1 << 20, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::string long_hello = HelloBytes(3, 1, 0);
  long_hello.replace(8, 4, "\xff\xff\xff\xff");
  const std::string words[] = {
      "",
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(506, 'x'),
      std::string(4, '\xff'),
      noise,
      "stf-me",                                 // the beginning of a greeting
      long_hello,                               // another protocol
      HelloBytes(3, 1, 0),                      // an epoch that is formed
      HelloBytes(2, 1, 0),                      // an old one
      HelloBytes(3, 1, 0) + noise,              // words out of turn
      HelloBytes(4, 1, 0) + std::string(1, 0),  // an early one that does not wait
  };
  int64_t resident_kb = 0;
  for (bool local : {false, true}) {
    for (const auto& endpoint : endpoints) {
      std::vector<Fd> silent;
      for (int i = 0; i < 50; ++i) silent.push_back(ConnectTo(*endpoint, local));
      for (const std::string& word : words) {
        const Fd fd = ConnectTo(*endpoint, local);
        SendAll(fd, word);
        if (!word.empty()) {
          EXPECT_TRUE(IsClosed(fd)) << "after " << word.substr(0, 20);
        }
      }
      for (const Fd& fd : silent) EXPECT_TRUE(IsClosed(fd));
      if (resident_kb == 0) resident_kb = ResidentKb();
    }
  }
  EXPECT_LT(ResidentKb(), resident_kb + 2048);
  over = true;
  work.join();
  comms.clear();
  for (const auto& comm : FormAll(endpoints, {{0, 1}}, 4)) EXPECT_NE(comm, nullptr);
}

TEST(MeshEndpoint, SilentConnectionsDoNotKeepPeersOut) {
  MeshOptions options = QuickOptions();
  options.greeting_timeout = milliseconds(60000);
  options.greeting_max = 8;
  const Endpoints endpoints = MakeEndpoints(2, options);
  std::vector<Fd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(ConnectTo(*endpoints[0]));
  for (const auto& comm : FormAll(endpoints, {{0, 1}})) EXPECT_NE(comm, nullptr);
}

TEST(MeshEndpoint, EarlyPeersWait) {
  for (int late : {0, 1}) {
    const Endpoints endpoints = MakeEndpoints(2, QuickOptions());
    OnThreads(2, [&](int rank) {
      if (rank == late) std::this_thread::sleep_for(milliseconds(150));
      const auto comm = FormOne(endpoints, SpecFor(endpoints, {{0, 1}}, rank), milliseconds(10000));
      EXPECT_TRUE(comm.ok()) << comm.status();
    });
  }
}

TEST(MeshEndpoint, MissingRanksAreNamed) {
  const Endpoints endpoints = MakeEndpoints(4, QuickOptions());
  // Rank 1 waits for 0, which is there but does not form, and for 3, which would connect.
  const Status status =
      FormOne(endpoints, SpecFor(endpoints, {{0, 1}, {2, 3}}, 1, 7), milliseconds(150)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1 has not formed epoch 7 within 150 ms"),
                    HasSubstr("(is reached, but has not begun to form epoch 7)"),
                    HasSubstr("rank 3 at tcp://127.0.0.1:"), HasSubstr("(has not connected)"),
                    Not(HasSubstr("rank 2"))));
  GroupSpec spec = SpecFor(endpoints, {{0, 1}}, 1, 8);
  spec.addresses = {"tcp://127.0.0.1:1", endpoints[1]->address()};
  spec.machines.resize(2);
  EXPECT_THAT(std::string(FormOne(endpoints, spec, milliseconds(50)).status().message()),
              HasSubstr("rank 0 at tcp://127.0.0.1:1 (Connection refused)"));
}

TEST(MeshEndpoint, OldEpochsAreRefused) {
  const Endpoints endpoints = MakeEndpoints(2, QuickOptions());
  FormAll(endpoints, {{0, 1}}, 5);
  std::thread newer([&] {
    const auto comm = FormOne(endpoints, SpecFor(endpoints, {{0, 1}}, 0, 6), milliseconds(300));
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kDeadlineExceeded);
  });
  std::this_thread::sleep_for(milliseconds(50));
  const Status status =
      FormOne(endpoints, SpecFor(endpoints, {{0, 1}}, 1, 4), milliseconds(100)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("it refuses epoch 4: it is at epoch 6"));
  newer.join();
}

TEST(MeshEndpoint, WhoDoesNotKnowTheSecretIsNotLetIn) {
  for (bool shared_memory : {false, true}) {
    const Endpoints endpoints = MakeEndpoints(2, QuickOptions(shared_memory));
    OnThreads(2, [&](int rank) {
      GroupSpec spec = SpecFor(endpoints, {{0, 1}}, rank);
      if (rank == 1) spec.secret = "guessed";
      const auto comm = FormOne(endpoints, spec, milliseconds(200));
      EXPECT_EQ(comm.status().code(), absl::StatusCode::kDeadlineExceeded);
      if (rank == 1) {
        EXPECT_THAT(std::string(comm.status().message()),
                    HasSubstr("it does not know this epoch's secret"));
      }
    });
  }
}

// A connection that takes the listener's word and goes on without knowing the secret.
TEST(MeshEndpoint, AWrongProofIsRefused) {
  const Endpoints endpoints = MakeEndpoints(2, QuickOptions());
  std::thread forming([&] {
    const auto comm = FormOne(endpoints, SpecFor(endpoints, {{0, 1}}, 0), milliseconds(400));
    EXPECT_THAT(std::string(comm.status().message()),
                HasSubstr("(it does not know this epoch's secret)"));
  });
  const Fd fd = ConnectTo(*endpoints[0]);
  EXPECT_TRUE(SendAll(fd, HelloBytes(1, 1, 0)));
  ChallengeFrame challenge;
  EXPECT_EQ(recv(fd.get(), &challenge, sizeof challenge, MSG_WAITALL),
            static_cast<ssize_t>(sizeof challenge));
  EXPECT_EQ(challenge.verdict, Verdict::kGoOn);
  EXPECT_TRUE(SendAll(fd, std::string(sizeof(MeshProof), 'p')));
  EXPECT_TRUE(IsClosed(fd));
  forming.join();
}

TEST(MeshEndpoint, FormingCanBeAborted) {
  const Endpoints endpoints = MakeEndpoints(2, QuickOptions());
  for (bool before : {false, true}) {
    const int epoch = before ? 3 : 2;
    std::thread aborter([&] {
      if (!before) std::this_thread::sleep_for(milliseconds(30));
      endpoints[0]->AbortForming(0, epoch);
    });
    if (before) aborter.join();
    const auto begin = steady_clock::now();
    const auto comm =
        FormOne(endpoints, SpecFor(endpoints, {{0, 1}}, 0, epoch), milliseconds(10000));
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kAborted);
    EXPECT_LT(steady_clock::now() - begin, milliseconds(1000));
    if (!before) aborter.join();
  }
  for (const auto& comm : FormAll(endpoints, {{0, 1}}, 4)) EXPECT_NE(comm, nullptr);
}

TEST(MeshEndpoint, GroupsThatCannotBeAreRefused) {
  const Endpoints endpoints = MakeEndpoints(2, QuickOptions());
  for (const Groups& groups : {Groups{{0, 5}}, Groups{{0, 0}}, Groups{{1}}, Groups{}}) {
    const auto comm = FormOne(endpoints, SpecFor(endpoints, groups, 0), milliseconds(100));
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kInvalidArgument);
  }
  GroupSpec spec = SpecFor(endpoints, {{0, 1}}, 1);
  spec.addresses[0] = "127.0.0.1:70000";
  EXPECT_EQ(FormOne(endpoints, spec, milliseconds(100)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MeshEndpoint, ARankWithoutPeersFormsAtOnce) {
  const Endpoints endpoints = MakeEndpoints(1, QuickOptions());
  const auto comm = FormOne(endpoints, SpecFor(endpoints, {{0}}, 0), milliseconds(100));
  ASSERT_TRUE(comm.ok()) << comm.status();
  std::vector<float> data = {3};
  EXPECT_TRUE((*comm)->AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(data[0], 3);
}

// Peers that seem to share a machine but not a network namespace reach each other by TCP.
TEST(MeshEndpoint, TcpStandsInForAUnixSocketThatIsNotThere) {
  const Endpoints endpoints = MakeEndpoints(2, QuickOptions(true));
  OnThreads(2, [&](int rank) {
    GroupSpec spec = SpecFor(endpoints, {{0, 1}}, rank);
    if (rank == 1) spec.addresses[0] += "-of-another-namespace";
    const auto comm = FormOne(endpoints, spec, milliseconds(5000));
    ASSERT_TRUE(comm.ok()) << comm.status();
    std::vector<float> data = {1};
    EXPECT_TRUE((*comm)->AllReduceSum(absl::MakeSpan(data)).ok());
    EXPECT_EQ(data[0], 2);
  });
}

TEST(MeshEndpoint, AddressesArePrintable) {
  const auto address_of = [](const char* host) {
    MeshOptions options = QuickOptions();
    options.host = host;
    const auto endpoint = MakeMeshEndpoint(options);
    return endpoint.ok() ? (*endpoint)->address() : endpoint.status().ToString();
  };
  EXPECT_THAT(address_of("127.0.0.1"), MatchesRegex("tcp://127.0.0.1:[0-9]+"));
  EXPECT_THAT(address_of("::1"), MatchesRegex("tcp://\\[::1\\]:[0-9]+"));
  EXPECT_THAT(address_of("[::1]"), MatchesRegex("tcp://\\[::1\\]:[0-9]+"));
  EXPECT_THAT(address_of("lo"), MatchesRegex("tcp://127.0.0.1:[0-9]+"));
  EXPECT_THAT(address_of("eth77"),
              HasSubstr("\"eth77\" is neither an IP address nor an interface"));
  EXPECT_THAT(address_of("192.0.2.1"), HasSubstr("cannot listen for other ranks at 192.0.2.1:0"));

  EndpointAddress parsed = *ParseEndpoint("tcp://[fe80::1%lo]:7001?unix=a-b");
  EXPECT_EQ(FormatEndpoint(parsed), "tcp://[fe80::1%lo]:7001?unix=a-b");
  // The zone is the own machine's.
  parsed = *ParseEndpoint("tcp://[fe80::2%eth77]:7001");
  TakeZone(parsed.tcp, ParseEndpoint("tcp://[fe80::1%lo]:7001")->tcp);
  EXPECT_EQ(FormatEndpoint(parsed), "tcp://[fe80::2%lo]:7001");
  for (const char* bad : {"", "tcp://", "tcp://1.2.3.4", "tcp://1.2.3.4:0", "tcp://1.2.3.4:65536",
                          "tcp://::1:", "tcp://host:80", "tcp://[::1:80", "http://1.2.3.4:80"}) {
    EXPECT_FALSE(ParseEndpoint(bad).ok()) << bad;
  }
}

TEST(MeshEndpoint, TakesTheFirstFreePortOfARange) {
  MeshOptions options = QuickOptions();
  const auto any = MakeMeshEndpoint(options);
  const uint16_t taken = ntohs(
      reinterpret_cast<const sockaddr_in*>(ParseEndpoint((*any)->address())->tcp.get())->sin_port);
  options.port = taken;
  EXPECT_EQ(MakeMeshEndpoint(options).status().code(), absl::StatusCode::kUnavailable);
  options.port_last = static_cast<uint16_t>(std::min(taken + 20, 65535));
  EXPECT_TRUE(MakeMeshEndpoint(options).ok());
}

}  // namespace
}  // namespace staffel
