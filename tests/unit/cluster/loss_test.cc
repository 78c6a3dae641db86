// What happens when a serving epoch ends: losses, failed steps, workers that leave, better layouts.
#include "tests/unit/cluster/fixture.h"

namespace staffel::cluster {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Loss : public ManagerTest {
 protected:
  // Workers a and b serve; c is spare if wanted.
  void Serve(int tp, int pp, bool spare) {
    Start({PoolOf("m", tp, pp)});
    a = Join("a");
    b = Join("b");
    FormAll({a, b});
    ASSERT_TRUE(Is<ReplicaServing>());
    if (spare) c = Join("c");
  }
  void Beat(WorkerId worker, uint64_t step, uint64_t collective, bool in_step, int epoch = 1) {
    Say(worker, Heartbeat{.replica = ReplicaId(0),
                          .epoch = epoch,
                          .step = step,
                          .collective = collective,
                          .in_step = in_step});
  }
  WorkerId a, b, c;
};

TEST_F(Loss, SpareTakesTheSeatAndOthersKeepTheirShards) {
  Serve(2, 1, /*spare=*/true);
  const PlacementPlan before = Last<Configure>(b)->plan;
  Beat(a, 17, 1020, true);
  now += Ms(40);
  Gone(a, "the stream broke");
  ASSERT_TRUE(Is<ReplicaLost>());
  const ReplicaLost lost = All<ReplicaLost>()[0];
  EXPECT_EQ(lost.epoch, 1);
  EXPECT_FALSE(lost.planned);
  EXPECT_THAT(std::string(lost.reason.message()),
              AllOf(HasSubstr("rank 0"), HasSubstr("\"a\""), HasSubstr("host-a"),
                    HasSubstr("the stream broke"), HasSubstr("collective 1020"),
                    HasSubstr("step 17"), HasSubstr("40 ms ago")));
  EXPECT_THAT(To<Abort>(), ElementsAre("b"));
  EXPECT_EQ(Last<Abort>(b)->epoch, 1);
  EXPECT_THAT(To<Configure>(), ElementsAre("c", "b"));
  EXPECT_EQ(Last<Configure>(b)->rank, 1);
  EXPECT_EQ(Last<Configure>(b)->plan.epoch, 2);
  EXPECT_EQ(Last<Configure>(b)->plan.ranks[1].q_heads, before.ranks[1].q_heads);
  EXPECT_EQ(Last<Configure>(b)->plan.ranks[1].ffn, before.ranks[1].ffn);
  FormAll({c, b});
  EXPECT_EQ(All<ReplicaServing>()[0].epoch, 2);
}

TEST_F(Loss, PoolKeepsItsSizeWhereShardsStay) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.kv_memory_bytes = 100 * 4096;
  Start({pool});
  a = Join("a");
  b = Join("b");
  FormAll({a, b});
  EXPECT_EQ(Last<Form>(a)->block_count, 100);
  Gone(b);
  const WorkerId back = Join("b");
  for (WorkerId worker : {a, back}) {
    Capacity roomy = GoodCapacity(*Last<Configure>(worker));
    roomy.kv_bytes_per_block = 4000;  // 102 blocks
    Say(worker, roomy);
  }
  EXPECT_EQ(Last<Form>(a)->block_count, 100);
}

TEST_F(Loss, SurvivorsCarryOnAndReturnToTheWantedLayoutWhenIdle) {
  Serve(2, 1, /*spare=*/false);
  Gone(b);
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  EXPECT_EQ(Last<Configure>(a)->plan.ranks.size(), 1u);
  FormAll({a});
  ASSERT_TRUE(Is<ReplicaServing>());
  EXPECT_TRUE(Replica0().degraded);
  Idle(false);
  const WorkerId back = Join("b");
  EXPECT_THAT(To<Configure>(), IsEmpty()) << "requests are running";
  Pass(seconds(5));
  EXPECT_THAT(actions, IsEmpty());
  Idle();
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_TRUE(All<ReplicaLost>()[0].planned);
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
  FormAll({a, back});
  EXPECT_TRUE(Is<ReplicaServing>());
  EXPECT_FALSE(Replica0().degraded);
  EXPECT_EQ(Replica0().losses, 1);
  EXPECT_EQ(Replica0().planned_changes, 1);
}

TEST_F(Loss, BusyReplicaReturnsToTheWantedLayoutAfterPatience) {
  Serve(2, 1, /*spare=*/false);
  Gone(b);
  FormAll({a});
  Join("b");
  Pass(seconds(29));
  EXPECT_FALSE(Is<ReplicaLost>());
  Pass(seconds(2));
  EXPECT_TRUE(Is<ReplicaLost>());
}

TEST_F(Loss, WorkerThatComesBackEarlyRestartsTheDegradedAttempt) {
  Serve(2, 1, /*spare=*/false);
  Gone(b);
  AnswerConfigure(a);
  Say(a, FormProgress{ReplicaId(0), 2, 0.25});
  Join("b");
  EXPECT_THAT(To<Abort>(), ElementsAre("a"));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
}

TEST_F(Loss, ModelThatDoesNotFitTheSurvivorsWaitsThenGivesUpOnce) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.shape.layer_bytes = 200 << 20;  // 800 MiB and more; the workers have 1 GiB for 2 x 500
  pool.max_model_len = 300000;         // KV of 300 MiB on one rank
  Start({pool});
  a = Join("a");
  b = Join("b");
  for (WorkerId worker : {a, b}) {
    Capacity capacity = GoodCapacity(*Last<Configure>(worker));
    capacity.kv_bytes_per_block = 16;
    Say(worker, capacity);
  }
  for (WorkerId worker : {a, b}) AnswerForm(worker);
  ASSERT_TRUE(Is<ReplicaServing>());
  Gone(b, "killed");
  EXPECT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(To<Configure>(), IsEmpty());
  EXPECT_THAT(Health(), AllOf(HasSubstr("waits for 1 more worker"), HasSubstr("killed")));
  EXPECT_EQ(Replica0().state, ReplicaState::kLost);
  Pass(seconds(59));
  EXPECT_FALSE(Is<ReplicaGaveUp>());
  Pass(seconds(1));
  ASSERT_EQ(All<ReplicaGaveUp>().size(), 1u);
  EXPECT_THAT(std::string(All<ReplicaGaveUp>()[0].reason.message()),
              AllOf(HasSubstr("60 s"), HasSubstr("waits for 1 more worker"), HasSubstr("killed")));
  Pass(seconds(600));
  EXPECT_FALSE(Is<ReplicaGaveUp>());
  EXPECT_EQ(Replica0().state, ReplicaState::kWaiting);
  Join("b");
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
}

TEST_F(Loss, DivergedRankIsDisconnectedAndOthersGoOn) {
  Serve(2, 1, /*spare=*/true);
  StepFailed(1, 1, absl::DataLossError("digest 5 instead of 7"));
  ASSERT_EQ(All<Disconnect>().size(), 1u);
  EXPECT_EQ(All<Disconnect>()[0].worker, b);
  EXPECT_THAT(std::string(All<ReplicaLost>()[0].reason.message()),
              AllOf(HasSubstr("rank 1"), HasSubstr("\"b\""), HasSubstr("digest 5")));
  Pass(seconds(1));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "c"));
}

TEST_F(Loss, FailedStepOfALostPeerWaitsForWhoItWas) {
  Serve(2, 1, /*spare=*/true);
  now += seconds(20);  // proven
  StepFailed(1, 0, absl::UnavailableError("rank 1 is lost"));
  EXPECT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(To<Configure>(), IsEmpty());
  now += Ms(5);
  Gone(b);
  Pass(Ms(100));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "c")) << "a is not to blame";
  StepFailed(1, 0, absl::UnavailableError("late"));
  EXPECT_THAT(actions, IsEmpty()) << "of an old epoch";
}

TEST_F(Loss, WhoDivergedIsFoundThoughItsNeighbourSpokeFirst) {
  Serve(2, 1, /*spare=*/true);
  StepFailed(1, 0, absl::UnavailableError("rank 1 has hung up"));
  EXPECT_FALSE(Is<Disconnect>());
  now += Ms(2);
  Say(b, StepOutcome{.epoch = 1, .step = 9, .status = absl::DataLossError("digest 5 not 7")});
  ASSERT_EQ(All<Disconnect>().size(), 1u);
  EXPECT_EQ(All<Disconnect>()[0].worker, b);
  Pass(seconds(1));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "c"));
}

TEST_F(Loss, LeavingWorkerHandsOverToASpare) {
  Serve(1, 2, /*spare=*/true);
  Say(b, Leaving{"SIGTERM", 30});
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_TRUE(All<ReplicaLost>()[0].planned);
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "c"));
  EXPECT_THAT(To<Release>(), ElementsAre("b"));
}

TEST_F(Loss, LeavingWorkerWithoutASpareIsReplacedByThoseWhoStay) {
  Serve(1, 2, /*spare=*/false);
  Say(b, Leaving{"SIGTERM", 30});
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_TRUE(All<ReplicaLost>()[0].planned);
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  EXPECT_THAT(To<Release>(), ElementsAre("b"));
  FormAll({a});
  EXPECT_TRUE(Is<ReplicaServing>());
  EXPECT_EQ(Replica0().losses, 0);
  Gone(b);
  EXPECT_FALSE(Is<ReplicaLost>());
}

TEST_F(Loss, LeavingWorkerServesOnWhereAnotherLayoutIsNotAllowed) {
  PoolConfig pool = PoolOf("m", 1, 2);
  pool.allow_degraded = false;
  Start({pool});
  a = Join("a");
  b = Join("b");
  FormAll({a, b});
  Say(b, Leaving{"SIGTERM", 30});
  EXPECT_FALSE(Is<ReplicaLost>());
  EXPECT_THAT(To<Release>(), IsEmpty());
  EXPECT_THAT(Logs(), AllOf(HasSubstr("rank 1"), HasSubstr("\"b\""), HasSubstr("at most 30 s"),
                            HasSubstr("waits for 1 more worker")));
  EXPECT_THAT(Replica0().reason, HasSubstr("is about to leave"));
  Pass(seconds(1));
  EXPECT_EQ(Logs(), "") << "said once";
  c = Join("c");
  EXPECT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "c"));
  EXPECT_THAT(To<Release>(), ElementsAre("b"));
}

TEST_F(Loss, LeavingWorkerServesOnWhereTheOthersCannotHoldTheModel) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.shape.layer_bytes = 400 << 20;  // two workers of 1 GiB hold it, one does not
  Start({pool});
  a = Join("a");
  b = Join("b");
  FormAll({a, b});
  ASSERT_TRUE(Is<ReplicaServing>());
  Say(b, Leaving{"SIGTERM", 30});
  EXPECT_FALSE(Is<ReplicaLost>());
  EXPECT_THAT(Logs(), AllOf(HasSubstr("waits for 1 more worker"), HasSubstr("MiB of memory")));
}

TEST_F(Loss, LastOfSeveralLeaversServesOn) {
  Serve(2, 1, /*spare=*/false);
  Say(b, Leaving{"SIGTERM", 30});
  EXPECT_THAT(To<Configure>(), ElementsAre("a"));
  Say(a, Leaving{"SIGTERM", 30});
  EXPECT_THAT(To<Abort>(), IsEmpty()) << "nobody else can take the requests";
  FormAll({a});
  EXPECT_TRUE(Is<ReplicaServing>());
  c = Join("c");
  EXPECT_THAT(To<Configure>(), ElementsAre("c"));
  EXPECT_THAT(To<Release>(), ElementsAre("a"));
}

TEST_F(Loss, LeaverOfAnAttemptGivesWayToOthers) {
  Serve(2, 1, /*spare=*/false);
  Gone(b);
  AnswerConfigure(a);
  Say(a, FormProgress{ReplicaId(0), 2, 0.9});
  c = Join("c");
  EXPECT_THAT(To<Configure>(), IsEmpty()) << "too late to start over";
  Say(a, Leaving{"SIGTERM", 30});
  EXPECT_THAT(To<Abort>(), ElementsAre("a"));
  EXPECT_THAT(To<Configure>(), ElementsAre("c"));
  EXPECT_THAT(To<Release>(), ElementsAre("a"));
}

TEST_F(Loss, LeavingSpareIsReleasedAtOnce) {
  Serve(2, 1, /*spare=*/true);
  Say(c, Leaving{"SIGTERM", 30});
  EXPECT_THAT(To<Release>(), ElementsAre("c"));
  Gone(b);
  EXPECT_THAT(To<Configure>(), ElementsAre("a")) << "not the leaver";
}

TEST_F(Loss, StepThatStandsStillIsNoticedAndTheRankBehindNamed) {
  Serve(2, 1, /*spare=*/false);
  for (int second = 0; second < 60; ++second) {
    Beat(a, 3, 41, true);
    Beat(b, 3, 40, true);
    EXPECT_FALSE(Is<ReplicaLost>());
    Pass(seconds(1));
  }
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(std::string(All<ReplicaLost>()[0].reason.message()),
              AllOf(HasSubstr("rank 1"), HasSubstr("collective 40"), HasSubstr("60 s")));
}

// ---- broken links

class BrokenLink : public Loss {
 protected:
  struct State {
    uint64_t step = 0, collective = 0;
    int waiting_for = -1;       // -1: computes
    uint64_t running_step = 0;  // 0: between steps
  };
  // Heartbeats every 50 ms for that long, or until the epoch is lost; waits last all the time.
  void Beats(Duration duration, const std::vector<std::pair<WorkerId, State>>& states,
             int epoch = 1) {
    const Time begin = now;
    Actions all;
    bool lost = false;
    while (now < begin + duration && !lost) {
      for (const auto& [worker, state] : states) {
        Heartbeat beat{.replica = ReplicaId(0), .epoch = epoch, .step = state.step};
        beat.collective = state.collective;
        beat.in_step = state.running_step > 0;
        beat.running_step = state.running_step;
        beat.waiting_for = state.waiting_for;
        if (state.waiting_for >= 0) {
          beat.waiting_s = std::chrono::duration<double>(now - begin).count();
        }
        Say(worker, beat);
        lost = lost || Is<ReplicaLost>();
        all.insert(all.end(), actions.begin(), actions.end());
      }
      Pass(Ms(50));
      lost = lost || Is<ReplicaLost>();
      all.insert(all.end(), actions.begin(), actions.end());
    }
    actions = std::move(all);
    took = now - begin;
  }
  std::string Reason() { return std::string(All<ReplicaLost>().at(0).reason.message()); }
  Duration took{};
};

TEST_F(BrokenLink, TwoThatWaitForEachOtherAreNamedWithinTwoSeconds) {
  Serve(2, 1, /*spare=*/false);
  Beats(seconds(3), {{a, {11, 700, 1, 12}}, {b, {11, 699, 0, 12}}});
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_LT(took, seconds(2));
  EXPECT_FALSE(All<ReplicaLost>()[0].planned);
  EXPECT_THAT(Reason(), AllOf(HasSubstr("data link"), HasSubstr("rank 0"), HasSubstr("\"a\""),
                              HasSubstr("host-a"), HasSubstr("rank 1"), HasSubstr("\"b\""),
                              HasSubstr("host-b"), HasSubstr("comm-1"), HasSubstr("step 12")));
  EXPECT_FALSE(Is<Disconnect>()) << "both live";
  const Snapshot snapshot = manager_->Describe(now);
  ASSERT_EQ(snapshot.links.size(), 1u);
  EXPECT_EQ(snapshot.links[0].failures, 1);
  EXPECT_GT(snapshot.links[0].avoided_s, 20);
  // One of them goes on alone; the two meet again when the link may be tried.
  const WorkerId alone = Last<Configure>(a)->plan.epoch == 2 ? a : b;
  FormAll({alone});
  ASSERT_TRUE(Replica0().degraded);
  EXPECT_THAT(manager_->Degraded(now, ReplicaId(0)), HasSubstr("link between workers"));
  Idle();
  Pass(seconds(25));
  EXPECT_FALSE(Is<ReplicaLost>());
  Pass(seconds(10));
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
}

TEST_F(BrokenLink, StageThatHasFinishedItsStepSendsNoMore) {
  Serve(1, 2, /*spare=*/false);
  Beats(seconds(3), {{a, {12, 40}}, {b, {11, 39, 0, 12}}});
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_LT(took, seconds(2));
  EXPECT_THAT(Reason(), HasSubstr("has finished the step"));
}

TEST_F(BrokenLink, SpareIsUsedInstead) {
  Serve(1, 2, /*spare=*/true);
  Beats(seconds(3), {{a, {12, 40}}, {b, {11, 39, 0, 12}}});
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(To<Configure>(), AnyOf(ElementsAre("a", "c"), ElementsAre("c", "b")));
}

TEST_F(BrokenLink, WithoutOthersTheTwoTryOverFreshConnections) {
  PoolConfig pool = PoolOf("m", 2, 1);
  pool.allow_degraded = false;
  Start({pool});
  a = Join("a");
  b = Join("b");
  FormAll({a, b});
  Beats(seconds(3), {{a, {11, 700, 1, 12}}, {b, {11, 699, 0, 12}}});
  ASSERT_TRUE(Is<ReplicaLost>());
  Pass(seconds(1));
  EXPECT_EQ(Last<Configure>(a)->plan.epoch, 2);
  EXPECT_EQ(Last<Configure>(b)->plan.epoch, 2);
}

TEST_F(BrokenLink, ALongStepIsNoFault) {
  Serve(2, 1, /*spare=*/false);
  Beats(seconds(50), {{a, {11, 700, 1, 12}}, {b, {11, 699, -1, 12}}});
  EXPECT_FALSE(Is<ReplicaLost>()) << "rank 1 computes";
}

TEST_F(BrokenLink, AStageThatHasNotItsTurnYetIsNoFault) {
  Serve(1, 2, /*spare=*/false);
  Beats(seconds(50), {{a, {11, 40, -1, 12}}, {b, {11, 39, 0, 12}}});
  EXPECT_FALSE(Is<ReplicaLost>()) << "rank 0 computes the step that rank 1 waits for";
  Beats(seconds(5), {{a, {11, 40}}, {b, {11, 39, 0, 12}}});
  EXPECT_FALSE(Is<ReplicaLost>()) << "rank 0 has not been told of that step yet";
}

TEST_F(BrokenLink, TheEndOfALongStepIsToldByTheOneThatComputedFirst) {
  Serve(1, 2, /*spare=*/false);
  Beats(seconds(20), {{a, {11, 40, -1, 12}}, {b, {11, 39, 0, 12}}});
  Beats(Ms(50), {{a, {12, 41}}});
  EXPECT_FALSE(Is<ReplicaLost>()) << "what it has sent is on its way";
  Beats(seconds(5), {{a, {12, 41}}, {b, {12, 40}}});
  EXPECT_FALSE(Is<ReplicaLost>());
}

TEST_F(BrokenLink, ARankBehindAWaitingOneIsNotToBlame) {
  Start({PoolOf("m", 1, 3)});
  a = Join("a");
  b = Join("b");
  c = Join("c");
  FormAll({a, b, c});
  ASSERT_TRUE(Is<ReplicaServing>());
  Beats(seconds(3), {{a, {12, 40}}, {b, {11, 39, 0, 12}}, {c, {11, 39, 1, 12}}});
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(Reason(), AllOf(HasSubstr("\"a\""), HasSubstr("\"b\""), Not(HasSubstr("\"c\""))));
}

TEST_F(BrokenLink, AProcessThatWasStoppedIsNotBelievedAtOnce) {
  Serve(1, 2, /*spare=*/false);
  Beats(Ms(100), {{a, {12, 40}}, {b, {11, 39, 0, 12}}});
  now += seconds(20);
  Say(a, Heartbeat{.replica = ReplicaId(0), .epoch = 1, .step = 12});
  Say(b, Heartbeat{.replica = ReplicaId(0),
                   .epoch = 1,
                   .step = 11,
                   .collective = 39,
                   .in_step = true,
                   .running_step = 12,
                   .waiting_for = 0,
                   .waiting_s = 20});
  EXPECT_FALSE(Is<ReplicaLost>());
}

TEST_F(BrokenLink, LinkThatFailsAgainIsAvoidedForLonger) {
  Serve(2, 1, /*spare=*/false);
  int epoch = 1;
  double before = 0;
  for (int round = 0; round < 3; ++round) {
    Beats(seconds(3), {{a, {11, 700, 1, 12}}, {b, {11, 699, 0, 12}}}, epoch);
    ASSERT_TRUE(Is<ReplicaLost>()) << round;
    const double avoided_s = manager_->Describe(now).links[0].avoided_s;
    EXPECT_GT(avoided_s, 1.8 * before);
    before = avoided_s;
    Pass(seconds(1));
    FormAll({Last<Configure>(a)->plan.epoch == epoch + 1 ? a : b});
    Idle();
    Pass(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(avoided_s)) +
         seconds(1));
    FormAll({a, b});
    ASSERT_TRUE(Is<ReplicaServing>()) << round;
    epoch = All<ReplicaServing>()[0].epoch;
  }
}

TEST_F(Loss, WorkerInAnotherEpochIsNoticed) {
  Serve(2, 1, /*spare=*/false);
  for (int second = 0; second < 6 && !Is<ReplicaLost>(); ++second) {
    Beat(a, 1, 1, false);
    Beat(b, 1, 1, false, /*epoch=*/0);
    if (!Is<ReplicaLost>()) Pass(seconds(1));
  }
  ASSERT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(std::string(All<ReplicaLost>()[0].reason.message()),
              AllOf(HasSubstr("rank 1"), HasSubstr("epoch 1")));
}

TEST_F(Loss, FlappingWorkerIsSetAside) {
  Serve(2, 1, /*spare=*/false);
  for (int round = 0; round < 4; ++round) {
    Gone(b, "crashed");
    FormAll({a});
    now += seconds(1);
    b = Join("b");
    if (round < 3) {
      Idle();
      Pass(seconds(1));
      ASSERT_NE(Last<Configure>(b), nullptr) << round;
      FormAll({a, b});
    }
  }
  // The fourth loss costs one second, which is over; the fifth costs two.
  EXPECT_EQ(manager_->Describe(now).workers[1].state, WorkerState::kSpare);
  Pass(seconds(1));
  FormAll({a, b});
  Gone(b, "crashed");
  b = Join("b");
  EXPECT_EQ(manager_->Describe(now).workers[1].state, WorkerState::kSetAside);
  EXPECT_THAT(Logs(), AllOf(HasSubstr("set aside for 2 s"), HasSubstr("lost 5 times")));
}

TEST_F(Loss, NewerOfTwoWorkersOfOneNameWins) {
  Serve(2, 1, /*spare=*/false);
  const WorkerId twin = Join("b");
  ASSERT_EQ(All<Disconnect>().size(), 1u);
  EXPECT_EQ(All<Disconnect>()[0].worker, b);
  EXPECT_TRUE(Is<ReplicaLost>());
  EXPECT_THAT(To<Configure>(), ElementsAre("a", "b"));
  EXPECT_EQ(Last<Configure>(twin)->rank, 1);
  Gone(b);
  EXPECT_THAT(actions, IsEmpty());
}

}  // namespace
}  // namespace staffel::cluster
