#include "app/worker_speed.h"

#include "base/available_memory.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "staffel/program.h"
#include "staffel/tensor.h"

namespace staffel {
namespace {

// Larger than the caches of a core: a step reads its weights from memory.
constexpr int kRows = 32768, kCols = 1024;
constexpr Duration kProbe = std::chrono::milliseconds(20);
// Results are rounded to powers of it: equal machines must come out equal, now and after a restart,
// or their parts of a model change for nothing.
constexpr double kStep = 1.25;

// One Q8_0 matrix that is embedding and projection, as a small tied model has it.
class ProbeWeights final : public WeightSource {
 public:
  ProbeWeights() {
    tensor_.name = "probe";
    tensor_.type = DType::kQ8_0;
    tensor_.rows = kRows;
    tensor_.cols = kCols;
    bytes_.resize(kRows * tensor_.row_bytes());
    tensor_.bytes = bytes_;
  }
  const TensorView* Find(const std::string&) const override { return &tensor_; }
  void Release(const TensorView&) const override {}

 private:
  std::vector<uint8_t> bytes_;
  TensorView tensor_;
};

Program ProbeProgram() {
  Program program;
  program.values = {{"hidden", RowDim::kTokens, kCols},
                    {"sampled", RowDim::kSampled, kCols},
                    {"logits", RowDim::kSampled, kRows}};
  program.weights = {{"probe", {0, kRows}, {0, kCols}, false}};
  program.ops = {EmbedOp{WeightId(0), ValueId(0)}, TakeRowsOp{ValueId(0), ValueId(1)},
                 LinearOp{ValueId(1), {WeightId(0)}, {}, ValueId(2)}};
  program.logits = ValueId(2);
  program.kv = {1, 1, 32};
  return program;
}

}  // namespace

double MeasureSpeed(Backend& backend, const Clock& clock) {
  // The probe takes some tens of MiB; where that much is dear, speed is not what matters.
  constexpr int64_t kProbeMemory = int64_t{256} << 20;
  if (AvailableMemoryBytes() < kProbeMemory) return 1;
  const Program program = ProbeProgram();
  BackendOptions options;
  options.block_count = 1;
  options.max_rows = options.max_sampled_rows = 1;
  options.max_positions = 16;
  const auto weights = std::make_unique<ProbeWeights>();
  Result<std::unique_ptr<Executable>> probe = backend.Prepare(program, *weights, nullptr, options);
  if (!probe.ok()) return 1;
  const TokenId token = 0;
  const int32_t zero = 0;
  const BlockId block(0);
  const BatchTensors::Sequence sequence{0, 1, 0, {&block, 1}};
  const BatchTensors batch{.tokens = {&token, 1},
                           .positions = {&zero, 1},
                           .sequences = {&sequence, 1},
                           .sampled_rows = {&zero, 1}};
  // The best of the steps: a neighbour on the machine makes some slower, none faster.
  Duration best = Duration::max();
  const Time begin = clock.Now();
  for (int step = 0; step < 3 || clock.Now() - begin < kProbe; ++step) {
    const Time before = clock.Now();
    if (!(*probe)->Run(batch).ok()) return 1;
    best = std::min(best, clock.Now() - before);
  }
  const double seconds = std::chrono::duration<double>(best).count();
  if (seconds <= 0) return 1;
  const double gigabytes_per_s = (*probe)->weight_bytes() / seconds / 1e9;
  return std::pow(kStep, std::round(std::log(gigabytes_per_s) / std::log(kStep)));
}

}  // namespace staffel
