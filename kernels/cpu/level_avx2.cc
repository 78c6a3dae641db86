// AVX2, FMA, F16C (x86-64-v3).
#define STAFFEL_CPU_LEVEL avx2

// clang-format off: the vocabulary comes before the bodies that are written in it
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/table.h"
// clang-format on

namespace staffel::kernels {

constinit const CpuKernels kAvx2Kernels = avx2::MakeTable(CpuLevel::kAvx2, "avx2");

}  // namespace staffel::kernels
