// From Configure to ReplicaServing, and what stops it on the way.
#include <limits>

#include "plan/placement.h"
#include "tests/unit/cluster/fixture.h"

namespace staffel::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Formation : public ManagerTest {};

TEST_F(Formation, WaitsForAllWorkersThenServes) {
  Start({PoolOf("m", 2, 1)});
  const WorkerId a = Join("a");
  EXPECT_THAT(To<Configure>(), IsEmpty());
  EXPECT_THAT(Health(), AllOf(HasSubstr("waits for 1 more worker"), HasSubstr("needs 2, 1 is")));
  const WorkerId b = Join("b");
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
  EXPECT_EQ(Last<Configure>(b)->rank, 1);
  EXPECT_EQ(Last<Configure>(b)->plan.epoch, 1);
  EXPECT_EQ(Last<Configure>(b)->model.path, "m.gguf");
  AnswerConfigure(a);
  EXPECT_THAT(actions, IsEmpty()) << "Form only after every Capacity";
  AnswerConfigure(b);
  EXPECT_THAT(To<Form>(), ElementsAre("a", "b"));
  const Form form = *Last<Form>(a);
  EXPECT_THAT(form.addresses, ElementsAre("comm-0", "comm-1"));
  EXPECT_THAT(form.machines, ElementsAre("m-host-a", "m-host-b"));
  EXPECT_EQ(form.secret.size(), 64u);
  EXPECT_EQ(form.secret, Last<Form>(b)->secret);
  EXPECT_EQ(Replica0().state, ReplicaState::kLoading);
  Say(a, FormProgress{ReplicaId(0), 1, 0.25});
  Say(b, FormProgress{ReplicaId(0), 1, 0.5});
  EXPECT_THAT(Health(), HasSubstr("25 % done"));
  AnswerForm(b);
  EXPECT_FALSE(Is<ReplicaServing>());
  AnswerForm(a);
  ASSERT_TRUE(Is<ReplicaServing>());
  const ReplicaServing serving = All<ReplicaServing>()[0];
  EXPECT_EQ(serving.epoch, 1);
  EXPECT_EQ(serving.block_count, form.block_count);
  EXPECT_THAT(serving.workers, ElementsAre(a, b));
  EXPECT_EQ(Health(), "");
}

TEST_F(Formation, ServesWithWhatIsThereWhenTheWaitIsOver) {
  Start({PoolOf("m", 2, 1)});
  Pass(std::chrono::hours(1));  // of nobody
  const WorkerId a = Join("a");
  EXPECT_THAT(Health(), AllOf(HasSubstr("waits for 1 more worker"), HasSubstr("after 60 s")));
  Pass(std::chrono::seconds(59));
  EXPECT_THAT(To<Configure>(), IsEmpty());
  Pass(std::chrono::seconds(1));
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  EXPECT_THAT(Logs(), HasSubstr("fewer workers than asked for: waits for 1 more worker"));
  FormAll({a});
  ASSERT_TRUE(Is<ReplicaServing>());
  EXPECT_TRUE(Replica0().degraded);
  EXPECT_THAT(Replica0().reason,
              AllOf(HasSubstr("fewer workers than asked for"), HasSubstr("1 more worker")));
  EXPECT_THAT(manager_->Degraded(now, ReplicaId(0)),
              AllOf(HasSubstr("model \"m\" replica 0"), HasSubstr("1 more worker")));
  Idle();
  Pass(std::chrono::seconds(1));
  const WorkerId b = Join("b");
  Pass(std::chrono::seconds(1));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
  FormAll({a, b});
  EXPECT_FALSE(Replica0().degraded);
  EXPECT_EQ(manager_->Degraded(now, ReplicaId(0)), "");
}

TEST_F(Formation, TheWaitBeginsWithTheFirstWorkerThatStays) {
  Start({PoolOf("m", 2, 1)});
  const WorkerId a = Join("a");
  Pass(std::chrono::seconds(50));
  Gone(a);
  Pass(std::chrono::seconds(1));
  Join("a");
  Pass(std::chrono::seconds(59));
  EXPECT_THAT(To<Configure>(), IsEmpty());
  Pass(std::chrono::seconds(1));
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
}

TEST_F(Formation, WhereAnotherLayoutIsNotAllowedAllWorkersAreWaitedFor) {
  PoolConfig pool = PoolOf("m", 2, 2);
  pool.allow_degraded = false;
  Start({pool});
  Join("a");
  Pass(std::chrono::hours(1));
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_THAT(Health(), AllOf(HasSubstr("waits for 3 more workers"), Not(HasSubstr("after"))));
}

TEST_F(Formation, ModelThatDoesNotFitFewerWaitsAndSaysSo) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.shape.layer_bytes = 400 << 20;  // two workers of 1 GiB hold it, one does not
  Start({pool});
  Join("a");
  Pass(std::chrono::seconds(61));
  EXPECT_THAT(To<Configure>(), IsEmpty());
  EXPECT_THAT(Health(), AllOf(HasSubstr("waits for 1 more worker"), HasSubstr("MiB of memory")));
  Join("b");
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
}

TEST_F(Formation, LayoutThatCannotWorkIsRefusedWithTheNumbers) {
  struct Case {
    int tp, pp, dp;
    std::vector<std::string> words;
  };
  for (const Case& c : {Case{5, 1, 1, {"5", "4 heads", "2 KV heads"}},
                        Case{1, 5, 1, {"5", "4 layers"}}, Case{1, 1, -1, {"-1", "negative"}}}) {
    Options options;
    options.secret_key = {1, 2};
    const Status status = Manager::Create(options, {PoolOf("m", c.tp, c.pp, c.dp)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"m\""));
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
  EXPECT_FALSE(Manager::Create({}, {PoolOf("m", 1, 1)}).ok()) << "no secret key";
}

TEST_F(Formation, RefusalIsKeptForHealthAndTheWorkerTriedAgain) {
  Start({PoolOf("m", 1, 1)});
  const WorkerId a = Join("a");
  Capacity refusal = GoodCapacity(*Last<Configure>(a));
  refusal.status = absl::ResourceExhaustedError("the shard needs 210 MiB, 200 MiB are free");
  Say(a, refusal);
  EXPECT_THAT(To<Abort>(), ElementsAre("a"));
  EXPECT_THAT(Health(), AllOf(HasSubstr("rank 0"), HasSubstr("needs 210 MiB, 200 MiB")));
  Pass(Ms(500));
  EXPECT_THAT(To<Configure>(), IsEmpty());
  EXPECT_THAT(Health(), AllOf(HasSubstr("waits for 1 more worker"), HasSubstr("set aside"),
                              HasSubstr("needs 210 MiB, 200 MiB")));
  Pass(Ms(600));
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  EXPECT_EQ(Last<Configure>(a)->plan.epoch, 2);
}

TEST_F(Formation, AnotherWorkerTakesThePlaceOfOneThatRefuses) {
  Start({PoolOf("m", 1, 1)});
  const WorkerId a = Join("a");
  Join("b");
  Capacity refusal = GoodCapacity(*Last<Configure>(a));
  refusal.status = absl::NotFoundError("no file");
  Say(a, refusal);
  EXPECT_THAT(To<Configure>(), IsEmpty()) << "after a pause";
  Pass(Ms(250));
  EXPECT_THAT(To<Configure>(), ElementsAre("b"));
}

TEST_F(Formation, SharesReckonWithTheMemoryThatCapacityHasShown) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.shape.layer_bytes = 200 << 20;
  Start({pool});
  const WorkerId a = Join("a"), b = Join("b");
  AnswerConfigure(a);
  Capacity small = GoodCapacity(*Last<Configure>(b));
  small.weight_bytes = 400 << 20;
  small.memory_bytes = 100 << 10;  // for 25 of the 64 blocks of one context
  Say(b, small);
  EXPECT_THAT(Health(), AllOf(HasSubstr("rank 1"), HasSubstr("1024 tokens")));
  EXPECT_EQ(manager_->Describe(now).workers[1].state, WorkerState::kSpare) << "not its fault";
  EXPECT_EQ(manager_->Describe(now).workers[1].memory_bytes, (400 << 20) + (100 << 10));
  Pass(Ms(250));
  ASSERT_THAT(To<Configure>(), ElementsAre("a", "b"));
  EXPECT_LT(WeightBytes(pool.shape, Last<Configure>(b)->plan.ranks[1]), 400 << 20);
}

TEST_F(Formation, WorkersThatTakeFromTheSameMemoryShareIt) {
  Start({PoolOf("m", 2, 1), PoolOf("n", 1, 1)});
  Hello hello;
  hello.memory_pool = "kernel-1";
  hello.devices = {{.memory_bytes = int64_t{900} << 20}};
  const WorkerId a = Join("a", hello);
  FormAll({a});  // model n
  EXPECT_EQ(Last<Configure>(a)->memory_bytes, int64_t{900} << 20) << "there is no other worker";
  // It uses 100 MiB and its KV pool. Who comes later sees that as missing.
  const int64_t used = (int64_t{100} << 20) + int64_t{4096} * All<ReplicaServing>()[0].block_count;
  hello.devices[0].memory_bytes -= used;
  const WorkerId b = Join("b", hello), c = Join("c", hello);
  Pass(std::chrono::seconds(1));
  const int64_t share = ((int64_t{900} << 20) - used) / 2;
  EXPECT_EQ(Last<Configure>(b)->memory_bytes, share);
  EXPECT_EQ(Last<Configure>(c)->memory_bytes, share);
  EXPECT_EQ(manager_->Describe(now).workers[1].memory_bytes, share);
}

TEST_F(Formation, MemoryIsNotPromisedToTwoWorkersOfAHost) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.shape.layer_bytes = 300 << 20;
  Start({pool});
  Hello hello;
  hello.memory_pool = "kernel-1";
  hello.devices = {{.memory_bytes = int64_t{1} << 30}};
  Join("a", hello);
  Join("b", hello);
  Pass(std::chrono::seconds(1));
  EXPECT_THAT(Health(), AllOf(HasSubstr("512 MiB of memory"), Not(HasSubstr("1024 MiB"))));
  Hello roomy;
  roomy.devices = {{.memory_bytes = int64_t{1} << 30}};
  Join("c", roomy);
  Join("d", roomy);
  Pass(std::chrono::seconds(1));
  EXPECT_THAT(Health(), HasSubstr("is being placed"));
}

TEST_F(Formation, BlockCountIsThatOfTheRankWithLeastRoom) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.kv_memory_bytes = 80000;
  Start({pool});
  const WorkerId a = Join("a"), b = Join("b");
  AnswerConfigure(a);
  Capacity wide = GoodCapacity(*Last<Configure>(b));
  wide.kv_bytes_per_block = 8000;
  Say(b, wide);
  EXPECT_EQ(Last<Form>(a)->block_count, 10);
  EXPECT_EQ(Last<Form>(b)->block_count, 10);
}

TEST_F(Formation, SilentWorkerIsNamedAndReplaced) {
  Start({PoolOf("m", 2, 1)});
  const WorkerId a = Join("a");
  Join("b");
  Join("c");
  AnswerConfigure(a);
  Pass(std::chrono::seconds(31));
  EXPECT_THAT(Logs(), AllOf(HasSubstr("rank 1, worker \"b\""), HasSubstr("Configure within 30 s")));
  EXPECT_THAT(To<Abort>(), ElementsAre("a", "b"));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "c"));
}

TEST_F(Formation, LoadMayTakeLongWhileItMoves) {
  Start({PoolOf("m", 2, 1)});
  const WorkerId a = Join("a"), b = Join("b");
  AnswerConfigure(a);
  AnswerConfigure(b);
  AnswerForm(a);
  for (int i = 1; i <= 10; ++i) {
    Pass(std::chrono::seconds(50));
    Say(b, FormProgress{ReplicaId(0), 1, 0.05 * i});
    EXPECT_EQ(Replica0().state, ReplicaState::kLoading);
  }
  Pass(std::chrono::seconds(61));
  EXPECT_THAT(Logs(), AllOf(HasSubstr("rank 1, worker \"b\""), HasSubstr("no progress for 60 s"),
                            HasSubstr("50 %")));
}

// The newest of them is blamed each time, and eligible again before the next attempt, since both
// come anew in turns: without a limit they would try for ever.
TEST_F(Formation, RanksThatNeverReachEachOtherGiveWayToASmallerLayout) {
  Start({PoolOf("m", 2, 1)});
  WorkerId a = Join("a"), b = Join("b");
  int attempts = 0;
  while (To<Configure>().size() == 2) {
    ASSERT_LT(++attempts, 20);
    AnswerConfigure(a);
    AnswerConfigure(b);
    AnswerForm(a, absl::DeadlineExceededError("misses rank 1"));
    AnswerForm(b, absl::DeadlineExceededError("misses rank 0"));
    WorkerId& again = attempts % 2 == 0 ? b : a;
    Gone(again);
    again = Join(attempts % 2 == 0 ? "b" : "a");
    for (int s = 0; s < 60 && To<Configure>().empty(); ++s) Pass(std::chrono::seconds(1));
  }
  EXPECT_GE(attempts, 3);
  ASSERT_EQ(To<Configure>().size(), 1u);
  EXPECT_THAT(Logs(), HasSubstr("attempts have failed; the 1 worker that did"));
  FormAll({To<Configure>()[0] == "a" ? a : b});
  EXPECT_TRUE(Is<ReplicaServing>());
  EXPECT_TRUE(Replica0().degraded);
}

TEST_F(Formation, WordsOfOtherEpochsAndNonsenseAreIgnored) {
  Start({PoolOf("m", 1, 1)});
  const WorkerId a = Join("a"), b = Join("b");
  Capacity capacity = GoodCapacity(*Last<Configure>(a));
  capacity.epoch = 7;
  Say(a, capacity);
  EXPECT_THAT(actions, IsEmpty());
  capacity.epoch = 1;
  Say(b, capacity);  // no rank
  EXPECT_THAT(actions, IsEmpty());
  Say(a, Formed{.replica = ReplicaId(0), .epoch = 1});  // before Form
  EXPECT_THAT(actions, IsEmpty());
  Say(a, FormProgress{ReplicaId(5), 1, 0.5});
  Say(a, StepOutcome{});
  Say(WorkerId(99), capacity);
  EXPECT_THAT(actions, IsEmpty());
  Say(a, capacity);
  EXPECT_THAT(To<Form>(), ElementsAre("a"));
  Say(a, FormProgress{ReplicaId(0), 1, std::numeric_limits<double>::quiet_NaN()});
  Say(a, FormProgress{ReplicaId(0), 1, 1e300});
  EXPECT_EQ(Replica0().load_share, 1);
}

TEST_F(Formation, RanksThatMissEachOtherAreTriedInOtherCompany) {
  Start({PoolOf("m", 2, 1)});
  std::map<std::string, WorkerId> workers;
  for (const char* name : {"a", "b", "c"}) workers[name] = Join(name);
  // a and b do not reach each other; c reaches both.
  for (int attempt = 0; attempt < 10 && Replica0().state != ReplicaState::kServing; ++attempt) {
    const ReplicaStatus replica = Replica0();
    std::vector<std::string> names;
    for (const RankStatus& rank : replica.ranks) names.push_back(rank.name);
    const bool parted = names == std::vector<std::string>{"a", "b"};
    for (const std::string& name : names) AnswerConfigure(workers[name]);
    for (const std::string& name : names) {
      AnswerForm(workers[name],
                 parted ? absl::DeadlineExceededError("a rank is missing") : absl::OkStatus());
    }
    if (Replica0().state != ReplicaState::kServing) Pass(Ms(400));
  }
  EXPECT_EQ(Replica0().state, ReplicaState::kServing);
  EXPECT_LE(Replica0().epoch, 2);
}

TEST_F(Formation, OpenLayoutWaitsAMomentForMoreWorkers) {
  Start({PoolOf("m", 0, 0)});
  Join("a", {.host = "h"});
  EXPECT_THAT(To<Configure>(), IsEmpty());
  now += Ms(300);
  Join("b", {.host = "h"});
  Pass(Ms(499));
  EXPECT_THAT(To<Configure>(), IsEmpty());
  Pass(Ms(1));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
}

TEST_F(Formation, TensorGroupsStayOnAMachine) {
  Start({PoolOf("m", 2, 2)});
  for (auto [name, host] : {std::pair{"a", "x"}, {"b", "y"}, {"c", "y"}, {"d", "x"}}) {
    Join(name, {.host = host});
  }
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "d", "b", "c"));
}

TEST_F(Formation, ReplicasOfAPoolDivideItsWorkers) {
  Start({PoolOf("m", 0, 0, 2)});
  for (const char* name : {"a", "b", "c", "d"}) Join(name, {.host = "h"});
  Pass(Ms(500));
  const PoolStatus pool = manager_->Describe(now).pools[0];
  EXPECT_EQ(pool.replicas[0].ranks.size(), 2u);
  EXPECT_EQ(pool.replicas[1].ranks.size(), 2u);
}

TEST_F(Formation, PoolsTakeWorkersByLabelsAndLeaveSpecialOnesAlone) {
  PoolConfig vision = PoolOf("vision", 1, 1);
  vision.labels["kind"] = "vision";
  Start({PoolOf("chat", 1, 1), vision});
  Join("a", {.labels = {{"kind", "vision"}}});
  // Only a special worker is there: the first pool takes it rather than wait.
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  EXPECT_THAT(std::string(manager_->Health(now, ReplicaId(1)).message()),
              HasSubstr("1 more worker with kind=vision"));
  FormAll({WorkerId(1)});
  // With another, both pools are served.
  Join("b");
  EXPECT_THAT(To<Abort>(), ElementsAre("a"));
  EXPECT_THAT(To<Release>(), ElementsAre("a"));
  const Snapshot snapshot = manager_->Describe(now);
  EXPECT_EQ(snapshot.pools[0].replicas[0].ranks[0].name, "b");
  EXPECT_EQ(snapshot.pools[1].replicas[0].ranks[0].name, "a");
}

TEST_F(Formation, SecretsDifferByEpochAndReplica) {
  Start({PoolOf("m", 1, 1, 2)});
  const WorkerId a = Join("a"), b = Join("b");
  FormAll({a, b});
  const std::string first = Last<Form>(a)->secret, other = Last<Form>(b)->secret;
  Gone(b);
  const WorkerId again = Join("b");
  AnswerConfigure(again);
  EXPECT_NE(first, other);
  EXPECT_NE(other, Last<Form>(again)->secret);
}

TEST_F(Formation, WhatHelloSaysIsNotTrusted) {
  Start({PoolOf("m", 1, 1)});
  Hello hello;
  hello.devices = {{.memory_bytes = -5, .speed = std::numeric_limits<double>::quiet_NaN()}};
  const WorkerId a = Join("a", hello);
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  Capacity nonsense = GoodCapacity(*Last<Configure>(a));
  nonsense.kv_bytes_per_block = 0;
  Say(a, nonsense);
  EXPECT_THAT(Health(), HasSubstr("makes no sense"));
}

}  // namespace
}  // namespace staffel::cluster
