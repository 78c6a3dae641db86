#include "transport/proto/cluster_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/strings.h"
#include "cluster.pb.h"
#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What arrives of a message that was sent.
template <class Body>
Body Sent(const Body& body) {
  if constexpr (std::is_constructible_v<MasterMessage, Body>) {
    auto parsed = ParseMasterMessage(SerializeMasterMessage(body));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return std::get<Body>(parsed->value());
  } else {
    auto parsed = ParseWorkerMessage(SerializeWorkerMessage(body));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return std::get<Body>(parsed->value());
  }
}

Hello SomeHello() {
  Hello hello;
  hello.build = "0.2.0";
  hello.name = "gpu-3";
  hello.host = "b";
  hello.machine = "boot/ns";
  hello.memory_pool = "boot";
  hello.devices = {{{"cpu", 0}, "b", int64_t{1} << 40, 0.25}, {{"cuda", 7}, "b", 0, 12}};
  hello.labels = {{"pool", "chat"}, {"zone", "\xff not UTF-8"}};
  return hello;
}

TEST(ClusterCodec, HelloRoundTrip) {
  const Hello hello = SomeHello();
  const Result<Hello> got = ParseHello(SerializeHello(hello), kClusterProtocol);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->protocol.major, hello.protocol.major);
  EXPECT_EQ(got->protocol.minor, hello.protocol.minor);
  EXPECT_EQ(got->build, hello.build);
  EXPECT_EQ(got->name, hello.name);
  EXPECT_EQ(got->host, hello.host);
  EXPECT_EQ(got->machine, hello.machine);
  EXPECT_EQ(got->memory_pool, hello.memory_pool);
  EXPECT_EQ(got->labels, hello.labels);
  ASSERT_EQ(got->devices.size(), 2u);
  EXPECT_EQ(got->devices[1].device.kind, "cuda");
  EXPECT_EQ(got->devices[1].device.index, 7);
  EXPECT_EQ(got->devices[0].host, "b");
  EXPECT_EQ(got->devices[0].memory_bytes, int64_t{1} << 40);
  EXPECT_EQ(got->devices[0].speed, 0.25);
}

TEST(ClusterCodec, NeighbouringMinorVersionsOnly) {
  struct Case {
    ProtocolVersion worker, master;
    bool accepted;
  };
  const Case cases[] = {{{1, 0}, {1, 0}, true},  {{1, 1}, {1, 0}, true},
                        {{1, 4}, {1, 5}, true},  {{1, 2}, {1, 0}, false},
                        {{1, 0}, {1, 2}, false}, {{2, 0}, {1, 0}, false},
                        {{0, 0}, {1, 0}, false}, {{1, 0xFFFFFFFF}, {1, 0}, false}};
  for (const Case& c : cases) {
    Hello hello = SomeHello();
    hello.protocol = c.worker;
    const Result<Hello> got = ParseHello(SerializeHello(hello), c.master);
    EXPECT_EQ(got.ok(), c.accepted) << c.worker.major << "." << c.worker.minor;
    if (c.accepted) continue;
    EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition);
    const std::string message(got.status().message());
    EXPECT_THAT(message, HasSubstr(StrCat(c.worker.major, ".", c.worker.minor)));
    EXPECT_THAT(message, HasSubstr(StrCat(c.master.major, ".", c.master.minor)));
  }
}

TEST(ClusterCodec, VersionIsCheckedBeforeWhatANewerOneMayHaveChanged) {
  Hello hello;  // no name, no device: nonsense in this version
  hello.protocol = {9, 0};
  EXPECT_EQ(ParseHello(SerializeHello(hello), kClusterProtocol).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ClusterCodec, WorkerMessagesRoundTrip) {
  const Capacity capacity = Sent(Capacity{
      ReplicaId(2), 7, absl::ResourceExhaustedError("3 bytes \xff too few"), 11, 12, 13, "addr"});
  EXPECT_EQ(capacity.replica, ReplicaId(2));
  EXPECT_EQ(capacity.epoch, 7);
  EXPECT_EQ(capacity.status, absl::ResourceExhaustedError("3 bytes \xff too few"));
  EXPECT_EQ(capacity.kv_bytes_per_block, 11);
  EXPECT_EQ(capacity.weight_bytes, 12);
  EXPECT_EQ(capacity.memory_bytes, 13);
  EXPECT_EQ(capacity.comm_address, "addr");

  const FormProgress progress = Sent(FormProgress{ReplicaId(1), 3, 0.75});
  EXPECT_EQ(progress.replica, ReplicaId(1));
  EXPECT_EQ(progress.epoch, 3);
  EXPECT_EQ(progress.share, 0.75);

  const Formed formed = Sent(Formed{ReplicaId(1), 3, absl::OkStatus(), 4, 5, 6.5, 7.5, true});
  EXPECT_EQ(formed.replica, ReplicaId(1));
  EXPECT_EQ(formed.epoch, 3);
  EXPECT_TRUE(formed.status.ok());
  EXPECT_EQ(formed.bytes_read, 4);
  EXPECT_EQ(formed.bytes_fetched, 5);
  EXPECT_EQ(formed.load_s, 6.5);
  EXPECT_EQ(formed.form_s, 7.5);
  EXPECT_TRUE(formed.weights_kept);

  const Heartbeat heartbeat =
      Sent(Heartbeat{ReplicaId(1), 3, 812, 5120, true, 0.5, 813, 2, 0.25, 1.5, 2.5, 3.5, 4, 5, 6});
  EXPECT_EQ(heartbeat.replica, ReplicaId(1));
  EXPECT_EQ(heartbeat.epoch, 3);
  EXPECT_EQ(heartbeat.step, 812u);
  EXPECT_EQ(heartbeat.collective, 5120u);
  EXPECT_TRUE(heartbeat.in_step);
  EXPECT_EQ(heartbeat.in_step_s, 0.5);
  EXPECT_EQ(heartbeat.running_step, 813u);
  EXPECT_EQ(heartbeat.waiting_for, 2);
  EXPECT_EQ(heartbeat.waiting_s, 0.25);
  EXPECT_EQ(heartbeat.compute_s, 1.5);
  EXPECT_EQ(heartbeat.wait_s, 2.5);
  EXPECT_EQ(heartbeat.wire_s, 3.5);
  EXPECT_EQ(heartbeat.bytes_sent, 4);
  EXPECT_EQ(heartbeat.bytes_received, 5);
  EXPECT_EQ(heartbeat.resident_bytes, 6);
  EXPECT_FALSE(Sent(Heartbeat()).replica.valid());
  EXPECT_EQ(Sent(Heartbeat()).waiting_for, -1);

  const Leaving leaving = Sent(Leaving{"SIGTERM", 30});
  EXPECT_EQ(leaving.reason, "SIGTERM");
  EXPECT_EQ(leaving.grace_s, 30);

  StepOutcome outcome;
  outcome.epoch = 3;
  outcome.step = 9;
  outcome.sampled.push_back({Slot(1), {}, absl::OkStatus()});
  EXPECT_EQ(Sent(outcome).sampled[0].slot, Slot(1));
}

PlacementPlan SomePlan() {
  PlacementPlan plan;
  plan.epoch = 5;
  plan.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    RankShard& shard = plan.ranks[rank];
    shard.rank = rank;
    shard.stage = rank;
    shard.device = {"cpu", 3};
    shard.layers = {10 * rank, 10 * rank + 10};
    shard.q_heads = {0, 9};
    shard.kv_heads = {0, 3};
    shard.ffn = {32, 64};
    shard.vocab = rank == 1 ? Range{0, 1000} : Range{};
    shard.first_stage = rank == 0;
    shard.last_stage = rank == 1;
    shard.group = {rank};
    if (rank == 1) shard.group_vocab = {1000};
  }
  plan.ranks[0].next_rank = 1;
  plan.ranks[1].previous_rank = 0;
  plan.tensor_groups = {{0}, {1}};
  return plan;
}

TEST(ClusterCodec, ConfigureRoundTrip) {
  Configure sent;
  sent.replica = ReplicaId(1);
  sent.model = {"smollm2", "/models/\xff.gguf", "00ff", {{100, 10}, {200, 20}}};
  sent.plan = SomePlan();
  sent.rank = 1;
  sent.options = {32, 1024, 64, 4096, "int8"};
  const Configure got = Sent(sent);
  EXPECT_EQ(got.replica, sent.replica);
  EXPECT_EQ(got.model.name, sent.model.name);
  EXPECT_EQ(got.model.path, sent.model.path);
  EXPECT_EQ(got.model.digest, sent.model.digest);
  ASSERT_EQ(got.model.parts.size(), 2u);
  EXPECT_EQ(got.model.parts[1].bytes, 200);
  EXPECT_EQ(got.model.parts[1].header_bytes, 20);
  EXPECT_EQ(got.rank, 1);
  EXPECT_EQ(got.options.block_size, 32);
  EXPECT_EQ(got.options.max_rows, 1024);
  EXPECT_EQ(got.options.max_sampled_rows, 64);
  EXPECT_EQ(got.options.max_positions, 4096);
  EXPECT_EQ(got.options.activations, "int8");
  EXPECT_EQ(got.plan.epoch, 5);
  EXPECT_EQ(got.plan.tensor_groups, sent.plan.tensor_groups);
  ASSERT_EQ(got.plan.ranks.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    const RankShard &a = got.plan.ranks[rank], &b = sent.plan.ranks[rank];
    EXPECT_EQ(a.rank, rank);
    EXPECT_EQ(a.stage, b.stage);
    EXPECT_EQ(a.device.kind, b.device.kind);
    EXPECT_EQ(a.device.index, b.device.index);
    EXPECT_EQ(a.layers, b.layers);
    EXPECT_EQ(a.q_heads, b.q_heads);
    EXPECT_EQ(a.kv_heads, b.kv_heads);
    EXPECT_EQ(a.ffn, b.ffn);
    EXPECT_EQ(a.vocab, b.vocab);
    EXPECT_EQ(a.first_stage, b.first_stage);
    EXPECT_EQ(a.last_stage, b.last_stage);
    EXPECT_EQ(a.group, b.group);
    EXPECT_EQ(a.group_vocab, b.group_vocab);
    EXPECT_EQ(a.previous_rank, b.previous_rank);
    EXPECT_EQ(a.next_rank, b.next_rank);
  }
}

TEST(ClusterCodec, OtherMasterMessagesRoundTrip) {
  const Welcome welcome = Sent(Welcome{WorkerId(1ull << 60), 20, 400});
  EXPECT_EQ(welcome.worker, WorkerId(1ull << 60));
  EXPECT_EQ(welcome.heartbeat_ms, 20);
  EXPECT_EQ(welcome.dead_after_ms, 400);

  const Form form = Sent(Form{ReplicaId(1), 4, 900, {"a", "b"}, {"m", "n"}, "secret"});
  EXPECT_EQ(form.replica, ReplicaId(1));
  EXPECT_EQ(form.epoch, 4);
  EXPECT_EQ(form.block_count, 900);
  EXPECT_THAT(form.addresses, ElementsAre("a", "b"));
  EXPECT_THAT(form.machines, ElementsAre("m", "n"));
  EXPECT_EQ(form.secret, "secret");

  const Abort abort = Sent(Abort{ReplicaId(1), 4, "rank 2 is lost"});
  EXPECT_EQ(abort.replica, ReplicaId(1));
  EXPECT_EQ(abort.epoch, 4);
  EXPECT_EQ(abort.reason, "rank 2 is lost");
  EXPECT_EQ(Sent(Release{ReplicaId(3)}).replica, ReplicaId(3));

  StepPlan plan;
  plan.epoch = 4;
  plan.step = 17;
  plan.chunks.push_back({Slot(2), 30, 1, true, false});
  const Step step = Sent(Step{ReplicaId(1), plan});
  EXPECT_EQ(step.replica, ReplicaId(1));
  EXPECT_EQ(step.plan.step, 17u);
  EXPECT_EQ(step.plan.chunks[0].start, 30);
}

TEST(ClusterCodec, PingsAndMessagesOfNewerVersionsAreNothingToHandOn) {
  const auto ping = ParseMasterMessage(SerializePing());
  ASSERT_TRUE(ping.ok());
  EXPECT_FALSE(ping->has_value());
  const std::string newer = "\xa2\x06\x03new";  // field 100, three bytes
  EXPECT_FALSE(ParseMasterMessage(newer).value().has_value());
  EXPECT_FALSE(ParseWorkerMessage(newer).value().has_value());
}

TEST(ClusterCodec, ModelBytesRoundTrip) {
  const auto request = ParseModelRequest(SerializeModelRequest({"ab", {{5, 7}, {1ll << 40, 0}}}));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->digest, "ab");
  ASSERT_EQ(request->ranges.size(), 2u);
  EXPECT_EQ(request->ranges[0].size, 7);
  EXPECT_EQ(request->ranges[1].offset, 1ll << 40);
  for (size_t size : {0, 1, 127, 128, 524288}) {
    const std::string data(size, 'x');
    EXPECT_EQ(ParseModelBytes(ModelBytesHeader(size) + data).value(), data);
  }
}

template <class Body, class Change>
std::string Changed(const Body& body, Change&& change) {
  proto::MasterMessage master;
  proto::WorkerMessage worker;
  if constexpr (std::is_constructible_v<MasterMessage, Body>) {
    master.ParseFromString(SerializeMasterMessage(body));
    change(master);
    auto parsed = ParseMasterMessage(master.SerializeAsString());
    return parsed.ok() ? "accepted" : std::string(parsed.status().message());
  } else {
    worker.ParseFromString(SerializeWorkerMessage(body));
    change(worker);
    auto parsed = ParseWorkerMessage(worker.SerializeAsString());
    return parsed.ok() ? "accepted" : std::string(parsed.status().message());
  }
}

TEST(ClusterCodec, RefusesWhatCannotBe) {
  Configure configure;
  configure.replica = ReplicaId(0);
  configure.model.parts = {{100, 10}};
  configure.plan = SomePlan();
  const auto plan = [&](auto change) {
    return Changed(configure, [&](proto::MasterMessage& m) {
      change(*m.mutable_configure()->mutable_plan());
    });
  };
  EXPECT_EQ(plan([](auto& p) {}), "accepted");
  EXPECT_THAT(plan([](auto& p) { p.clear_ranks(); }), HasSubstr("no rank"));
  EXPECT_THAT(plan([](auto& p) { p.set_epoch(0x80000000); }), HasSubstr("epoch 2147483648"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(0)->set_stage(2); }), HasSubstr("stage 2"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(0)->set_group(0, 9); }), HasSubstr("rank 9"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(0)->set_group(0, 1); }),
              HasSubstr("rank 0 is not once in its own group"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(0)->set_next_rank(2); }),
              HasSubstr("next_rank 2"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(1)->set_previous_rank(-2); }),
              HasSubstr("previous_rank -2"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(1)->add_group_vocab(5); }),
              HasSubstr("group_vocab"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_ranks(1)->mutable_layers()->set_begin(21); }),
              HasSubstr("range of layers [21, 20)"));
  EXPECT_THAT(plan([](auto& p) { p.mutable_tensor_groups(0)->add_ranks(2); }), HasSubstr("rank 2"));
  EXPECT_THAT(Changed(configure, [](auto& m) { m.mutable_configure()->set_rank(2); }),
              HasSubstr("rank 2 is out of range"));
  EXPECT_THAT(Changed(configure, [](auto& m) { m.mutable_configure()->clear_options(); }),
              HasSubstr("block_size 0"));
  EXPECT_THAT(
      Changed(configure,
              [](auto& m) {
                m.mutable_configure()->mutable_model()->mutable_parts(0)->set_header_bytes(101);
              }),
      HasSubstr("header of a file has 101 bytes and the file 100"));
  EXPECT_THAT(Changed(configure,
                      [](auto& m) {
                        m.mutable_configure()->mutable_model()->set_path(std::string(1 << 17, 'x'));
                      }),
              HasSubstr("path of the model has 131072 bytes"));
  EXPECT_THAT(Changed(Form{ReplicaId(0), 1, 1, {"a"}, {"m"}, ""},
                      [](auto& m) { m.mutable_form()->add_addresses("b"); }),
              HasSubstr("2 addresses and 1 machines"));
  EXPECT_THAT(Changed(FormProgress{ReplicaId(0), 1, 0},
                      [](auto& m) { m.mutable_form_progress()->set_share(1.5); }),
              HasSubstr("share 1.5"));
  EXPECT_THAT(Changed(Heartbeat(), [](auto& m) { m.mutable_heartbeat()->set_wait_s(NAN); }),
              HasSubstr("wait_s"));
  EXPECT_THAT(Changed(Heartbeat(), [](auto& m) { m.mutable_heartbeat()->set_replica(-2); }),
              HasSubstr("replica -2"));
  EXPECT_THAT(
      Changed(Capacity{ReplicaId(0)}, [](auto& m) { m.mutable_capacity()->set_memory_bytes(-1); }),
      HasSubstr("memory_bytes -1 is negative"));
  EXPECT_FALSE(ParseModelRequest(SerializeModelRequest({"", {{-1, 5}}})).ok());
  EXPECT_FALSE(
      ParseModelRequest(SerializeModelRequest({"", {{5, std::numeric_limits<int64_t>::max()}}}))
          .ok());
  EXPECT_FALSE(ParseModelRequest(SerializeModelRequest({"", std::vector<ModelRange>(4097)})).ok());
  Hello hello = SomeHello();
  hello.name.clear();
  EXPECT_THAT(std::string(ParseHello(SerializeHello(hello), {}).status().message()),
              HasSubstr("name is empty"));
  hello = SomeHello();
  hello.devices[0].speed = std::numeric_limits<double>::infinity();
  EXPECT_THAT(std::string(ParseHello(SerializeHello(hello), {}).status().message()),
              HasSubstr("speed"));
}

TEST(ClusterCodec, DamagedBytesAreReadOrRefused) {
  std::mt19937_64 random(TestSeed());
  Configure configure;
  configure.replica = ReplicaId(0);
  configure.plan = SomePlan();
  const std::string bytes[] = {SerializeHello(SomeHello()), SerializeMasterMessage(configure),
                               SerializeWorkerMessage(Heartbeat())};
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes[i % 3];
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    refused += !ParseHello(damaged, {}).ok();
    refused += !ParseMasterMessage(damaged).ok();
    refused += !ParseWorkerMessage(damaged).ok();
  }
  EXPECT_GT(refused, 20000);
}

}  // namespace
}  // namespace staffel
