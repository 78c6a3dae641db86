// Who is not let in, and what it and the others notice.
#include <gmock/gmock.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "base/strings.h"
#include "tests/support/seed.h"
#include "tests/unit/transport/cluster_ends.h"
#include "tests/unit/transport/test_certificates.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::Dial;
using testing::MasterEnd;
using testing::Serve;
using testing::TestCertificates;
using testing::TestHello;
using testing::WorkerEnd;

struct Refused {
  absl::StatusCode code;
  std::string message;
  bool permanent;
};

// How a worker that is not let in is told so.
Refused Try(const std::string& address, MasterLinkOptions options) {
  WorkerEnd worker;
  auto link = Dial(worker, address, std::move(options));
  EXPECT_TRUE(worker.WaitForGone());
  EXPECT_TRUE(worker.messages.empty());
  return {worker.gone->code(), std::string(worker.gone->message()), worker.permanent};
}

bool CanJoin(const std::string& address, MasterLinkOptions options) {
  WorkerEnd worker;
  auto link = Dial(worker, address, std::move(options));
  return worker.WaitForMessages(1);
}

TEST(ClusterRefusal, WrongOrMissingTokenIsPermanent) {
  MasterEnd master;
  auto server = Serve(master, {.token = "right"});
  for (const char* token : {"", "wrong", "righ", "right1", "rightright"}) {
    const Refused refused = Try(server->address(), {.token = token});
    EXPECT_EQ(refused.code, absl::StatusCode::kUnauthenticated) << token;
    EXPECT_THAT(refused.message, HasSubstr("token"));
    EXPECT_TRUE(refused.permanent);
  }
  EXPECT_TRUE(CanJoin(server->address(), {.token = "right"}));
  EXPECT_EQ(master.Get([&] { return master.joined.size(); }), 1u);
}

TEST(ClusterRefusal, OtherProtocolVersionsArePermanentAndNamed) {
  MasterEnd master;
  auto server = Serve(master, {.protocol = {1, 3}});
  for (const ProtocolVersion version : {ProtocolVersion{1, 1}, {1, 5}, {2, 3}}) {
    Hello hello = TestHello("other");
    hello.protocol = version;
    const Refused refused = Try(server->address(), {.hello = hello});
    EXPECT_TRUE(refused.permanent);
    EXPECT_THAT(refused.message,
                AllOf(HasSubstr(StrCat("protocol ", version.major, ".", version.minor)),
                      HasSubstr("the master 1.3")));
  }
  for (uint32_t minor : {2, 3, 4}) {
    Hello hello = TestHello("neighbour");
    hello.protocol = {1, minor};
    EXPECT_TRUE(CanJoin(server->address(), {.hello = hello})) << minor;
  }
}

TEST(ClusterRefusal, NewerWorkerOfANameReplacesTheOlder) {
  MasterEnd master;
  auto server = Serve(master, {});
  WorkerEnd older, newer;
  auto older_link = Dial(older, server->address());
  ASSERT_TRUE(older.WaitForMessages(1));
  auto newer_link = Dial(newer, server->address());
  ASSERT_TRUE(newer.WaitForMessages(1));
  ASSERT_TRUE(older.WaitForGone());
  EXPECT_TRUE(older.permanent);  // or the two would chase each other away for ever
  EXPECT_THAT(std::string(older.gone->message()), HasSubstr("another worker named gpu-3"));
  ASSERT_TRUE(master.Until([&] { return master.joined.size() == 2 && master.gone.size() == 1; }));
  EXPECT_EQ(master.gone[0].worker, master.joined[0].worker);
  EXPECT_THAT(std::string(master.gone[0].reason.message()), HasSubstr("was replaced by a newer"));
  server->Send(master.Worker(1), Release{ReplicaId(0)});
  EXPECT_TRUE(newer.WaitForMessages(2));
}

TEST(ClusterRefusal, BadHelloIsPermanent) {
  MasterEnd master;
  auto server = Serve(master, {});
  Hello hello = TestHello("x");
  hello.devices.clear();
  const Refused refused = Try(server->address(), {.hello = hello});
  EXPECT_TRUE(refused.permanent);
  EXPECT_THAT(refused.message, HasSubstr("the worker has no device"));
}

TEST(ClusterRefusal, NobodyThereIsWorthAnotherTry) {
  const Refused refused = Try("127.0.0.1:1", {});
  EXPECT_FALSE(refused.permanent);
  EXPECT_EQ(refused.code, absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.message, HasSubstr("no connection to the master at 127.0.0.1:1"));
}

TEST(ClusterRefusal, OptionsThatCannotBe) {
  EXPECT_THAT(std::string(MakeClusterServer({.listen = {"127.0.0.1:0"}}).status().message()),
              HasSubstr("needs a join token"));
  EXPECT_TRUE(MakeClusterServer({.listen = {"unix-abstract:staffel-no-token"}}).ok());
  for (const char* address : {"", "7001", "::1:7001", "[::1]", "host:", "host:70000",
                              "unix:", "host:7001x", "[host]:1", "a b:1"}) {
    EXPECT_EQ(MakeClusterServer({.listen = {address}, .token = "t"}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
    EXPECT_EQ(MakeMasterLink({.master = address}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_FALSE(MakeClusterServer({.listen = {"127.0.0.1:0"}, .token = "two words"}).ok());
  MasterEnd master;
  auto server = Serve(master, {});
  const Status taken = MakeClusterServer({.listen = {server->address()}, .token = "t"}).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr(server->address()));
}

TEST(ClusterRefusal, TlsAndClientCertificates) {
  TestCertificates certificates, foreign;
  certificates.Issue("master");
  certificates.Issue("worker");
  foreign.Issue("worker");
  const TlsFiles server_files{certificates.Path("master.pem"), certificates.Path("master.key"),
                              certificates.Path("ca.pem")};
  MasterEnd master;
  auto server = Serve(master, {.listen = {"127.0.0.1:0"}, .tls = server_files});
  ASSERT_NE(server, nullptr);
  const std::string ca = certificates.Path("ca.pem");
  const TlsFiles own{certificates.Path("worker.pem"), certificates.Path("worker.key"), ca};
  EXPECT_TRUE(CanJoin(server->address(), {.tls = own}));
  EXPECT_EQ(Try(server->address(), {.tls = {"", "", ca}}).code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      Try(server->address(), {.tls = {foreign.Path("worker.pem"), foreign.Path("worker.key"), ca}})
          .code,
      absl::StatusCode::kUnavailable);
  const Refused wrong_ca =
      Try(server->address(), {.tls = {own.certificate, own.key, foreign.Path("ca.pem")}});
  EXPECT_EQ(wrong_ca.code, absl::StatusCode::kUnauthenticated) << wrong_ca.message;
  EXPECT_FALSE(wrong_ca.permanent) << "certificates are renewed";
  EXPECT_THAT(wrong_ca.message, AllOf(HasSubstr("not signed by --tls-ca"), HasSubstr("ca.pem")));
  EXPECT_EQ(Try(server->address(), {}).code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(master.Get([&] { return master.joined.size(); }), 1u);
  EXPECT_EQ(MakeMasterLink({.master = "h:1", .tls = {"", "", "/nowhere.pem"}}).status().code(),
            absl::StatusCode::kNotFound);
}

// ---- strangers

class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* found = nullptr;
    getaddrinfo("127.0.0.1", address.substr(address.rfind(':') + 1).c_str(), &hints, &found);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd_, found->ai_addr, found->ai_addrlen), 0);
    freeaddrinfo(found);
  }
  ~Stranger() { close(fd_); }
  void Say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count <= 0) return;  // closed, or no longer read
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  // Whether the other side ends the connection within `patience`.
  bool IsClosed(std::chrono::milliseconds patience) {
    const Time end = std::chrono::steady_clock::now() + patience;
    char buffer[4096];
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd wait{fd_, POLLIN, 0};
      if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
      if (recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT) <= 0) return true;
    }
  }

 private:
  int fd_ = -1;
};

long ResidentKb() {
  std::ifstream file("/proc/self/statm");
  long pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

std::string Http2Start() {
  return std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\4\0\0\0\0\0", 9);
}

std::string RandomBytes(size_t size, std::mt19937_64& random) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A call of gRPC that says `messages`, reads what comes, and its status.
grpc::Status Call(const std::string& address, const char* method,
                  const std::vector<std::string>& messages) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 10s);
  auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = true;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  for (const std::string& message : messages) {
    if (!ok) break;
    call->Write(ToBuffer(message), nullptr);
    queue.Next(&tag, &ok);
  }
  while (ok) {
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

class ClusterStrangers : public ::testing::Test {
 protected:
  ClusterStrangers() {
    server_ = Serve(master_, {.hello_timeout_ms = 500});
    worker_.on_message = [this](const MasterMessage& message) {
      if (const auto* step = std::get_if<Step>(&message)) {
        worker_.Get([&] { return link_.get(); })->Send(testing::TestOutcome(step->plan));
      }
    };
    auto link = Dial(worker_, server_->address());
    worker_.Do([&] { link_ = std::move(link); });
    EXPECT_TRUE(master_.Until([&] { return master_.joined.size() == 1; }));
  }
  ~ClusterStrangers() override {
    // The one worker has noticed nothing of it all.
    server_->Send(master_.Worker(0), Step{ReplicaId(0), testing::TestPlan(1, 1, 8)});
    EXPECT_TRUE(master_.Until([&] { return master_.messages.size() == 1; }));
    EXPECT_TRUE(master_.Get([&] { return master_.gone.empty() && master_.joined.size() == 1; }));
  }

  MasterEnd master_;
  WorkerEnd worker_;
  std::unique_ptr<ClusterServer> server_;
  std::unique_ptr<MasterLink> link_;
};

TEST_F(ClusterStrangers, SilentOnesAreClosedAfterTheHelloTimeout) {
  std::vector<std::unique_ptr<Stranger>> silent, half;
  for (int i = 0; i < 50; ++i) silent.push_back(std::make_unique<Stranger>(server_->address()));
  for (int i = 0; i < 10; ++i) {
    half.push_back(std::make_unique<Stranger>(server_->address()));
    half.back()->Say(Http2Start().substr(0, 5 + i));
  }
  for (auto& stranger : silent) EXPECT_TRUE(stranger->IsClosed(5s));
  for (auto& stranger : half) EXPECT_TRUE(stranger->IsClosed(5s));
}

TEST_F(ClusterStrangers, ForeignProtocolsEndTheirOwnConnectionOnly) {
  std::mt19937_64 random(TestSeed());
  const std::string tls_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  const std::string said[] = {
      "",
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      tls_hello + RandomBytes(500, random),
      "\xff\xff\xff\xff",
      RandomBytes(1 << 20, random),
      Http2Start() + RandomBytes(1 << 16, random),
      Http2Start() + "\xff\xff\xff\x01",  // a frame of 16 MiB
  };
  long before = 0;
  for (int round = 0; round < 6; ++round) {
    for (const std::string& bytes : said) {
      Stranger stranger(server_->address());
      stranger.Say(bytes);
      if (round > 0 || bytes.empty()) continue;
      EXPECT_TRUE(stranger.IsClosed(5s)) << bytes.substr(0, 30);
    }
    if (round == 1) before = ResidentKb();
  }
  EXPECT_LT(ResidentKb() - before, 16 << 10);
}

TEST_F(ClusterStrangers, CallsThatAreNoWorkersAreToldSo) {
  std::mt19937_64 random(TestSeed());
  const std::string address = server_->address();
  EXPECT_EQ(Call(address, "/other.Service/Method", {}).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call(address, kReadModelMethod, {RandomBytes(100, random)}).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Call(address, kJoinMethod, {RandomBytes(1000, random)}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Call(address, kJoinMethod, {SerializeWorkerMessage(Heartbeat())}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  // Silent after the call has begun.
  const grpc::Status silent = Call(address, kJoinMethod, {});
  EXPECT_EQ(silent.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(silent.error_message(), HasSubstr("heard nothing"));
}

TEST(ClusterRefusal, GarbageAfterAGoodHelloEndsThatWorkerOnly) {
  std::mt19937_64 random(TestSeed());
  MasterEnd master;
  auto server = Serve(master, {});
  WorkerEnd worker;
  auto link = Dial(worker, server->address());
  ASSERT_TRUE(worker.WaitForMessages(1));
  const grpc::Status status =
      Call(server->address(), kJoinMethod,
           {SerializeHello(TestHello("mad")), std::string("\x0a\xff\xff", 3)});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("makes no sense"));
  ASSERT_TRUE(master.Until([&] { return master.gone.size() == 1; }));
  EXPECT_THAT(std::string(master.gone[0].reason.message()), HasSubstr("worker mad"));
  server->Send(master.Worker(0), Release{ReplicaId(0)});
  EXPECT_TRUE(worker.WaitForMessages(2));
}

}  // namespace
}  // namespace staffel
