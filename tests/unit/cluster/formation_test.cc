// From Configure to ReplicaServing, and what stops it on the way.
#include "tests/unit/cluster/fixture.h"

namespace staffel::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

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

}  // namespace
}  // namespace staffel::cluster
