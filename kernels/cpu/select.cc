#include "kernels/api/cpu_select.h"

#include <cpuid.h>

#include <string>

#include "kernels/cpu/levels.h"

namespace staffel::kernels {
namespace {

// Clang 14 has no name for this one. AVX2, which is asked for too, vouches for the registers.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// GCC's and Clang's __builtin_cpu_supports ask cpuid and, for the wide registers, XGETBV.
bool Runs(CpuLevel level) {
  __builtin_cpu_init();
  switch (level) {
    case CpuLevel::kScalar:
      return true;
    case CpuLevel::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi2") && HasF16c();
    case CpuLevel::kAvx512Vnni:
      return Runs(CpuLevel::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    case CpuLevel::kAvx512Bf16:
      return Runs(CpuLevel::kAvx512Vnni) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

}  // namespace

const std::vector<const CpuKernels*>& AvailableCpuKernels() {
  static const auto* const kTables = [] {
    auto* tables = new std::vector<const CpuKernels*>;
    for (const CpuKernels* t :
         {&kAvx512Bf16Kernels, &kAvx512VnniKernels, &kAvx2Kernels, &kScalarKernels}) {
      if (Runs(t->level)) tables->push_back(t);
    }
    return tables;
  }();
  return *kTables;
}

Result<const CpuKernels*> SelectCpuKernels(std::string_view name) {
  const auto& tables = AvailableCpuKernels();
  if (name.empty()) return tables.front();
  std::string known;
  for (const CpuKernels* t : tables) {
    if (t->name == name) return t;
    known += known.empty() ? t->name : std::string(", ") + t->name;
  }
  return absl::InvalidArgumentError("This machine has no CPU kernel level \"" + std::string(name) +
                                    "\"; it can run: " + known + ".");
}

}  // namespace staffel::kernels
