#include "engine/replica_router.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <string>
#include <thread>

namespace staffel {
namespace {

// Takes requests until it is full, and ends them when the test says so.
class FakeReplica final : public EngineClient {
 public:
  Status Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) override {
    if (!answer.ok()) return answer;
    ++now.running;
    open.push_back({request.id, std::move(sink), request.n});
    ids.push_back(request.id.value);
    return absl::OkStatus();
  }
  void Cancel(RequestId request, int index) override {
    cancelled.emplace_back(request.value, index);
  }
  EngineLimits limits() const override { return limit; }
  EngineStats stats() const override { return now; }
  Status health() const override { return health_status; }

  void End(FinishReason reason = FinishReason::kLength) {  // the oldest
    for (int i = 0; i < open.front().n; ++i) {
      open.front().sink->OnEvent({.request = open.front().id, .index = i, .finish = reason});
    }
    open.pop_front();
    --now.running;
  }

  struct Open {
    RequestId id;
    std::shared_ptr<EventSink> sink;
    int n;
  };
  std::deque<Open> open;
  std::vector<uint64_t> ids;
  std::vector<std::pair<uint64_t, int>> cancelled;
  EngineStats now;
  EngineLimits limit;
  Status answer, health_status;
};

class CountingSink final : public EventSink {
 public:
  void OnEvent(const SeqEvent& event) override { ends += event.finish.has_value(); }
  int ends = 0;
};

class RouterTest : public testing::Test {
 protected:
  void Make(int count, ReplicaRouterOptions options = {}) {
    std::vector<EngineClient*> clients;
    replicas = std::vector<FakeReplica>(count);
    for (FakeReplica& replica : replicas) clients.push_back(&replica);
    router = std::make_unique<ReplicaRouter>(clients, options);
  }
  // A prompt of `count` tokens from `first` on. Returns its replica, -1 if it was refused.
  int Submit(int first, int count, const std::string& salt = "", int n = 1) {
    GenerateRequest request{.id = RequestId(++last_id), .n = n, .cache_salt = salt};
    request.prompt.resize(count);
    std::iota(request.prompt.begin(), request.prompt.end(), first);
    last_status = router->Submit(std::move(request), sink);
    return router->ReplicaOf(RequestId(last_id));
  }
  void EndAll() {
    for (FakeReplica& replica : replicas) {
      while (!replica.open.empty()) replica.End();
    }
  }

  std::vector<FakeReplica> replicas;
  std::unique_ptr<ReplicaRouter> router;
  std::shared_ptr<CountingSink> sink = std::make_shared<CountingSink>();
  uint64_t last_id = 0;
  Status last_status;
};

TEST_F(RouterTest, UnknownPromptsGoToTheLeastBusyInTurn) {
  Make(3);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(Submit(1000 * i, 100), i % 3);
  EndAll();
  EXPECT_EQ(sink->ends, 9);
  replicas[0].now.waiting = 5;
  replicas[1].now.running = 4;
  replicas[2].now.running = 6;
  EXPECT_EQ(Submit(50000, 100), 1);
  replicas[0].now = replicas[1].now = replicas[2].now = {};
  replicas[0].now.blocks_total = replicas[1].now.blocks_total = replicas[2].now.blocks_total = 100;
  replicas[0].now.blocks_free = 40;
  replicas[1].now.blocks_free = 40;
  replicas[1].now.blocks_cached = 30;
  EXPECT_EQ(Submit(60000, 100), 1) << "holds the fewest blocks";
}

TEST_F(RouterTest, APromptGoesWhereItsStartWasComputed) {
  Make(4);
  const int home = Submit(0, 300);
  EndAll();
  for (int i = 0; i < 3; ++i) Submit(1000 * (i + 1), 300);
  EndAll();
  EXPECT_EQ(Submit(0, 500), home) << "the conversation goes on";
  EXPECT_EQ(Submit(0, 70), home) << "one block is enough";
  EndAll();
  int elsewhere = 0;
  for (int i = 0; i < 4; ++i) elsewhere += Submit(0, 500, "tenant") != home;
  EXPECT_GE(elsewhere, 2) << "another salt shares nothing";
  elsewhere = 0;
  for (int i = 0; i < 4; ++i) elsewhere += Submit(0, 60) != home;
  EXPECT_GE(elsewhere, 3) << "shorter than a block";
}

TEST_F(RouterTest, TheLongerMatchWins) {
  Make(2);
  const int first = Submit(0, 128);
  const int second = 1 - first;
  // The same start, then something else, computed by the other replica.
  GenerateRequest request{.id = RequestId(++last_id)};
  request.prompt.resize(256);
  std::iota(request.prompt.begin(), request.prompt.begin() + 128, 0);
  std::iota(request.prompt.begin() + 128, request.prompt.end(), 7000);
  replicas[first].answer = absl::ResourceExhaustedError("full");
  ASSERT_TRUE(router->Submit(request, sink).ok());
  ASSERT_EQ(router->ReplicaOf(request.id), second);
  replicas[first].answer = absl::OkStatus();
  EndAll();
  request.id = RequestId(++last_id);
  replicas[second].now.running = 3;
  ASSERT_TRUE(router->Submit(request, sink).ok());
  EXPECT_EQ(router->ReplicaOf(request.id), second);
}

TEST_F(RouterTest, AStickyReplicaMayBeSomewhatBusierOnly) {
  Make(2);
  const int home = Submit(0, 640);
  EndAll();
  replicas[home].now.running = 8;
  EXPECT_EQ(Submit(0, 640), home);
  replicas[home].now.running = 9;
  EXPECT_EQ(Submit(0, 640), 1 - home) << "now both have it";
  replicas[0].now = replicas[1].now = {};
  replicas[1 - home].now.running = 1;
  EXPECT_EQ(Submit(0, 640), home) << "the less busy of those that have it";
  replicas[0].now = replicas[1].now = {};
  Submit(5000, 64);
  const int other = router->ReplicaOf(RequestId(last_id));
  replicas[0].now = replicas[1].now = {};
  replicas[other].now.running = 2;
  EXPECT_EQ(Submit(5000, 6400), 1 - other) << "a hundredth of the prompt is worth little";
}

TEST_F(RouterTest, AFullReplicaPassesItOn) {
  Make(3);
  const int home = Submit(0, 640);
  EndAll();
  replicas[home].answer = absl::ResourceExhaustedError("home is full");
  const int next = Submit(0, 640);
  EXPECT_TRUE(last_status.ok());
  EXPECT_NE(next, home);
  replicas[home].answer = absl::UnavailableError("home has failed");
  EXPECT_GE(Submit(0, 640), 0);
  for (FakeReplica& replica : replicas) replica.answer = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Submit(0, 640), -1);
  EXPECT_EQ(last_status, absl::ResourceExhaustedError("full"));
  replicas[0].answer = replicas[1].answer = replicas[2].answer =
      absl::InvalidArgumentError("too long");
  EXPECT_EQ(Submit(0, 640), -1);
  EXPECT_EQ(last_status.message(), "too long");
}

TEST_F(RouterTest, UnhealthyReplicasGetNothingNewWhileAnotherServes) {
  Make(3);
  const int home = Submit(0, 640);
  replicas[home].health_status = absl::UnavailableError("rank 1 is gone");
  for (int i = 0; i < 6; ++i) EXPECT_NE(Submit(0, 640), home);
  EXPECT_EQ(router->ReplicaOf(RequestId(1)), home) << "what waits for healing stays";
  EXPECT_TRUE(router->health().ok());
  for (FakeReplica& replica : replicas) replica.health_status = absl::UnavailableError("gone");
  EXPECT_EQ(router->health().message(),
            "none of the 3 replicas serves: replica 0: gone; replica 1: gone; replica 2: gone");
  EXPECT_GE(Submit(0, 640), 0) << "it waits with one of them";
  replicas[home].health_status = absl::OkStatus();
  EXPECT_EQ(Submit(0, 640), home);
}

TEST_F(RouterTest, CancelGoesToTheOneThatHasIt) {
  Make(2);
  Submit(0, 10);
  Submit(0, 10);
  router->Cancel(RequestId(2), 1);
  router->Cancel(RequestId(99));
  const int replica = router->ReplicaOf(RequestId(2));
  ASSERT_EQ(replicas[replica].cancelled.size(), 1u);
  EXPECT_EQ(replicas[replica].cancelled[0], std::make_pair(uint64_t{2}, 1));
  EXPECT_TRUE(replicas[1 - replica].cancelled.empty());
  EndAll();
  router->Cancel(RequestId(2));
  EXPECT_EQ(replicas[replica].cancelled.size(), 1u) << "it has ended";
}

TEST_F(RouterTest, ARequestIsOpenUntilItsLastSequenceEnds) {
  Make(2);
  const int replica = Submit(0, 10, "", 2);
  FakeReplica::Open open = replicas[replica].open.front();
  open.sink->OnEvent({.request = open.id, .index = 1, .finish = FinishReason::kStop});
  EXPECT_EQ(router->ReplicaOf(open.id), replica);
  EXPECT_EQ(router->Submit({.id = open.id, .prompt = {1}}, sink).message(),
            "request 1 exists already");
  open.sink->OnEvent({.request = open.id, .index = 0, .finish = FinishReason::kStop});
  EXPECT_EQ(router->ReplicaOf(open.id), -1);
  EXPECT_TRUE(router->Submit({.id = open.id, .prompt = {1}}, sink).ok());
}

TEST_F(RouterTest, OldPrefixesAreForgottenTheirStartsLast) {
  ReplicaRouterOptions options;
  options.prefixes_max = 12;
  Make(2, options);
  const int home = Submit(0, 640);  // ten blocks
  EndAll();
  Submit(50000, 448);  // seven: five of the first prompt are left
  EndAll();
  replicas[home].now.running = 4;
  EXPECT_EQ(Submit(0, 640), home) << "half of it is worth four sequences";
  EndAll();
  replicas[home].now.running = 0;
  Submit(90000, 640);
  Submit(70000, 640);
  EndAll();
  replicas[home].now.running = 1;
  EXPECT_EQ(Submit(0, 640), 1 - home);
}

TEST_F(RouterTest, LimitsAreTheLeastAndStatsTheSum) {
  Make(2);
  replicas[0].limit = {
      .max_model_len = 100, .kv_capacity_tokens = 50, .vocab_size = 9, .max_queue = 8};
  replicas[1].limit = {
      .max_model_len = 90, .kv_capacity_tokens = 60, .vocab_size = 9, .max_queue = 7};
  EXPECT_EQ(router->limits().max_model_len, 90);
  EXPECT_EQ(router->limits().kv_capacity_tokens, 50);
  EXPECT_EQ(router->limits().max_queue, 7);
  replicas[0].now = {.running = 1, .waiting = 2, .steps = 10, .last_step_age_s = 3, .epoch = 4};
  replicas[1].now = {.running = 5, .waiting = 1, .steps = 20, .last_step_age_s = 1, .epoch = 2};
  const EngineStats stats = router->stats();
  EXPECT_EQ(stats.running, 6);
  EXPECT_EQ(stats.waiting, 3);
  EXPECT_EQ(stats.steps, 30u);
  EXPECT_EQ(stats.epoch, 4);
  EXPECT_EQ(stats.last_step_age_s, 3);
}

TEST_F(RouterTest, EventsAfterTheRoutersEndArePassedOn) {
  Make(1);
  Submit(0, 10);
  router.reset();
  EndAll();
  EXPECT_EQ(sink->ends, 1);
}

TEST_F(RouterTest, TheSameCallsGiveTheSameChoices) {
  std::vector<int> choices[2];
  for (auto& made : choices) {
    Make(3);
    last_id = 0;
    for (int i = 0; i < 200; ++i) {
      made.push_back(Submit(i * i % 7 * 1000, 64 + i % 5 * 64));
      if (i % 3 == 0) EndAll();
    }
  }
  EXPECT_EQ(choices[0], choices[1]);
}

}  // namespace
}  // namespace staffel
