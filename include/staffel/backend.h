// A device that runs programs. Prepare once (weight packing, memory plan, launch table), then Run
// step after step without allocating. One Executable belongs to one worker thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "staffel/communicator.h"
#include "staffel/ids.h"
#include "staffel/program.h"
#include "staffel/status.h"
#include "staffel/step.h"
#include "staffel/tensor.h"

namespace staffel {

// The rows of one step, as the worker's mirror lays them out. Row order: sequences in the order of
// the plan's chunks, tokens ascending within each.
struct BatchTensors {
  struct Sequence {
    int row_begin = 0, row_count = 0;
    int start = 0;                     // position of the first row
    absl::Span<const BlockId> blocks;  // its table; covers positions [0, start + row_count)
  };
  absl::Span<const TokenId> tokens;          // [T]
  absl::Span<const int32_t> positions;       // [T]
  absl::Span<const Sequence> sequences;      // [S]
  absl::Span<const int32_t> sampled_rows;    // [R], ascending row numbers
  absl::Span<const BlockCopy> block_copies;  // done before anything else
};

// What an op has left in a value; `data` [rows, cols] is valid during the call.
struct TraceRecord {
  int op = 0;  // index into Program::ops
  ValueId value = ValueId::kNone;
  int rows = 0, cols = 0;
  absl::Span<const float> data;
};

// The precision of what is multiplied with the weights, which are exact in all cases.
enum class ActivationType : uint8_t {
  kInt16,  // against quantised weights 15 bits with a scale per 32; against others f32
  kInt8,   // the fastest: 8 bits with a scale per 32; against bf16 weights bf16
  kF32,    // slow, for comparing
};
// The words of --activations and of RankOptions, by value.
inline constexpr const char* kActivationTypeNames[] = {"int16", "int8", "f32"};

struct BackendOptions {
  int block_size = 16;         // tokens of a KV block
  int block_count = 0;         // KV blocks of the pool
  int max_rows = 512;          // T never exceeds this
  int max_sampled_rows = 512;  // R never exceeds this
  int max_positions = 8192;    // positions are below this
  ActivationType activations = ActivationType::kInt16;
  // Called while weights are packed, with the share done in [0, 1].
  std::function<void(double)> progress;
  // Asked between pieces of the packing, from any thread: true ends Prepare with Cancelled.
  std::function<bool()> cancelled;
  // If set: called after each op of a step, in order, with every value that it wrote. The first
  // record in which two backends differ is where the bug is. Slow.
  std::function<void(const TraceRecord&)> trace;
};

// Outlives its backend; the communicator outlives it.
class Executable {
 public:
  virtual ~Executable() = default;
  // Computes a step. Results depend on a row's own sequence only, never on which other rows share
  // the step.
  virtual Status Run(const BatchTensors& batch) = 0;
  // Row r of [R, vocab] of the last Run; host memory, valid until the next Run. May be written (the
  // sampler works in place).
  virtual absl::Span<float> logits(int row) = 0;
  // Row r of Program::hidden [T, hidden] of the last Run; valid until the next.
  virtual absl::Span<const float> hidden(int row) = 0;
  virtual int64_t weight_bytes() const = 0;  // packed
};

// Bytes that a prepared program takes beside its KV blocks.
struct MemoryNeed {
  int64_t weights = 0;  // packed
  int64_t work = 0;     // activations, tables
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string Describe() const = 0;  // "cpu: AVX-512 VNNI BF16, 2 threads"
  // KV bytes of one block of this program, for sizing the pool.
  virtual int64_t kv_bytes_per_block(const Program& program, int block_size) const = 0;
  // Known before any weight is read. `group_size`: members of the tensor group. Errors as
  // Prepare's.
  virtual Result<MemoryNeed> Measure(const Program& program, const WeightSource& weights,
                                     int group_size, const BackendOptions& options) const = 0;
  // ResourceExhausted: says how many bytes are missing. NotFound / InvalidArgument: names the
  // tensor.
  virtual Result<std::unique_ptr<Executable>> Prepare(const Program& program,
                                                      const WeightSource& weights,
                                                      Communicator* group,
                                                      const BackendOptions& options) = 0;
};

}  // namespace staffel
