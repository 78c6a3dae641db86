// The weights of one rank, packed for the CPU kernels: matrices side by side in order of use in one
// arena, vectors as f32. Constant after loading; read by all threads.
#pragma once

#include <vector>

#include "device/cpu/memory.h"
#include "device/cpu/plan.h"
#include "device/thread_pool.h"
#include "kernels/api/cpu_kernels.h"

namespace staffel::cpu {

class Weights {
 public:
  // Packs all matrices of the plan, in parallel, and releases each tensor after its last use. The
  // arena has been checked against the memory there is. Of the options: progress and cancelled.
  static Result<Weights> Load(const Plan& plan, const Program& program,
                              const std::vector<WeightSlice>& slices, const WeightSource& source,
                              const kernels::CpuKernels& kernels, ThreadPool& pool,
                              const BackendOptions& options);

  const kernels::PackedMatrix& matrix(MatrixId id) const { return matrices_[static_cast<int>(id)]; }
  // [matrix rows], or null.
  const float* bias(MatrixId id) const {
    const std::vector<float>& bias = biases_[static_cast<int>(id)];
    return bias.empty() ? nullptr : bias.data();
  }
  // Elements of a vector weight; null for kNone.
  const float* vector(WeightId id) const {
    return id == WeightId::kNone ? nullptr : vectors_[static_cast<int>(id)].data();
  }
  // Stored rows of an embedding that is not packed.
  kernels::WeightPart stored(const EmbedLaunch& launch) const;
  int64_t bytes() const { return bytes_; }

 private:
  class Loader;

  HugeMemory arena_;
  std::vector<kernels::PackedMatrix> matrices_;  // by MatrixId
  std::vector<std::vector<float>> biases_;       // by MatrixId
  std::vector<std::vector<float>> vectors_;      // by WeightId
  std::vector<kernels::WeightPart> stored_;      // by WeightId; bytes null: not kept
  int64_t bytes_ = 0;
};

}  // namespace staffel::cpu
