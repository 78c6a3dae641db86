// The CPU backend against the reference backend, at every instruction set level of this machine:
// random programs, any chunking, and the same bits whatever shares the step.
#include "device/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include "base/strings.h"
#include "device/program_check.h"
#include "device/ref/ref_backend.h"
#include "kernels/api/cpu_select.h"
#include "tests/support/seed.h"
#include "tests/unit/device/allocation_count.h"
#include "tests/unit/device/random_model.h"

namespace staffel {
namespace {

using ::testing::HasSubstr;
using testing::Logits;
using testing::ModelShapeSpec;
using testing::Sequences;
using testing::TinyModel;

const std::vector<DType> kAllTypes = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                                      DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                      DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

std::vector<std::string> Levels() {
  std::vector<std::string> names;
  for (const kernels::CpuKernels* level : kernels::AvailableCpuKernels()) {
    names.push_back(level->name);
  }
  return names;
}

BackendOptions Options(ActivationType activations = ActivationType::kInt16) {
  BackendOptions options;
  options.block_count = 64;
  options.max_rows = 128;
  options.max_sampled_rows = 128;
  options.max_positions = 256;
  options.activations = activations;
  return options;
}

std::unique_ptr<Backend> Cpu(const std::string& level, int threads = 2) {
  auto backend = MakeCpuBackend({.threads = threads, .level = level});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// A model, its text, and a way to run it.
struct Case {
  ModelShapeSpec shape;
  TinyModel model;
  Sequences sequences;
};
Case RandomCase(testing::Rng& rng, const std::vector<DType>& types) {
  Case c{testing::RandomShape(rng, types)};
  c.model = testing::MakeTinyModel(rng, c.shape);
  c.sequences = testing::RandomSequences(rng, c.shape.vocab, {50, 1, 33, 7}, 16, 64);
  return c;
}
Logits RunCase(Backend& backend, const Case& c, const BackendOptions& options,
               const testing::Schedule& schedule, Communicator* group = nullptr) {
  auto executable = backend.Prepare(c.model.program, c.model.weights, group, options);
  if (!executable.ok()) {
    ADD_FAILURE() << executable.status();
    return {};
  }
  auto logits = RunSchedule(**executable, c.model.program, c.sequences, schedule);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *logits : Logits();
}

double WorstError(const Logits& got, const Logits& want) {
  double worst = got.size() == want.size() ? 0.0 : INFINITY;
  for (const auto& [key, row] : want) {
    const auto found = got.find(key);
    if (found == got.end()) return INFINITY;
    const double error = testing::RelativeError(found->second, row);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

constexpr ActivationType kActivationTypes[] = {ActivationType::kInt16, ActivationType::kInt8,
                                               ActivationType::kF32};

// Relative error of a row of logits against the reference with bf16 KV. f32: sums in another order,
// which now and then round a key or value the other way (2^-8 of one element). int16: q and
// probabilities are bf16 where the level has bf16 products. int8: activations have a scale per 32
// (0.5 to 0.8 % of a product). The errors of up to 3 random layers add up and softmax enlarges
// them.
constexpr double kBounds[] = {0.02, 0.15, 0.003};
constexpr double kDefaultBound = kBounds[0], kF32Bound = kBounds[2];

TEST(CpuBackend, AgreesWithTheReferenceAtEveryLevel) {
  testing::Rng rng(TestSeed());
  double worst[3] = {};  // by ActivationType
  for (int round = 0; round < 14; ++round) {
    // Each type alone, then mixtures.
    const Case c = RandomCase(rng, round < 11 ? std::vector<DType>{kAllTypes[round]} : kAllTypes);
    SCOPED_TRACE(c.shape.Describe());
    const auto schedule = testing::RandomSchedule(rng, c.sequences, 128);
    const Logits want = RunCase(*MakeRefBackend(1, RefKv::kBf16), c, Options(), schedule);
    for (const std::string& level : Levels()) {
      for (ActivationType activations : kActivationTypes) {
        const int i = static_cast<int>(activations);
        SCOPED_TRACE(StrCat(level, " ", kActivationTypeNames[i]));
        const double error =
            WorstError(RunCase(*Cpu(level), c, Options(activations), schedule), want);
        EXPECT_LT(error, kBounds[i]);
        worst[i] = std::max(worst[i], error);
      }
    }
  }
  for (int i = 0; i < 3; ++i) {
    std::cout << "worst relative error of a row of logits with activations "
              << kActivationTypeNames[i] << ": " << worst[i] << "\n";
  }
}

TEST(CpuBackend, ARowsBitsDependOnItsSequenceOnly) {
  testing::Rng rng(TestSeed() + 1);
  for (const std::string& level : Levels()) {
    for (int round = 0; round < 4; ++round) {
      const Case c = RandomCase(rng, kAllTypes);
      SCOPED_TRACE(StrCat(level, ": ", c.shape.Describe()));
      const BackendOptions options = Options(kActivationTypes[round % 3]);
      const Logits want = RunCase(*Cpu(level, 1), c, options, testing::TokenByToken(c.sequences));
      const Logits whole = RunCase(*Cpu(level, 2), c, options, testing::WholePrompts(c.sequences));
      const Logits mixed =
          RunCase(*Cpu(level, 3), c, options, testing::RandomSchedule(rng, c.sequences, 128));
      EXPECT_TRUE(whole == want) << "whole prompts differ by " << WorstError(whole, want);
      EXPECT_TRUE(mixed == want) << "random chunks differ by " << WorstError(mixed, want);
    }
  }
}

TEST(CpuBackend, LargerBlocksGiveTheSameBits) {
  testing::Rng rng(TestSeed() + 2);
  const Case c = RandomCase(rng, kAllTypes);
  SCOPED_TRACE(c.shape.Describe());
  const Logits want = RunCase(*Cpu(""), c, Options(), testing::WholePrompts(c.sequences));
  BackendOptions options = Options();
  options.block_size = 64;
  options.block_count = 16;
  Case large = RandomCase(rng, kAllTypes);
  large.shape = c.shape;
  large.model = c.model;
  large.sequences = testing::RandomSequences(rng, c.shape.vocab, {50, 1, 33, 7}, 64, 16);
  large.sequences.tokens = c.sequences.tokens;
  EXPECT_TRUE(RunCase(*Cpu(""), large, options, testing::WholePrompts(c.sequences)) == want);
}

// Values op by op: the first op whose output is further from the reference than its rounding
// explains is named. Tracing changes no bits of the result.
TEST(CpuBackend, EveryTracedValueIsNearTheReference) {
  testing::Rng rng(TestSeed() + 3);
  for (const std::string& level : Levels()) {
    for (int round = 0; round < 4; ++round) {
      const Case c = RandomCase(rng, kAllTypes);
      SCOPED_TRACE(StrCat(level, ": ", c.shape.Describe()));
      struct Record {
        int op;
        ValueId value;
        std::vector<float> data;
      };
      std::vector<Record> records[2];
      Logits logits[2];
      for (int cpu = 0; cpu < 2; ++cpu) {
        BackendOptions options = Options();
        options.trace = [&](const TraceRecord& r) {
          records[cpu].push_back({r.op, r.value, {r.data.begin(), r.data.end()}});
        };
        const auto backend = cpu == 0 ? MakeRefBackend(1, RefKv::kBf16) : Cpu(level);
        logits[cpu] = RunCase(*backend, c, options, testing::WholePrompts(c.sequences));
      }
      ASSERT_EQ(records[0].size(), records[1].size());
      for (size_t i = 0; i < records[0].size(); ++i) {
        const Op& op = c.model.program.ops[records[0][i].op];
        ASSERT_EQ(records[0][i].op, records[1][i].op);
        ASSERT_EQ(records[0][i].value, records[1][i].value);
        ASSERT_LT(testing::RelativeError(records[1][i].data, records[0][i].data), kDefaultBound)
            << "op " << records[0][i].op << " (" << OpName(op) << "), value "
            << c.model.program.value(records[0][i].value).name;
      }
      const Logits untraced =
          RunCase(*Cpu(level), c, Options(), testing::WholePrompts(c.sequences));
      EXPECT_TRUE(untraced == logits[1]);
    }
  }
}

TEST(CpuBackend, BlockCopiesCarryKeysAndValues) {
  testing::Rng rng(TestSeed() + 4);
  const Case c = RandomCase(rng, {DType::kF32});
  auto executable = Cpu("")->Prepare(c.model.program, c.model.weights, nullptr, Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  auto want =
      RunSchedule(**executable, c.model.program, c.sequences, testing::TokenByToken(c.sequences));
  ASSERT_TRUE(want.ok()) << want.status();
  // The last token of sequence 2 again, on copies of its blocks that were made in two hops.
  std::vector<BlockId> free_blocks;
  for (int b = 0; b < 64; ++b) {
    bool used = false;
    for (const auto& table : c.sequences.blocks) {
      for (BlockId id : table) used |= id == BlockId(b);
    }
    if (!used) free_blocks.push_back(BlockId(b));
  }
  std::vector<BlockCopy> copies;
  std::vector<BlockId> table;
  for (size_t i = 0; i < c.sequences.blocks[2].size(); ++i) {
    copies.push_back({c.sequences.blocks[2][i], free_blocks[2 * i]});
    copies.push_back({free_blocks[2 * i], free_blocks[2 * i + 1]});
    table.push_back(free_blocks[2 * i + 1]);
  }
  const TokenId token = c.sequences.tokens[2].back();
  const int32_t position = static_cast<int>(c.sequences.tokens[2].size()) - 1, sampled = 0;
  const BatchTensors::Sequence row{
      .row_begin = 0, .row_count = 1, .start = position, .blocks = table};
  BatchTensors batch;
  batch.tokens = absl::MakeConstSpan(&token, 1);
  batch.positions = absl::MakeConstSpan(&position, 1);
  batch.sampled_rows = absl::MakeConstSpan(&sampled, 1);
  batch.sequences = absl::MakeConstSpan(&row, 1);
  batch.block_copies = copies;
  ASSERT_TRUE((*executable)->Run(batch).ok());
  const absl::Span<float> got = (*executable)->logits(0);
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()), ((*want)[std::pair(2, position)]));
}

TEST(CpuBackend, AStepAllocatesNothingAfterWarmUp) {
  testing::Rng rng(TestSeed() + 5);
  const Case c = RandomCase(rng, kAllTypes);
  SCOPED_TRACE(c.shape.Describe());
  auto executable = Cpu("")->Prepare(c.model.program, c.model.weights, nullptr, Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  // A prompt of 33 and a decode step of three sequences, twice; the second time is counted.
  std::vector<TokenId> tokens(33, 1);
  std::vector<int32_t> positions(33), sampled = {0, 1, 2};
  std::vector<BatchTensors::Sequence> rows = {
      {.row_begin = 0, .row_count = 33, .start = 0, .blocks = c.sequences.blocks[0]}};
  for (int i = 0; i < 33; ++i) positions[i] = i;
  BatchTensors prompt;
  prompt.tokens = tokens;
  prompt.positions = positions;
  prompt.sequences = rows;
  prompt.sampled_rows = sampled;
  const std::vector<int32_t> decode_positions = {33, 0, 5};
  std::vector<BatchTensors::Sequence> decode_rows;
  for (int s : {0, 1, 3}) {
    decode_rows.push_back({.row_begin = static_cast<int>(decode_rows.size()),
                           .row_count = 1,
                           .start = decode_positions[decode_rows.size()],
                           .blocks = c.sequences.blocks[s]});
  }
  BatchTensors decode;
  decode.tokens = absl::MakeConstSpan(tokens).first(3);
  decode.positions = decode_positions;
  decode.sequences = decode_rows;
  decode.sampled_rows = sampled;
  for (int pass = 0; pass < 2; ++pass) {
    const int64_t before = testing::AllocationCount();
    ASSERT_TRUE((*executable)->Run(prompt).ok());
    ASSERT_TRUE((*executable)->Run(decode).ok());
    if (pass == 1) {
      EXPECT_EQ(testing::AllocationCount() - before, 0);
    }
  }
}

TEST(CpuBackend, RefusesWhatDoesNotFitIntoMemoryWithNumbers) {
  testing::Rng rng(1);
  const Case c = RandomCase(rng, {DType::kF32});
  BackendOptions options = Options();
  options.block_count = 1 << 30;
  auto executable = Cpu("")->Prepare(c.model.program, c.model.weights, nullptr, options);
  EXPECT_EQ(executable.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(executable.status().message()),
              ::testing::AllOf(HasSubstr("1073741824 blocks of 16 tokens"), HasSubstr("GiB"),
                               HasSubstr("are missing")));
}

TEST(CpuBackend, RefusesWhatItsKernelsCannotRun) {
  testing::Rng rng(1);
  ModelShapeSpec shape;
  TinyModel model = testing::MakeTinyModel(rng, shape);
  BackendOptions options = Options();
  options.block_size = 24;
  EXPECT_THAT(
      std::string(
          Cpu("")->Prepare(model.program, model.weights, nullptr, options).status().message()),
      HasSubstr("multiple of 16, not 24"));
  shape.head_dim = shape.rope_dim = 1024;
  model = testing::MakeTinyModel(rng, shape);
  EXPECT_EQ(Cpu("")->Prepare(model.program, model.weights, nullptr, Options()).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(MakeCpuBackend({.level = "sse9"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeCpuBackend({.threads = -1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuBackend, ReportsProgressAndReleasesEveryTensorOnce) {
  testing::Rng rng(TestSeed() + 6);
  for (bool tied : {false, true}) {
    ModelShapeSpec shape;
    shape.tied = tied;
    const TinyModel model = testing::MakeTinyModel(rng, shape);
    std::vector<double> progress;
    BackendOptions options = Options();
    options.progress = [&](double share) { progress.push_back(share); };
    auto executable = Cpu("")->Prepare(model.program, model.weights, nullptr, options);
    ASSERT_TRUE(executable.ok()) << executable.status();
    EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
    ASSERT_FALSE(progress.empty());
    EXPECT_GT(progress.front(), 0.0);
    EXPECT_EQ(progress.back(), 1.0);
    std::map<std::string, int> want;
    for (const WeightSpec& spec : model.program.weights) want[spec.tensor] = 1;
    EXPECT_EQ(model.weights.released(), want);
    EXPECT_GT((*executable)->weight_bytes(), 0);
  }
}

TEST(CpuBackend, KvBytesAreTwoBytesAnElement) {
  Program program;
  program.kv = {.layers = 3, .kv_heads = 2, .head_dim = 64};
  EXPECT_EQ(Cpu("")->kv_bytes_per_block(program, 32), 3 * 32 * 2 * 2 * 64 * 2);
}

TEST(CpuBackend, TimingReportNamesTheOps) {
  testing::Rng rng(1);
  const Case c = RandomCase(rng, {DType::kF32});
  auto backend = MakeCpuBackend({.threads = 1, .timing = true});
  ASSERT_TRUE(backend.ok());
  auto executable = (*backend)->Prepare(c.model.program, c.model.weights, nullptr, Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  ASSERT_TRUE(
      RunSchedule(**executable, c.model.program, c.sequences, testing::TokenByToken(c.sequences))
          .ok());
  const std::string report = CpuTimingReport(**executable);
  EXPECT_THAT(report, ::testing::AllOf(HasSubstr("Embed"), HasSubstr("GatedLinear"),
                                       HasSubstr("Rope+PagedAttention")));
  EXPECT_EQ(CpuTimingReport(**executable), "");  // taken
}

// A group of two whose other member computes the same, and sends back what it is sent: sums double.
class EchoGroup final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Status AllReduceSum(absl::Span<float> data) override {
    for (float& x : data) x += x;
    return absl::OkStatus();
  }
  Status Send(int, absl::Span<const float> data) override {
    sent_.insert(sent_.end(), data.begin(), data.end());
    return absl::OkStatus();
  }
  Status Recv(int, absl::Span<float> data) override {
    EXPECT_LE(data.size(), sent_.size());
    std::copy_n(sent_.begin(), data.size(), data.begin());
    sent_.erase(sent_.begin(), sent_.begin() + data.size());
    return status_;
  }
  void Abort() override {}

  Status status_;

 private:
  std::deque<float> sent_;
};

TEST(CpuBackend, CollectivesMeanWhatTheReferenceSays) {
  testing::Rng rng(TestSeed() + 7);
  Case c = RandomCase(rng, {DType::kQ8_0});
  SCOPED_TRACE(c.shape.Describe());
  // The logits go to a neighbour and back, and are gathered twice side by side.
  Program& p = c.model.program;
  const ValueId logits = p.logits;
  const int vocab = p.value(logits).cols;
  p.values.push_back({"back", RowDim::kSampled, vocab});
  const ValueId back(static_cast<ValueId>(p.values.size() - 1));
  p.values.push_back({"gathered", RowDim::kSampled, 2 * vocab});
  p.logits = static_cast<ValueId>(p.values.size() - 1);
  p.ops.push_back(SendOp{logits, 1});
  p.ops.push_back(RecvOp{back, 1});
  p.ops.push_back(SendOp{back, 1});
  p.ops.push_back(GatherOp{back, p.logits, {vocab, vocab}, {0, 1}});
  EchoGroup group;
  const auto schedule = testing::WholePrompts(c.sequences);
  const Logits want = RunCase(*MakeRefBackend(1, RefKv::kBf16), c, Options(), schedule, &group);
  const Logits got = RunCase(*Cpu(""), c, Options(ActivationType::kF32), schedule, &group);
  EXPECT_LT(WorstError(got, want), kF32Bound);
  for (const auto& [key, row] : got) {
    ASSERT_EQ(row.size(), 2u * vocab);
    EXPECT_TRUE(std::equal(row.begin(), row.begin() + vocab, row.begin() + vocab));
  }
  // A failed collective ends the step with its status.
  group.status_ = absl::AbortedError("peer lost");
  auto executable = Cpu("")->Prepare(p, c.model.weights, &group, Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(RunSchedule(**executable, p, c.sequences, schedule).status(), group.status_);
}

// A shard: a rank's rows of q, k, v, gate and up, and its columns of o and down.
TEST(CpuBackend, RunsRangesOfTheStoredTensors) {
  testing::Rng rng(TestSeed() + 8);
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
    SCOPED_TRACE(InfoOf(type).name);
    Case c;
    c.shape.types.assign(8, type);
    c.shape.head_dim = c.shape.rope_dim = 32;
    c.model = testing::MakeTinyModel(rng, c.shape);
    c.sequences = testing::RandomSequences(rng, c.shape.vocab, {40, 3}, 16, 64);
    Program& p = c.model.program;
    p.kv.kv_heads = 1;
    auto cut = [&](WeightId id, Range rows, Range cols) {
      p.weights[static_cast<int>(id)].rows = rows;
      p.weights[static_cast<int>(id)].cols = cols;
    };
    auto cols = [&](ValueId id) -> int& { return p.values[static_cast<int>(id)].cols; };
    for (Op& op : p.ops) {  // the second KV head and its two query heads; FFN columns 32 to 96
      if (auto* linear = std::get_if<LinearOp>(&op)) {
        if (linear->parts.size() == 3) {
          cut(linear->parts[0], {64, 128}, {0, 64});
          cut(linear->parts[1], {32, 64}, {0, 64});
          cut(linear->parts[2], {32, 64}, {0, 64});
          cols(linear->out) = 128;
        } else if (p.weight(linear->parts[0]).cols.end == 128) {
          cut(linear->parts[0], {0, 64}, {64, 128});
        } else if (p.weight(linear->parts[0]).cols.end == 96) {
          cut(linear->parts[0], {0, 64}, {32, 96});
        }
      } else if (auto* gated = std::get_if<GatedLinearOp>(&op)) {
        cut(gated->gate, {32, 96}, {0, 64});
        cut(gated->up, {32, 96}, {0, 64});
        cols(gated->out) = 64;
      } else if (auto* rope = std::get_if<RopeAndStoreKvOp>(&op)) {
        rope->heads = WholeHeads(2, 1);
      } else if (auto* attend = std::get_if<PagedAttentionOp>(&op)) {
        attend->heads = WholeHeads(2, 1);
        cols(attend->out) = 64;
      }
    }
    const auto schedule = testing::WholePrompts(c.sequences);
    const Logits want = RunCase(*MakeRefBackend(1, RefKv::kBf16), c, Options(), schedule);
    EXPECT_LT(WorstError(RunCase(*Cpu(""), c, Options(ActivationType::kF32), schedule), want),
              kF32Bound);
  }
}

}  // namespace
}  // namespace staffel
