// A prepared program on the CPU: memory, packed weights, KV store and the launch table. Used by one
// thread; its pool's workers run pieces of one launch at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cpu/memory.h"
#include "device/cpu/plan.h"
#include "device/cpu/step_rows.h"
#include "device/cpu/weights.h"
#include "device/thread_pool.h"
#include "kernels/api/cpu_kernels.h"
#include "staffel/backend.h"

namespace staffel::cpu {

struct ExecutableParts {
  Program program;
  BackendOptions options;
  Plan plan;
  const kernels::CpuKernels* kernels = nullptr;
  Communicator* group = nullptr;  // null: alone
  std::unique_ptr<ThreadPool> pool;
  Weights weights;
  HugeMemory step_memory, kv_memory, rope_memory;
  bool timing = false;
};

class CpuExecutable final : public Executable {
 public:
  explicit CpuExecutable(ExecutableParts parts);

  Status Run(const BatchTensors& batch) override;
  absl::Span<float> logits(int row) override;
  absl::Span<const float> hidden(int row) override;
  int64_t weight_bytes() const override { return parts_.weights.bytes(); }

  // See CpuTimingReport.
  std::string TakeTimingReport();

 private:
  // Time of one launch, summed over steps.
  struct LaunchTime {
    int64_t nanoseconds = 0;
    int64_t runs = 0;
  };

  // ---- Memory of the step
  float* F32(BufferId id) const;
  const kernels::Activations& Act(BufferId id) const { return activations_[static_cast<int>(id)]; }
  int Cols(BufferId id) const { return parts_.plan.buffer(id).cols; }
  int Rows(RowDim dim) const {
    return static_cast<int>(dim == RowDim::kTokens ? batch_->tokens.size()
                                                   : batch_->sampled_rows.size());
  }
  absl::Span<float> Span(BufferId id, int rows) const {
    return absl::MakeSpan(F32(id), size_t(rows) * Cols(id));
  }

  // ---- Work that surrounds the launches
  void BindBuffers();
  void LinkPrefetches();
  void CopyBlocks();
  void FillRopeTables(int position_end);
  void Trace(const Launch& launch);

  // ---- Launches (executable.cc, attention.cc)
  Status Execute(const EmbedLaunch& launch, int rows);
  Status Execute(const PrepareLaunch& launch, int rows);
  Status Execute(const MatmulLaunch& launch, int rows);
  Status Execute(const GatedLaunch& launch, int rows);
  Status Execute(const AttentionLaunch& launch, int rows);
  Status Execute(const CommLaunch& launch, int rows);
  Status Execute(const TakeRowsLaunch& launch, int rows);

  Status Gather(const GatherOp& op, const CommLaunch& launch, int rows);

  // f(piece, worker) for pieces [0, pieces): on the pool, or here where the whole region reads so
  // few bytes (or does as much arithmetic) that handing it out would cost more.
  template <class F>
  void RunPieces(int pieces, int64_t bytes, F&& f);

  // Cuts groups x tiles of a product into pieces and runs f(group_begin, group_end, tile_begin,
  // tile_end) on each; workers that end their share prefetch the next launch's weights.
  // `granule`: group ranges begin at multiples of it.
  template <class F>
  void RunProduct(int groups, int granule, int64_t group_bytes, const kernels::Activations& in,
                  F&& f);
  void PrefetchNextWeights(int worker) const;

  // KV heads [kv_head_begin, kv_head_end) with the query heads that read them.
  void RotateAndStore(const AttentionLaunch& launch, int row_begin, int row_end, int kv_head_begin,
                      int kv_head_end);
  void Attend(const AttentionLaunch& launch, const BatchTensors::Sequence& sequence, int kv_head,
              int begin, int end, const uint16_t* next);
  void AttendRow(const AttentionLaunch& launch, int row, int kv_head, const uint16_t* next);
  // First KV line that attention over the sequence's first row reads.
  const uint16_t* FirstKv(const AttentionLaunch& launch, const BatchTensors::Sequence& sequence,
                          int kv_head) const;
  kernels::KvLayer Kv(int layer) const;

  ExecutableParts parts_;
  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  const int vocab_;
  std::vector<kernels::Activations> activations_;  // by BufferId; rows are of the step
  std::vector<kernels::MatmulParams> matmuls_;     // of the launch that runs
  // First matrix of the product that follows launch i, or null.
  std::vector<const kernels::PackedMatrix*> next_matrix_;
  std::vector<float*> rope_tables_;  // [max_positions, rope_dim / 2, 2] each
  int rope_positions_ = 0;           // filled so far
  StepRows step_rows_;
  std::vector<LaunchTime> times_;  // by launch

  // Of the step that runs.
  const BatchTensors* batch_ = nullptr;
  int launch_index_ = 0;
  int64_t steps_ = 0;
};

template <class F>
void CpuExecutable::RunPieces(int pieces, int64_t bytes, F&& f) {
  // Half a microsecond or so. Below it a hand-over costs as much, and on a busy machine every
  // region that is handed out may wait for a worker that has lost its core.
  constexpr int64_t kInlineBytes = 16 << 10;
  if (bytes > kInlineBytes) return pool_.Run(pieces, f);
  for (int piece = 0; piece < pieces; ++piece) f(piece, 0);
}

}  // namespace staffel::cpu
