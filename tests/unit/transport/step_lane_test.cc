// The lane of plans and outcomes: frames, and who is let in.
#include "transport/grpc/step_lane.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/transport/cluster_ends.h"

namespace staffel {
namespace {

using testing::kPatience;
using testing::Waiter;

struct Lanes : Waiter {
  Lanes() {
    auto made = StepLanes::Listen();
    EXPECT_TRUE(made.ok()) << made.status();
    lanes = *std::move(made);
    lanes->Start(
        {.on_lane =
             [this](WorkerId worker, std::shared_ptr<StepLane> lane) {
               Do([&] { stand[worker] = std::move(lane); });
               return wanted;
             },
         .on_frame = [this](WorkerId,
                            std::string_view frame) { Do([&] { frames.emplace_back(frame); }); },
         .on_end = [this](WorkerId worker) { Do([&] { ended.insert(worker); }); }});
  }
  ~Lanes() { lanes = nullptr; }
  std::shared_ptr<StepLane> Lane(WorkerId worker) {
    EXPECT_TRUE(Until([&] { return stand.contains(worker); }));
    return Get([&] { return stand[worker]; });
  }

  bool wanted = true;
  std::map<WorkerId, std::shared_ptr<StepLane>> stand;
  std::vector<std::string> frames;
  std::set<WorkerId> ended;
  std::unique_ptr<StepLanes> lanes;
};

// Reads frames until there are `count` or the lane ends.
std::vector<std::string> Read(StepLane& lane, size_t count) {
  std::vector<std::string> frames;
  while (frames.size() < count) {
    pollfd input{lane.fd(), POLLIN, 0};
    poll(&input, 1, -1);
    if (!lane.Receive([&](std::string_view frame) { frames.emplace_back(frame); })) break;
  }
  return frames;
}

TEST(StepLane, FramesOfAllSizesArriveInOrderBothWays) {
  std::mt19937_64 random(TestSeed());
  std::vector<std::string> sent;
  for (size_t size : {0, 1, 4, 65531, 65532, 65536, 300000, 3 << 20}) {
    sent.push_back(std::string(size, static_cast<char>('a' + size % 26)));
  }
  for (int i = 0; i < 300; ++i) sent.push_back(std::string(random() % 2000, static_cast<char>(i)));
  Lanes master;
  const WorkerId worker(7);
  auto lane = StepLane::Connect(master.lanes->name(), master.lanes->Expect(worker));
  ASSERT_TRUE(lane.ok()) << lane.status();
  const auto other_end = master.Lane(worker);
  std::thread sender([&] {
    for (const std::string& frame : sent) EXPECT_TRUE(other_end->Send(frame));
  });
  EXPECT_EQ(Read(**lane, sent.size()), sent);
  sender.join();
  for (const std::string& frame : sent) EXPECT_TRUE((*lane)->Send(frame));
  ASSERT_TRUE(master.Until([&] { return master.frames.size() == sent.size(); }));
  EXPECT_EQ(master.frames, sent);
}

TEST(StepLane, AnEndIsToldAndSeen) {
  Lanes master;
  auto first = StepLane::Connect(master.lanes->name(), master.lanes->Expect(WorkerId(1)));
  auto second = StepLane::Connect(master.lanes->name(), master.lanes->Expect(WorkerId(2)));
  ASSERT_TRUE(first.ok() && second.ok());
  const auto other_end = master.Lane(WorkerId(1));
  master.Lane(WorkerId(2));
  first->reset();
  EXPECT_TRUE(master.Until([&] { return master.ended.contains(WorkerId(1)); }));
  EXPECT_FALSE(other_end->Send("too late"));
  master.lanes = nullptr;
  EXPECT_TRUE(Read(**second, 1).empty());
  EXPECT_EQ(master.ended.size(), 1u);
}

TEST(StepLane, StrangersAreTurnedAway) {
  Lanes master;
  const std::string secret = master.lanes->Expect(WorkerId(1));
  const auto refused = [&](const std::string& shown) {
    auto lane = StepLane::Connect(master.lanes->name(), shown);
    return lane.ok() && Read(**lane, 1).empty();
  };
  EXPECT_TRUE(refused(std::string(secret.size(), '0')));
  const std::string forgotten = master.lanes->Expect(WorkerId(2));
  master.lanes->Forget(WorkerId(2));
  EXPECT_TRUE(refused(forgotten));
  // A secret lets in once.
  auto lane = StepLane::Connect(master.lanes->name(), secret);
  ASSERT_TRUE(lane.ok());
  master.Lane(WorkerId(1));
  EXPECT_TRUE(refused(secret));
  EXPECT_TRUE((*lane)->Send("still here"));
  EXPECT_TRUE(master.Until([&] { return master.frames.size() == 1; }));
  // And only whom the server wants.
  master.wanted = false;
  EXPECT_TRUE(refused(master.lanes->Expect(WorkerId(3))));
  EXPECT_FALSE(StepLane::Connect("staffel-steps-nobody", secret).ok());
  EXPECT_FALSE(StepLane::Connect(master.lanes->name(), "short").ok());
}

// Frames that cannot be end the lane, and nothing is allocated for them.
TEST(StepLane, NonsenseEndsTheLane) {
  Lanes master;
  auto lane = StepLane::Connect(master.lanes->name(), master.lanes->Expect(WorkerId(1)));
  ASSERT_TRUE(lane.ok());
  master.Lane(WorkerId(1));
  ASSERT_EQ(send((*lane)->fd(), "\xff\xff\xff\xff....", 8, 0), 8);
  EXPECT_TRUE(master.Until([&] { return master.ended.contains(WorkerId(1)); }));
}

}  // namespace
}  // namespace staffel
