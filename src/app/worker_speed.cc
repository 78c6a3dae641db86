#include "app/worker_speed.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/available_memory.h"
#include "base/fd.h"
#include "staffel/program.h"
#include "staffel/tensor.h"

namespace staffel {
namespace {

// Larger than the caches of a core: a step reads its weights from memory.
constexpr int kRows = 32768, kCols = 1024;
// Measured in rounds until one brings nothing better: neighbours slow a probe down for as long as
// they load or measure themselves.
constexpr Duration kRound = std::chrono::milliseconds(20);
constexpr int kRoundsMin = 2, kRoundsMax = 8;
constexpr double kBetter = 0.97;
// Workers of one machine that start together measure one after another, but do not wait for ever.
constexpr char kTurnName[] = "staffel-worker-speed";
constexpr Duration kTurnWait = std::chrono::seconds(2), kTurnPoll = std::chrono::milliseconds(5);
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

// A name that one process of the machine can have at a time, and that goes with it: an abstract Unix
// address.
class Turn {
 public:
  Turn() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (!socket_.ok()) return;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(std::begin(kTurnName), std::end(kTurnName), address.sun_path + 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof kTurnName);
    const auto until = std::chrono::steady_clock::now() + kTurnWait;
    while (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 &&
           errno == EADDRINUSE && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kTurnPoll);
    }
  }

 private:
  Fd socket_;
};

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
  const Turn turn;
  // The best of the steps: a neighbour on the machine makes some slower, none faster.
  Duration best = Duration::max();
  for (int round = 0; round < kRoundsMax; ++round) {
    const Duration best_before = best;
    const Time begin = clock.Now();
    for (int step = 0; step < 3 || clock.Now() - begin < kRound; ++step) {
      const Time before = clock.Now();
      if (!(*probe)->Run(batch).ok()) return 1;
      best = std::min(best, clock.Now() - before);
    }
    if (round + 1 >= kRoundsMin && best > kBetter * best_before) break;
  }
  const double seconds = std::chrono::duration<double>(best).count();
  if (seconds <= 0) return 1;
  const double gigabytes_per_s = (*probe)->weight_bytes() / seconds / 1e9;
  return std::pow(kStep, std::round(std::log(gigabytes_per_s) / std::log(kStep)));
}

}  // namespace staffel
