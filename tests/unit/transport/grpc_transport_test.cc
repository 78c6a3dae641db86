#include "transport/grpc/grpc_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/transport/cluster_ends.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using testing::TestPlan;

class FakeServer final : public ClusterServer {
 public:
  void Start(ClusterHandler*) override {}
  void Send(WorkerId, const MasterMessage&) override {}
  void SendToAll(const std::vector<WorkerId>& workers, const MasterMessage& message) override {
    sent.emplace_back(workers, std::get<Step>(message));
  }
  void Disconnect(WorkerId, const Status&) override {}
  std::string address() const override { return ""; }

  std::vector<std::pair<std::vector<WorkerId>, Step>> sent;
};

StepOutcome Outcome(int epoch, uint64_t step, Status status = absl::OkStatus()) {
  StepOutcome outcome;
  outcome.epoch = epoch;
  outcome.step = step;
  outcome.status = std::move(status);
  return outcome;
}

class GrpcTransportTest : public ::testing::Test {
 protected:
  GrpcTransportTest() {
    transport_.SetOutcomeHandler([this](StepOutcome outcome) {
      steps_.push_back(outcome.step);
      statuses_.push_back(outcome.status.code());
    });
  }
  void Submit(int epoch, uint64_t step) {
    ASSERT_TRUE(transport_.Submit(TestPlan(epoch, step, 1)).ok());
  }

  static constexpr auto kOk = absl::StatusCode::kOk;
  const WorkerId a_{1}, b_{2}, stranger_{3};
  FakeServer server_;
  GrpcTransport transport_{&server_, ReplicaId(6)};
  std::vector<uint64_t> steps_;
  std::vector<absl::StatusCode> statuses_;
};

TEST_F(GrpcTransportTest, TheSamplingRankGivesTheOutcomes) {
  transport_.Bind(1, {a_, b_}, 1);
  Submit(1, 1);
  Submit(1, 2);
  ASSERT_EQ(server_.sent.size(), 2u);
  EXPECT_THAT(server_.sent[1].first, ElementsAre(a_, b_));
  EXPECT_EQ(server_.sent[1].second.replica, ReplicaId(6));
  EXPECT_EQ(server_.sent[1].second.plan.step, 2u);
  transport_.OnOutcome(a_, Outcome(1, 1));
  transport_.OnOutcome(stranger_, Outcome(1, 1));
  EXPECT_TRUE(steps_.empty());
  transport_.OnOutcome(b_, Outcome(1, 1));
  transport_.OnOutcome(b_, Outcome(1, 1));  // once is enough
  transport_.OnOutcome(b_, Outcome(1, 2));
  EXPECT_THAT(steps_, ElementsAre(1, 2));
}

TEST_F(GrpcTransportTest, AnErrorOfAnyRankIsTheStepsInOrder) {
  transport_.Bind(1, {a_, b_}, 1);
  Submit(1, 1);
  Submit(1, 2);
  Submit(1, 3);
  transport_.OnOutcome(a_, Outcome(1, 2, absl::DataLossError("digest")));
  EXPECT_TRUE(steps_.empty());
  transport_.OnOutcome(b_, Outcome(1, 1));
  EXPECT_THAT(steps_, ElementsAre(1, 2, 3));
  EXPECT_THAT(statuses_,
              ElementsAre(kOk, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss));
}

TEST_F(GrpcTransportTest, AnErrorAfterTheOutcomeIsTheNextStepsOrPlans) {
  transport_.Bind(1, {a_, b_}, 0);
  Submit(1, 1);
  Submit(1, 2);
  transport_.OnOutcome(a_, Outcome(1, 1));
  transport_.OnOutcome(b_, Outcome(1, 1, absl::InternalError("late")));
  EXPECT_THAT(statuses_, ElementsAre(kOk, absl::StatusCode::kInternal));
  EXPECT_EQ(transport_.Submit(TestPlan(1, 3, 1)).code(), absl::StatusCode::kInternal);
}

TEST_F(GrpcTransportTest, EpochsDoNotMix) {
  EXPECT_EQ(transport_.Submit(TestPlan(1, 1, 1)).code(), absl::StatusCode::kUnavailable);
  transport_.Bind(1, {a_}, 0);
  Submit(1, 1);
  transport_.Unbind();
  transport_.OnOutcome(a_, Outcome(1, 1));
  EXPECT_EQ(transport_.Submit(TestPlan(1, 2, 1)).code(), absl::StatusCode::kUnavailable);
  transport_.Bind(2, {b_}, 0);
  transport_.OnOutcome(b_, Outcome(1, 1));
  EXPECT_TRUE(steps_.empty());
  EXPECT_EQ(transport_.Submit(TestPlan(1, 2, 1)).code(), absl::StatusCode::kUnavailable);
  Submit(2, 2);
  transport_.OnOutcome(b_, Outcome(2, 2));
  EXPECT_THAT(steps_, ElementsAre(2));
}

}  // namespace
}  // namespace staffel
