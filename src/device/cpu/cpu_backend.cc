#include "device/cpu/cpu_backend.h"

#include <utility>
#include <vector>

#include "base/available_memory.h"
#include "base/strings.h"
#include "device/cpu/executable.h"
#include "device/cpu/memory.h"
#include "device/cpu/plan.h"
#include "device/cpu/weights.h"
#include "device/program_check.h"
#include "device/thread_pool.h"
#include "kernels/api/cpu_select.h"

namespace staffel {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const kernels::CpuKernels* kernels, int threads, bool timing)
      : kernels_(kernels), threads_(threads), timing_(timing) {}

  std::string Describe() const override {
    return StrCat("cpu: ", kernels_->name, ", ", threads_, threads_ == 1 ? " thread" : " threads");
  }

  int64_t kv_bytes_per_block(const Program& program, int block_size) const override {
    return cpu::KvBlockBytes(program.kv, block_size);
  }

  Result<MemoryNeed> Measure(const Program& program, const WeightSource& weights, int group_size,
                             const BackendOptions& options) const override {
    STAFFEL_RETURN_IF_ERROR(CheckProgram(program, group_size));
    STAFFEL_ASSIGN_OR_RETURN(const std::vector<WeightSlice> slices, FindWeights(program, weights));
    STAFFEL_ASSIGN_OR_RETURN(const cpu::Plan plan,
                             cpu::MakePlan(program, slices, group_size, options));
    return MemoryNeed{.weights = plan.weight_bytes, .work = plan.step_bytes + plan.rope_bytes};
  }

  Result<std::unique_ptr<Executable>> Prepare(const Program& program, const WeightSource& weights,
                                              Communicator* group,
                                              const BackendOptions& options) override {
    STAFFEL_RETURN_IF_ERROR(CheckPrepare(program, group, options));
    STAFFEL_ASSIGN_OR_RETURN(const std::vector<WeightSlice> slices, FindWeights(program, weights));
    const int group_size = group == nullptr ? 1 : group->size();
    cpu::ExecutableParts parts;
    STAFFEL_ASSIGN_OR_RETURN(parts.plan, cpu::MakePlan(program, slices, group_size, options));
    const cpu::Plan& plan = parts.plan;
    const int64_t kv_bytes =
        cpu::KvBlockBytes(program.kv, options.block_size) * options.block_count;
    STAFFEL_RETURN_IF_ERROR(cpu::CheckMemory({.weights = plan.weight_bytes,
                                              .kv = kv_bytes,
                                              .activations = plan.step_bytes + plan.rope_bytes,
                                              .kv_blocks = options.block_count,
                                              .block_size = options.block_size},
                                             AvailableMemoryBytes()));
    parts.program = program;
    parts.options = options;
    parts.kernels = kernels_;
    parts.group = group;
    parts.timing = timing_;
    parts.pool = std::make_unique<ThreadPool>(threads_);
    STAFFEL_ASSIGN_OR_RETURN(parts.kv_memory,
                             cpu::HugeMemory::Map(cpu::KvLayerStride(program.kv, options.block_size,
                                                                     options.block_count) *
                                                      program.kv.layers,
                                                  "the KV store"));
    STAFFEL_ASSIGN_OR_RETURN(parts.step_memory,
                             cpu::HugeMemory::Map(plan.step_bytes, "the activations"));
    STAFFEL_ASSIGN_OR_RETURN(parts.rope_memory,
                             cpu::HugeMemory::Map(plan.rope_bytes, "the rotation tables"));
    STAFFEL_ASSIGN_OR_RETURN(parts.weights, cpu::Weights::Load(plan, program, slices, weights,
                                                               *kernels_, *parts.pool, options));
    return std::make_unique<cpu::CpuExecutable>(std::move(parts));
  }

 private:
  const kernels::CpuKernels* const kernels_;
  const int threads_;
  const bool timing_;
};

}  // namespace

Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  if (options.threads < 0) {
    return absl::InvalidArgumentError(StrCat(
        "The number of threads must be at least 1, or 0 to choose, not ", options.threads, "."));
  }
  STAFFEL_ASSIGN_OR_RETURN(const kernels::CpuKernels* kernels,
                           kernels::SelectCpuKernels(options.level));
  const int threads = options.threads == 0 ? UsableCores() : options.threads;
  return std::make_unique<CpuBackend>(kernels, threads, options.timing);
}

std::string CpuTimingReport(Executable& executable) {
  auto* cpu = dynamic_cast<cpu::CpuExecutable*>(&executable);
  return cpu == nullptr ? std::string() : cpu->TakeTimingReport();
}

}  // namespace staffel
