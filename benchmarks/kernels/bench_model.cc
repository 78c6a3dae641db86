// Tokens per second of the bare step loop of a model on the CPU backend: no scheduler, no server.
//   bench_model MODEL.gguf [--threads=1,2] [--level=avx512_bf16] [--timing] [--cpu-time] [--quick]
//   [--activations=int16|int8|f32] [--tp=2]
// With --tp, that many ranks of each number of threads, linked as those of a server are.
// Decode of 1, 8 and 32 streams at context 128 to 256 with greedy sampling, then a prompt of 512
// in chunks of 128 and 512. The machine is shared: each figure is the mean and the best window.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "comm/mesh/mesh_endpoint.h"
#include "device/cpu/cpu_backend.h"
#include "kernels/api/cpu_select.h"
#include "model/model.h"
#include "modelfile/open.h"
#include "plan/placement.h"
#include "staffel/backend.h"

namespace staffel {
namespace {

constexpr int kStreams = 32, kPrompt = 128, kLongPrompt = 512;
constexpr int kWindow = 16;  // steps of the best window

// Wall time, or the CPU time of this process: with one thread the latter is not disturbed by other
// processes (except in the caches).
bool g_cpu_time = false;
double Now() {
  timespec time;
  clock_gettime(g_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Flags {
  std::string model, level;
  int tensor_parallel = 1;
  std::vector<int> threads = {1, 2};
  ActivationType activations = ActivationType::kInt16;
  bool timing = false, quick = false;
};

// The sequences of the benchmark and one step over any of their tokens.
class Loop {
 public:
  Loop(Executable& executable, bool samples, int vocab, const kernels::CpuKernels& kernels)
      : executable_(executable), samples_(samples), vocab_(vocab), kernels_(kernels) {
    const int blocks = kLongPrompt / 16;
    for (int s = 0; s < kStreams; ++s) {
      for (int b = 0; b < blocks; ++b) tables_[s].push_back(BlockId(b * kStreams + s));
    }
  }

  // Rows [start, start + count) of a prompt.
  void Prompt(int sequence, int start, int count) {
    std::vector<TokenId> tokens(count);
    for (int i = 0; i < count; ++i) tokens[i] = Token(sequence, start + i);
    Step({{.row_begin = 0, .row_count = count, .start = start, .blocks = tables_[sequence]}},
         tokens, {count - 1});
  }
  // One token of each of the first `streams` sequences, at `position`.
  void Decode(int streams, int position) {
    std::vector<BatchTensors::Sequence> rows;
    std::vector<TokenId> tokens;
    std::vector<int32_t> sampled;
    for (int s = 0; s < streams; ++s) {
      tokens.push_back(Token(s, position));
      rows.push_back({.row_begin = s, .row_count = 1, .start = position, .blocks = tables_[s]});
      sampled.push_back(s);
    }
    Step(rows, tokens, sampled);
  }

 private:
  // Drawn tokens are not used: ranks that draw none compute the same steps.
  TokenId Token(int sequence, int position) const {
    return (position * 131 + sequence * 17) % std::min(4000, vocab_ - 100) + 100;
  }
  void Step(const std::vector<BatchTensors::Sequence>& rows, const std::vector<TokenId>& tokens,
            const std::vector<int32_t>& sampled) {
    std::vector<int32_t> positions;
    for (const BatchTensors::Sequence& row : rows) {
      for (int i = 0; i < row.row_count; ++i) positions.push_back(row.start + i);
    }
    BatchTensors batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.sequences = rows;
    batch.sampled_rows = sampled;
    const Status status = executable_.Run(batch);
    if (!status.ok()) {
      std::cerr << status << "\n";
      std::exit(1);
    }
    for (size_t row = 0; samples_ && row < sampled.size(); ++row) {
      const absl::Span<float> logits = executable_.logits(static_cast<int>(row));
      drawn_ += kernels_.argmax(logits.data(), static_cast<int64_t>(logits.size()));
    }
  }

  Executable& executable_;
  const bool samples_;
  const int vocab_;
  const kernels::CpuKernels& kernels_;
  std::vector<BlockId> tables_[kStreams];
  int64_t drawn_ = 0;
};

// One rank runs the benchmark; what it says goes to stdout for rank 0 only, or for all with timing.
struct Rank {
  Executable& executable;
  const Flags& flags;
  int rank;

  void Report() {
    if (rank == 0 || flags.timing) std::cout << CpuTimingReport(executable) << std::flush;
  }
  template <class... Args>
  void Print(const char* format, Args... args) {
    if (rank == 0) std::printf(format, args...), std::fflush(stdout);
  }
};

void BenchDecode(Loop& loop, Rank& rank, const Flags& flags, int streams) {
  for (int s = 0; s < streams; ++s) loop.Prompt(s, 0, kPrompt);
  const int steps = streams == 1 ? 128 : 48;
  double best_mean = 0, best_window = 0;
  CpuTimingReport(rank.executable);
  for (int rep = 0; rep < (flags.quick ? 1 : 3); ++rep) {
    std::vector<double> at = {Now()};
    for (int i = 0; i < steps; ++i) {
      loop.Decode(streams, kPrompt + i);
      at.push_back(Now());
    }
    best_mean = std::max(best_mean, streams * steps / (at.back() - at[0]));
    for (int i = kWindow; i <= steps; ++i) {
      best_window = std::max(best_window, streams * kWindow / (at[i] - at[i - kWindow]));
    }
  }
  rank.Print("  decode %2d streams: %6.0f tok/s, best %d steps %6.0f\n", streams, best_mean,
             kWindow, best_window);
  rank.Report();
}

void BenchPrompt(Loop& loop, Rank& rank, const Flags& flags, int chunk) {
  double best = 1e9;
  CpuTimingReport(rank.executable);
  for (int rep = 0; rep < (flags.quick ? 2 : 6); ++rep) {
    const double begin = Now();
    for (int start = 0; start < kLongPrompt; start += chunk) loop.Prompt(0, start, chunk);
    best = std::min(best, Now() - begin);
  }
  rank.Print("  prompt of %d in chunks of %3d: %6.0f tok/s\n", kLongPrompt, chunk,
             kLongPrompt / best);
  rank.Report();
}

// Linked ranks, or nothing for one alone.
Result<std::vector<std::unique_ptr<CommEndpoint>>> MakeEndpoints(int ranks) {
  std::vector<std::unique_ptr<CommEndpoint>> endpoints;
  for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
    STAFFEL_ASSIGN_OR_RETURN(auto endpoint, MakeMeshEndpoint({}));
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

Status BenchRank(const Flags& flags, int threads, const ModelFile& file, const ModelConfig& config,
                 const PlacementPlan& plan, int rank,
                 const std::vector<std::unique_ptr<CommEndpoint>>& endpoints) {
  std::unique_ptr<Communicator> group;
  if (!endpoints.empty()) {
    GroupSpec spec{.epoch = 1, .rank = rank, .tensor_groups = plan.tensor_groups};
    for (const auto& endpoint : endpoints) spec.addresses.push_back(endpoint->address());
    spec.machines.assign(endpoints.size(), MachineName());
    STAFFEL_ASSIGN_OR_RETURN(group, endpoints[rank]->Form(spec, std::chrono::seconds(20)));
  }
  STAFFEL_ASSIGN_OR_RETURN(const Program program, BuildProgram(config, plan.ranks[rank]));
  STAFFEL_ASSIGN_OR_RETURN(const auto* kernels, kernels::SelectCpuKernels(flags.level));
  STAFFEL_ASSIGN_OR_RETURN(
      const auto backend,
      MakeCpuBackend({.threads = threads, .level = flags.level, .timing = flags.timing}));
  BackendOptions options;
  options.block_count = kStreams * kLongPrompt / 16;
  options.max_sampled_rows = kStreams;
  options.max_positions = kLongPrompt;
  options.activations = flags.activations;
  const double begin = Now();
  STAFFEL_ASSIGN_OR_RETURN(const auto executable,
                           backend->Prepare(program, file.weights(), group.get(), options));
  Rank self{*executable, flags, rank};
  self.Print("%s, weights %.1f MB packed in %.2f s\n", backend->Describe().c_str(),
             executable->weight_bytes() / 1e6, Now() - begin);
  Loop loop(*executable, program.logits != ValueId::kNone, config.shape.vocab, *kernels);
  for (int streams : {1, 8, kStreams}) BenchDecode(loop, self, flags, streams);
  for (int chunk : {128, 512}) BenchPrompt(loop, self, flags, chunk);
  return absl::OkStatus();
}

Status Bench(const Flags& flags) {
  STAFFEL_ASSIGN_OR_RETURN(const auto file, OpenModelFile(flags.model));
  STAFFEL_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(*file));
  const int ranks = flags.tensor_parallel;
  ClusterShape cluster;
  cluster.devices.resize(ranks);
  STAFFEL_ASSIGN_OR_RETURN(const PlacementPlan plan,
                           MakePlacement(config.shape, cluster, {ranks, 1}));
  for (int threads : flags.threads) {
    STAFFEL_ASSIGN_OR_RETURN(const auto endpoints, MakeEndpoints(ranks));
    std::vector<Status> statuses(ranks);
    std::vector<std::thread> others;
    const auto run = [&](int rank) {
      statuses[rank] = BenchRank(flags, threads, *file, config, plan, rank, endpoints);
    };
    for (int rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
    run(0);
    for (std::thread& other : others) other.join();
    for (const Status& status : statuses) STAFFEL_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  staffel::Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::string value = arg.substr(arg.find('=') + 1);
    if (arg.rfind("--threads=", 0) == 0) {
      flags.threads.clear();
      for (const auto& n : std::vector<std::string>(absl::StrSplit(value, ','))) {
        flags.threads.push_back(std::stoi(n));
      }
    } else if (arg.rfind("--level=", 0) == 0) {
      flags.level = value;
    } else if (arg.rfind("--activations=", 0) == 0) {
      flags.activations = value == "int8"  ? staffel::ActivationType::kInt8
                          : value == "f32" ? staffel::ActivationType::kF32
                                           : staffel::ActivationType::kInt16;
    } else if (arg.rfind("--tp=", 0) == 0) {
      flags.tensor_parallel = std::stoi(value);
    } else if (arg == "--timing") {
      flags.timing = true;
    } else if (arg == "--cpu-time") {
      staffel::g_cpu_time = true;
    } else if (arg == "--quick") {
      flags.quick = true;
    } else {
      flags.model = arg;
    }
  }
  if (flags.model.empty()) {
    std::cerr << "usage: bench_model MODEL.gguf [--threads=1,2] [--level=NAME] "
                 "[--activations=int16|int8|f32] "
                 "[--timing] [--cpu-time] [--quick] [--tp=N]\n";
    return 2;
  }
  const staffel::Status status = staffel::Bench(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
