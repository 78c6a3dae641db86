// A worker's life as its master sees it, and replicas of several workers in one process.
#include "app/worker_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "sched/scheduler.h"
#include "tests/support/gguf_model.h"
#include "tests/unit/app/node_under_test.h"

namespace staffel::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int kBlocks = 64;

std::string Message(const Status& status) { return std::string(status.message()); }

// Asks of the tiny models: heads of whole quantisation blocks.
TinyShape Shape() {
  TinyShape shape;
  shape.head_dim = 32;
  return shape;
}

// All ranks of one replica; the test is their master.
class Replica {
 public:
  Replica(ServedFile file, PlacementPlan plan, std::vector<NodeUnderTest*> nodes)
      : file_(std::move(file)), plan_(std::move(plan)), nodes_(std::move(nodes)) {}

  // Configure to Formed. `formed`: what each rank said.
  Status Form(int epoch, int block_count = kBlocks) {
    plan_.epoch = epoch;
    formed.clear();
    staffel::Form form{ReplicaId(0), epoch, block_count, {}, {}, StrCat("secret ", epoch)};
    for (size_t rank = 0; rank < nodes_.size(); ++rank) {
      nodes_[rank]->Tell(
          Configure{ReplicaId(0), file_.ref, plan_, static_cast<int>(rank), SmallOptions()});
    }
    for (NodeUnderTest* node : nodes_) {
      const std::optional<Capacity> capacity = node->link().Take<Capacity>();
      if (!capacity) return absl::DeadlineExceededError("no capacity");
      STAFFEL_RETURN_IF_ERROR(capacity->status);
      EXPECT_EQ(capacity->epoch, epoch);
      EXPECT_GT(capacity->kv_bytes_per_block, 0);
      EXPECT_GT(capacity->weight_bytes, 0);
      EXPECT_GT(capacity->memory_bytes, 0);
      form.addresses.push_back(capacity->comm_address);
      form.machines.push_back(MachineName());
    }
    for (NodeUnderTest* node : nodes_) node->Tell(form);
    for (NodeUnderTest* node : nodes_) {
      std::optional<Formed> answer = node->link().Take<Formed>();
      if (!answer) return absl::DeadlineExceededError("not formed");
      STAFFEL_RETURN_IF_ERROR(answer->status);
      EXPECT_EQ(answer->epoch, epoch);
      formed.push_back(*std::move(answer));
    }
    return absl::OkStatus();
  }

  void Step(StepPlan plan) {
    for (NodeUnderTest* node : nodes_) node->Tell(staffel::Step{ReplicaId(0), plan});
  }

  void Tell(MasterMessage message) {
    for (NodeUnderTest* node : nodes_) node->Tell(message);
  }

  // The rank that answers.
  FakeLink& sampler() { return nodes_[plan_.tensor_groups.back().front()]->link(); }
  const PlacementPlan& plan() const { return plan_; }

  std::vector<Formed> formed;

 private:
  const ServedFile file_;
  PlacementPlan plan_;
  const std::vector<NodeUnderTest*> nodes_;
};

// Three prompts beside each other, one of them with two answers, in chunks; every answer's tokens.
// `in_flight`: steps that are sent before the first outcome is waited for.
Result<std::vector<std::vector<TokenId>>> Generate(Replica& replica, int epoch, int in_flight = 1,
                                                   int tokens = 12) {
  sched::Config config;
  config.block_count = kBlocks;
  config.block_size = SmallOptions().block_size;
  config.max_model_len = SmallOptions().max_positions;
  config.max_sequences = 8;
  config.tokens_per_step_max = 32;
  config.chunk_tokens_max = 12;
  config.first_epoch = 0;
  sched::Scheduler scheduler(config);
  std::vector<SeqEvent> events;
  scheduler.BeginEpoch(
      {.epoch = epoch, .block_count = kBlocks, .micro_batches = in_flight, .relay_tokens = true},
      events);
  for (int r = 0; r < 3; ++r) {
    GenerateRequest request;
    request.id = RequestId(r);
    for (int i = 0; i < 5 + 17 * r; ++i) request.prompt.push_back((i * i + 7 * r) % 90);
    request.n = r == 2 ? 2 : 1;
    request.sampling.temperature = r == 1 ? 0.7f : 0;
    request.sampling.seed = 5;
    request.max_tokens = tokens;
    STAFFEL_RETURN_IF_ERROR(scheduler.Submit(request));
  }
  std::vector<std::vector<TokenId>> answers(4);
  while (scheduler.HasWork()) {
    while (scheduler.steps_in_flight() < in_flight) {
      std::optional<StepPlan> plan = scheduler.Plan(events);
      if (!plan) break;
      replica.Step(*std::move(plan));
    }
    std::optional<StepOutcome> outcome = replica.sampler().Take<StepOutcome>();
    if (!outcome) return absl::DeadlineExceededError("no outcome");
    STAFFEL_RETURN_IF_ERROR(outcome->status);
    STAFFEL_RETURN_IF_ERROR(scheduler.Apply(*std::move(outcome), events));
    for (const SeqEvent& event : events) {
      STAFFEL_RETURN_IF_ERROR(event.error);
      for (const GeneratedToken& token : event.tokens) {
        answers[event.request.value + event.index].push_back(token.token);
      }
    }
    events.clear();
  }
  return answers;
}

class WorkerNodeTest : public ::testing::Test {
 protected:
  WorkerNodeTest() {
    auto model = MakeTinyModel("llama", Shape());
    model->QuantiseMatrices();
    WriteFile(folder_ / "tiny.gguf", GgufBytes(*model));
    file_ = ServedFile::Of(folder_ / "tiny.gguf");
  }
  NodeUnderTest::Settings Named(std::string name) {
    NodeUnderTest::Settings settings;
    settings.name = std::move(name);
    return settings;
  }
  // A link that serves the file.
  void Serve(NodeUnderTest& node) {
    node.link().served_digest = file_.ref.digest;
    node.link().served_bytes = ReadWhole(file_.path);
  }
  // As another host has it: the master's path leads nowhere.
  ServedFile Elsewhere() const {
    ServedFile elsewhere = file_;
    elsewhere.ref.path = "/nowhere/tiny.gguf";
    return elsewhere;
  }
  std::vector<std::vector<TokenId>> Expected() {
    NodeUnderTest node(Named("one"));
    Replica replica(file_, file_.Place(1, 1), {&node});
    EXPECT_EQ(replica.Form(1), absl::OkStatus());
    Result<std::vector<std::vector<TokenId>>> tokens = Generate(replica, 1);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return *tokens;
  }

  TempFolder folder_;
  ServedFile file_;
};

TEST_F(WorkerNodeTest, RanksOfEveryLayoutGiveTheTokensOfOne) {
  const std::vector<std::vector<TokenId>> expected = Expected();
  struct Layout {
    int tp, pp;
    std::vector<double> speeds;
  };
  for (const Layout& layout : {Layout{2, 1, {}}, Layout{3, 1, {3, 1, 2}}, Layout{1, 2, {}},
                               Layout{1, 3, {}}, Layout{2, 2, {1, 3, 1, 1}}}) {
    SCOPED_TRACE(StrCat("tp ", layout.tp, " pp ", layout.pp));
    std::vector<std::unique_ptr<NodeUnderTest>> nodes;
    std::vector<NodeUnderTest*> pointers;
    for (int i = 0; i < layout.tp * layout.pp; ++i) {
      nodes.push_back(std::make_unique<NodeUnderTest>(Named(StrCat("w", i))));
      pointers.push_back(nodes.back().get());
    }
    Replica replica(file_, file_.Place(layout.tp, layout.pp, layout.speeds), pointers);
    ASSERT_EQ(replica.Form(1), absl::OkStatus());
    const auto tokens = Generate(replica, 1, layout.pp);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, expected);
    // Every rank reads its part: all together read the file about once, and the embedding, which
    // each rank of the first stage has whole.
    int64_t read = 0;
    for (const Formed& formed : replica.formed) read += formed.bytes_read;
    EXPECT_GT(read, 0);
    EXPECT_LT(read, int64_t(std::filesystem::file_size(file_.path)) * (layout.tp + 2) / 2);
  }
}

TEST_F(WorkerNodeTest, TheNextEpochKeepsTheWeightsAndNothingOfTheKv) {
  NodeUnderTest a(Named("a")), b(Named("b"));
  Replica replica(file_, file_.Place(2, 1), {&a, &b});
  ASSERT_EQ(replica.Form(1), absl::OkStatus());
  EXPECT_FALSE(replica.formed[0].weights_kept);
  const auto first = Generate(replica, 1);
  ASSERT_TRUE(first.ok()) << first.status();
  for (int epoch = 2; epoch < 5; ++epoch) {
    replica.Tell(Abort{ReplicaId(0), epoch - 1, "a test"});
    const Time begin = std::chrono::steady_clock::now();
    ASSERT_EQ(replica.Form(epoch), absl::OkStatus());
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, std::chrono::seconds(2));  // 100 ms on a machine that is not shared
    std::cout << "re-formed in " << std::chrono::duration<double>(took).count() << " s\n";
    for (const Formed& formed : replica.formed) {
      EXPECT_TRUE(formed.weights_kept);
      EXPECT_EQ(formed.bytes_read, 0);
    }
    const auto again = Generate(replica, epoch);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *first);
  }
  // Fewer blocks fit the pool that is there; more do not.
  replica.Tell(Abort{ReplicaId(0), 4, "a test"});
  ASSERT_EQ(replica.Form(5, kBlocks / 2), absl::OkStatus());
  EXPECT_TRUE(replica.formed[0].weights_kept);
  replica.Tell(Abort{ReplicaId(0), 5, "a test"});
  ASSERT_EQ(replica.Form(6, kBlocks * 2), absl::OkStatus());
  EXPECT_FALSE(replica.formed[0].weights_kept);
}

TEST_F(WorkerNodeTest, AnotherShardOrAReleaseDropsTheWeights) {
  NodeUnderTest a(Named("a")), b(Named("b"));
  Replica both(file_, file_.Place(2, 1), {&a, &b});
  ASSERT_EQ(both.Form(1), absl::OkStatus());
  EXPECT_GT(a.node().heartbeat().resident_bytes, 0);
  Replica alone(file_, file_.Place(1, 1), {&a});
  both.Tell(Abort{ReplicaId(0), 1, "a test"});
  ASSERT_EQ(alone.Form(2), absl::OkStatus());
  EXPECT_FALSE(alone.formed[0].weights_kept);
  a.Tell(Release{ReplicaId(0)});
  EXPECT_TRUE(a.node().WaitUntilFree(kPatience));
  ASSERT_EQ(alone.Form(3), absl::OkStatus());
  EXPECT_FALSE(alone.formed[0].weights_kept);
}

TEST_F(WorkerNodeTest, TheWeightsOutliveTheMaster) {
  NodeUnderTest node(Named("a"));
  Replica replica(file_, file_.Place(1, 1), {&node});
  ASSERT_EQ(replica.Form(1), absl::OkStatus());
  node.Lose();
  ASSERT_TRUE(node.node().WaitUntilFree(kPatience));
  EXPECT_FALSE(node.node().heartbeat().replica.valid());
  node.Connect();
  ASSERT_EQ(replica.Form(1), absl::OkStatus());  // another master may count from one again
  EXPECT_TRUE(replica.formed[0].weights_kept);
  ASSERT_TRUE(Generate(replica, 1).ok());
}

TEST_F(WorkerNodeTest, TheHeartbeatTellsOfSteps) {
  NodeUnderTest a(Named("a")), b(Named("b"));
  Replica replica(file_, file_.Place(2, 1), {&a, &b});
  ASSERT_EQ(replica.Form(3), absl::OkStatus());
  ASSERT_TRUE(Generate(replica, 3).ok());
  const Heartbeat beat = a.node().heartbeat();
  EXPECT_EQ(beat.replica, ReplicaId(0));
  EXPECT_EQ(beat.epoch, 3);
  EXPECT_GT(beat.step, 5u);
  EXPECT_GT(beat.collective, beat.step);
  EXPECT_FALSE(beat.in_step);
  EXPECT_GT(beat.compute_s, 0);
  EXPECT_GT(beat.bytes_sent, 0);
  EXPECT_GT(beat.bytes_received, 0);
}

TEST_F(WorkerNodeTest, AnAbortEndsAStepThatWaitsForAPeer) {
  NodeUnderTest a(Named("a")), b(Named("b"));
  Replica replica(file_, file_.Place(2, 1), {&a, &b});
  ASSERT_EQ(replica.Form(1), absl::OkStatus());
  // Only rank 0 gets a step: its first collective waits.
  StepPlan plan;
  plan.epoch = 1;
  plan.step = 1;
  NewSequence added;
  added.slot = Slot(0);
  added.tokens = {1, 2, 3};
  added.prompt_count = 3;
  plan.new_sequences = {added};
  plan.block_appends = {{Slot(0), {BlockId(0)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  a.Tell(Step{ReplicaId(0), plan});
  const Time deadline = std::chrono::steady_clock::now() + kPatience;
  while (!a.node().heartbeat().in_step && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(a.node().heartbeat().in_step);
  EXPECT_GT(a.node().heartbeat().in_step_s, 0);
  const Time begin = std::chrono::steady_clock::now();
  a.Tell(Abort{ReplicaId(0), 1, "a test"});
  EXPECT_TRUE(a.node().WaitUntilFree(kPatience));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  // The epoch is over: nobody wants to hear of its step.
  EXPECT_FALSE(a.link().Take<StepOutcome>(milliseconds(20)));
  replica.Tell(Abort{ReplicaId(0), 1, "a test"});
  ASSERT_EQ(replica.Form(2), absl::OkStatus());
  ASSERT_TRUE(Generate(replica, 2).ok());
}

TEST_F(WorkerNodeTest, ARankThatFailsSaysWhyAndItsPeersSayThatItIsGone) {
  NodeUnderTest a(Named("a")), b(Named("b"));
  Replica replica(file_, file_.Place(2, 1), {&a, &b});
  ASSERT_EQ(replica.Form(1), absl::OkStatus());
  StepPlan plan;
  plan.epoch = 1;
  plan.step = 1;
  NewSequence added;
  added.slot = Slot(0);
  added.tokens = {1, 2, 3};
  added.prompt_count = 3;
  plan.new_sequences = {added};
  plan.block_appends = {{Slot(0), {BlockId(0)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  a.Tell(Step{ReplicaId(0), plan});
  plan.digest = 12345;
  b.Tell(Step{ReplicaId(0), plan});
  const std::optional<StepOutcome> faulty = b.link().Take<StepOutcome>();
  ASSERT_TRUE(faulty);
  EXPECT_EQ(faulty->status.code(), absl::StatusCode::kDataLoss) << faulty->status;
  EXPECT_THAT(Message(faulty->status), HasSubstr("rank 1 (b)"));
  const std::optional<StepOutcome> peer = a.link().Take<StepOutcome>();
  ASSERT_TRUE(peer);
  EXPECT_TRUE(absl::IsAborted(peer->status) || absl::IsUnavailable(peer->status)) << peer->status;
  EXPECT_THAT(Message(peer->status), HasSubstr("rank 0 (a)"));
  // Said once.
  b.Tell(Step{ReplicaId(0), plan});
  EXPECT_FALSE(b.link().Take<StepOutcome>(milliseconds(20)));
}

TEST_F(WorkerNodeTest, AWorkerWithTooLittleMemorySaysTheNumbers) {
  NodeUnderTest::Settings settings = Named("small");
  settings.memory = 1 << 20;
  NodeUnderTest node(std::move(settings));
  node.Tell(Configure{ReplicaId(0), file_.ref, file_.Place(1, 1), 0, SmallOptions()});
  const std::optional<Capacity> capacity = node.link().Take<Capacity>();
  ASSERT_TRUE(capacity);
  EXPECT_TRUE(absl::IsResourceExhausted(capacity->status)) << capacity->status;
  EXPECT_THAT(Message(capacity->status), HasSubstr("rank 0 (small)"));
  EXPECT_THAT(Message(capacity->status), HasSubstr("this worker has 1.00 MiB of memory"));
  EXPECT_EQ(node.node().memory_bytes(), 1 << 20);
}

TEST_F(WorkerNodeTest, AFileOfOtherContentIsNotUsed) {
  TinyShape other = Shape();
  other.ffn = 192;
  WriteFile(folder_ / "tiny.gguf", GgufBytes(*MakeTinyModel("llama", other)));
  NodeUnderTest node(Named("a"));
  node.Tell(Configure{ReplicaId(0), file_.ref, file_.Place(1, 1), 0, SmallOptions()});
  const std::optional<Capacity> capacity = node.link().Take<Capacity>();
  ASSERT_TRUE(capacity);
  EXPECT_TRUE(absl::IsNotFound(capacity->status)) << capacity->status;
  EXPECT_THAT(Message(capacity->status), HasSubstr("has other content"));
  // It is still a member: put right, the next attempt works.
  Replica replica(ServedFile::Of(folder_ / "tiny.gguf"),
                  ServedFile::Of(folder_ / "tiny.gguf").Place(1, 1), {&node});
  EXPECT_EQ(replica.Form(2), absl::OkStatus());
}

TEST_F(WorkerNodeTest, TheFolderOfModelsIsLookedThroughByName) {
  NodeUnderTest::Settings settings = Named("a");
  settings.model_dir = folder_.path();
  NodeUnderTest node(std::move(settings));
  ServedFile elsewhere = Elsewhere();
  Replica replica(elsewhere, elsewhere.Place(1, 1), {&node});
  EXPECT_EQ(replica.Form(1), absl::OkStatus());
  EXPECT_EQ(replica.formed[0].bytes_fetched, 0);
}

TEST_F(WorkerNodeTest, WithoutAFileTheShardComesFromTheMasterOnce) {
  const std::vector<std::vector<TokenId>> expected = Expected();
  TempFolder caches;
  const ServedFile elsewhere = Elsewhere();
  int64_t fetched_first = 0;
  for (int life = 0; life < 2; ++life) {
    std::vector<std::unique_ptr<NodeUnderTest>> nodes;
    std::vector<NodeUnderTest*> pointers;
    for (int i = 0; i < 2; ++i) {
      NodeUnderTest::Settings settings = Named(StrCat("w", i));
      settings.cache_dir = caches / StrCat(i);
      nodes.push_back(std::make_unique<NodeUnderTest>(std::move(settings)));
      pointers.push_back(nodes.back().get());
      Serve(*nodes.back());
    }
    Replica replica(elsewhere, elsewhere.Place(2, 1), pointers);
    ASSERT_EQ(replica.Form(1), absl::OkStatus());
    for (int i = 0; i < 2; ++i) {
      const Formed& formed = replica.formed[i];
      EXPECT_EQ(formed.bytes_fetched, life == 0 ? formed.bytes_read : 0);
      EXPECT_LT(formed.bytes_read, int64_t(std::filesystem::file_size(file_.path)) * 4 / 5);
      if (life == 0) fetched_first += nodes[i]->link().bytes_served;
      if (life == 1) {
        EXPECT_EQ(nodes[i]->link().reads, 0) << "a restart needs no network";
      }
    }
    const auto tokens = Generate(replica, 1);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, expected);
  }
  EXPECT_GT(fetched_first, 0);
}

TEST_F(WorkerNodeTest, TheFilesOfASplitModelAreFetchedAsOne) {
  const std::vector<std::vector<TokenId>> expected = Expected();
  auto model = MakeTinyModel("llama", Shape());
  model->QuantiseMatrices();
  const auto [first, second] = SplitGgufBytes(*model);
  WriteFile(folder_ / "x-00001-of-00002.gguf", first);
  WriteFile(folder_ / "x-00002-of-00002.gguf", second);
  ServedFile split = ServedFile::Of(folder_ / "x-00001-of-00002.gguf");
  ASSERT_EQ(split.ref.parts.size(), 2u);
  EXPECT_NE(split.ref.digest, file_.ref.digest);
  for (const bool own : {true, false}) {
    if (!own) split.ref.path = "/nowhere/x-00001-of-00002.gguf";
    TempFolder caches;
    NodeUnderTest::Settings one = Named("a"), other = Named("b");
    one.cache_dir = other.cache_dir = caches.path();
    NodeUnderTest a(std::move(one)), b(std::move(other));
    for (NodeUnderTest* node : {&a, &b}) {
      node->link().served_digest = split.ref.digest;
      node->link().served_bytes = first + second;
    }
    Replica replica(split, split.Place(2, 1), {&a, &b});
    ASSERT_EQ(replica.Form(1), absl::OkStatus());
    EXPECT_EQ(replica.formed[0].bytes_fetched > 0, !own);
    const auto tokens = Generate(replica, 1);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, expected);
  }
}

TEST_F(WorkerNodeTest, AMasterThatGoesDuringTheFetchIsNamedAndTheRestComesLater) {
  TempFolder caches;
  const ServedFile elsewhere = Elsewhere();
  NodeUnderTest::Settings settings = Named("a");
  settings.cache_dir = caches.path();
  NodeUnderTest node(std::move(settings));
  Serve(node);
  Replica replica(elsewhere, elsewhere.Place(1, 1), {&node});
  const int64_t header = elsewhere.ref.parts[0].header_bytes;
  node.link().before_piece = [&]() -> Status {
    if (node.link().bytes_served < header + 100000) return absl::OkStatus();
    return absl::UnavailableError("the connection to the master broke");
  };
  const Status broken = replica.Form(1);
  EXPECT_TRUE(absl::IsUnavailable(broken)) << broken;
  EXPECT_THAT(Message(broken), HasSubstr("rank 0 (a)"));
  EXPECT_THAT(Message(broken), HasSubstr("connection to the master broke"));
  EXPECT_THAT(Message(broken), HasSubstr("bytes) were fetched"));
  node.link().before_piece = nullptr;
  const int64_t before = node.link().bytes_served;
  replica.Tell(Abort{ReplicaId(0), 1, "a test"});
  ASSERT_EQ(replica.Form(2), absl::OkStatus());
  EXPECT_EQ(node.link().bytes_served - before, replica.formed[0].bytes_fetched);
  ASSERT_TRUE(Generate(replica, 2).ok());
}

// A backend whose packing goes on until it is given up.
class EndlessBackend final : public Backend {
 public:
  explicit EndlessBackend(std::atomic<bool>* packing) : packing_(packing) {}
  std::string Describe() const override { return "endless"; }
  int64_t kv_bytes_per_block(const Program& program, int block_size) const override {
    return cpu_->kv_bytes_per_block(program, block_size);
  }
  Result<MemoryNeed> Measure(const Program& program, const WeightSource& weights, int group_size,
                             const BackendOptions& options) const override {
    return cpu_->Measure(program, weights, group_size, options);
  }
  Result<std::unique_ptr<Executable>> Prepare(const Program&, const WeightSource&, Communicator*,
                                              const BackendOptions& options) override {
    *packing_ = true;
    while (!options.cancelled()) {
      options.progress(0.5);
      std::this_thread::sleep_for(milliseconds(1));
    }
    *packing_ = false;
    return absl::CancelledError("given up");
  }

 private:
  std::atomic<bool>* const packing_;
  std::unique_ptr<Backend> cpu_ = *MakeCpuBackend({.threads = 1});
};

TEST_F(WorkerNodeTest, LoadingIsGivenUpAtAnAbortAReleaseOrALoss) {
  std::atomic<bool> packing = false;
  NodeUnderTest::Settings settings = Named("a");
  settings.backend = std::make_unique<EndlessBackend>(&packing);
  NodeUnderTest node(std::move(settings));
  for (int way = 0; way < 4; ++way) {
    PlacementPlan plan = file_.Place(1, 1);
    plan.epoch = way + 1;
    node.Tell(Configure{ReplicaId(0), file_.ref, plan, 0, SmallOptions()});
    const std::optional<Capacity> capacity = node.link().Take<Capacity>();
    ASSERT_TRUE(capacity);
    node.Tell(staffel::Form{ReplicaId(0),
                            capacity->epoch,
                            kBlocks,
                            {capacity->comm_address},
                            {MachineName()},
                            "secret"});
    ASSERT_TRUE(node.link().Take<FormProgress>()) << "progress is told while it loads";
    EXPECT_TRUE(packing);
    const Time begin = std::chrono::steady_clock::now();
    if (way == 0) node.Tell(Abort{ReplicaId(0), capacity->epoch, "a test"});
    if (way == 1) node.Tell(Release{ReplicaId(0)});
    if (way == 2) node.Lose();
    if (way == 3) {
      // An Abort of another epoch changes nothing.
      node.Tell(Abort{ReplicaId(0), capacity->epoch + 7, "a test"});
      EXPECT_FALSE(node.link().Take<Formed>(milliseconds(50)));
      EXPECT_TRUE(packing);
      node.Tell(Abort{ReplicaId(0), capacity->epoch, "a test"});
    }
    ASSERT_TRUE(node.node().WaitUntilFree(kPatience));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
    EXPECT_FALSE(packing);
    if (way == 2) node.Connect();
    EXPECT_FALSE(node.link().Take<Formed>(milliseconds(20)));
  }
}

TEST_F(WorkerNodeTest, AGroupThatDoesNotCompleteEndsByTimeOrAbort) {
  NodeUnderTest::Settings settings = Named("a");
  settings.form_timeout = milliseconds(300);
  NodeUnderTest a(std::move(settings)), b(Named("b"));
  const PlacementPlan plan = file_.Place(2, 1);
  std::vector<std::string> addresses;
  for (NodeUnderTest* node : {&a, &b}) {
    node->Tell(Configure{ReplicaId(0), file_.ref, plan, node == &b, SmallOptions()});
    const std::optional<Capacity> capacity = node->link().Take<Capacity>();
    ASSERT_TRUE(capacity);
    addresses.push_back(capacity->comm_address);
  }
  const staffel::Form form{
      ReplicaId(0), plan.epoch, kBlocks, addresses, {MachineName(), MachineName()}, "secret"};
  a.Tell(form);  // rank 1 never comes
  const std::optional<Formed> late = a.link().Take<Formed>();
  ASSERT_TRUE(late);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late->status)) << late->status;
  EXPECT_THAT(Message(late->status), HasSubstr("rank 0 (a)"));

  b.Tell(form);  // waits for five seconds, were it not for
  std::this_thread::sleep_for(milliseconds(30));
  const Time begin = std::chrono::steady_clock::now();
  b.Tell(Abort{ReplicaId(0), plan.epoch, "a test"});
  ASSERT_TRUE(b.node().WaitUntilFree(kPatience));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST_F(WorkerNodeTest, WhatDoesNotFitIsRefusedWithASentence) {
  NodeUnderTest node(Named("a"));
  const PlacementPlan plan = file_.Place(1, 1);
  // A rank that the plan does not have.
  node.Tell(Configure{ReplicaId(0), file_.ref, plan, 5, SmallOptions()});
  std::optional<Capacity> capacity = node.link().Take<Capacity>();
  ASSERT_TRUE(capacity);
  EXPECT_TRUE(absl::IsInvalidArgument(capacity->status)) << capacity->status;
  // To form what was refused; another replica's, another epoch's, steps of none: ignored.
  node.Tell(staffel::Form{ReplicaId(0), plan.epoch, kBlocks, {"x"}, {"m"}, "s"});
  std::optional<Formed> formed = node.link().Take<Formed>();
  ASSERT_TRUE(formed);
  EXPECT_TRUE(absl::IsFailedPrecondition(formed->status)) << formed->status;
  node.Tell(Configure{ReplicaId(0), file_.ref, plan, 0, SmallOptions()});
  ASSERT_TRUE(node.link().Take<Capacity>());
  node.Tell(staffel::Form{ReplicaId(1), plan.epoch, kBlocks, {"x"}, {"m"}, "s"});
  node.Tell(staffel::Form{ReplicaId(0), plan.epoch + 1, kBlocks, {"x"}, {"m"}, "s"});
  node.Tell(Step{ReplicaId(0), {}});
  node.Tell(staffel::Form{ReplicaId(0), plan.epoch, kBlocks, {"x", "y"}, {"m"}, "s"});
  formed = node.link().Take<Formed>();
  ASSERT_TRUE(formed);
  EXPECT_TRUE(absl::IsInvalidArgument(formed->status)) << formed->status;
  EXPECT_FALSE(node.link().Take<Formed>(milliseconds(20)));
  EXPECT_FALSE(node.link().Take<StepOutcome>(milliseconds(1)));
}

}  // namespace
}  // namespace staffel::testing
