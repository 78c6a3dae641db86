// How a worker finds its master, loses it, and leaves it.
#include "app/worker_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/unit/app/node_under_test.h"

namespace staffel::testing {
namespace {

using std::chrono::milliseconds;

// One connection, as its script says: Welcome or not, and how it ends.
struct Script {
  bool welcome = true;
  Status gone;  // OK: stays
  bool permanent = false;
};

class ScriptedLink final : public MasterLink {
 public:
  ScriptedLink(Script script, std::function<void(const WorkerMessage&)> on_send)
      : script_(std::move(script)), on_send_(std::move(on_send)) {}
  ~ScriptedLink() override { thread_.join(); }
  void Start(MasterHandler* handler) override {
    thread_ = std::thread([this, handler] {
      if (script_.welcome) handler->OnMessage(Welcome{});
      if (!script_.gone.ok()) handler->OnGone(script_.gone, script_.permanent);
    });
  }
  void Send(const WorkerMessage& message) override { on_send_(message); }
  void SetHeartbeat(std::function<Heartbeat()> heartbeat) override {
    EXPECT_FALSE(heartbeat().replica.valid());
  }
  std::string local_address() const override { return "127.0.0.1"; }
  Status ReadModel(const std::string&, absl::Span<const ModelRange>,
                   const std::function<Status(absl::Span<const uint8_t>)>&) override {
    return absl::NotFoundError("no model here");
  }

 private:
  const Script script_;
  const std::function<void(const WorkerMessage&)> on_send_;
  std::thread thread_;
};

class WorkerSessionTest : public ::testing::Test {
 protected:
  WorkerSessionTest()
      : node_(
            {}, *MakeCpuBackend({.threads = 1}),
            [](const std::string&) { return MakeMeshEndpoint({}); }, clock_) {}

  std::unique_ptr<WorkerSession> Make() {
    Hello hello;
    hello.name = "w";
    hello.devices.emplace_back();
    return std::make_unique<WorkerSession>(
        &node_, hello,
        [this](const Hello& told) -> Result<std::unique_ptr<MasterLink>> {
          EXPECT_EQ(told.name, "w");
          EXPECT_GT(told.devices[0].memory_bytes, 0);
          ++dials_;
          if (scripts_.empty()) return absl::InvalidArgumentError("no such address");
          Script script = scripts_.front();
          scripts_.pop_front();
          return std::make_unique<ScriptedLink>(script, [this](const WorkerMessage& message) {
            leaving_ += std::holds_alternative<Leaving>(message);
          });
        },
        [this] { ++joined_; });
  }

  SystemClock clock_;
  WorkerNode node_;
  std::deque<Script> scripts_;
  std::atomic<int> dials_ = 0, joined_ = 0, leaving_ = 0;
};

TEST_F(WorkerSessionTest, DialsAgainUntilARefusalThatIsPermanent) {
  const Status lost = absl::UnavailableError("the master is gone");
  scripts_ = {{true, lost},
              {false, lost},
              {false, lost},
              {true, lost},
              {false, absl::UnauthenticatedError("wrong token"), true},
              {true, {}}};
  const Status ended = Make()->Run();
  EXPECT_TRUE(absl::IsUnauthenticated(ended)) << ended;
  EXPECT_EQ(dials_, 5);
  EXPECT_EQ(joined_, 2);
}

TEST_F(WorkerSessionTest, PausesAreLongerWhereTheTwoDoNotTrustEachOther) {
  const Status distrust = absl::UnauthenticatedError("its certificate is not signed by ...");
  scripts_ = {{false, distrust}, {false, distrust}};
  const Time begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(absl::IsInvalidArgument(Make()->Run()));  // the scripts are at their end
  EXPECT_EQ(dials_, 3);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(660 + 1330));
}

TEST_F(WorkerSessionTest, AnAddressThatCannotBeEndsIt) {
  EXPECT_TRUE(absl::IsInvalidArgument(Make()->Run()));
}

TEST_F(WorkerSessionTest, LeavesInOrder) {
  scripts_ = {{true, {}}};
  std::unique_ptr<WorkerSession> session = Make();
  std::thread thread([&] { EXPECT_EQ(session->Run(), absl::OkStatus()); });
  const Time deadline = std::chrono::steady_clock::now() + kPatience;
  while (joined_ == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  // With a part in a replica the worker stays until it is released, or as long as it may.
  session->OnMessage(Configure{ReplicaId(0), {}, {}, 0, {}});
  const Time begin = std::chrono::steady_clock::now();
  session->Leave("SIGTERM", milliseconds(60));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(60));
  EXPECT_EQ(leaving_, 1);
  std::thread master([&] {
    std::this_thread::sleep_for(milliseconds(30));
    session->OnMessage(Release{ReplicaId(0)});
  });
  session->Leave("SIGTERM", kPatience);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience / 2);
  master.join();
  session->Stop();
  thread.join();
}

TEST_F(WorkerSessionTest, StopsWhileNoMasterAnswers) {
  for (int i = 0; i < 1000; ++i) scripts_.push_back({false, absl::UnavailableError("refused")});
  std::unique_ptr<WorkerSession> session = Make();
  std::thread thread([&] { EXPECT_EQ(session->Run(), absl::OkStatus()); });
  while (dials_ < 2) std::this_thread::sleep_for(milliseconds(1));
  const Time begin = std::chrono::steady_clock::now();
  session->Leave("SIGTERM", kPatience);  // nobody to take leave of
  session->Stop();
  thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace staffel::testing
