// AVX-512 with VNNI and BF16 (Cooper Lake, Sapphire Rapids, Zen 4).
#define STAFFEL_CPU_LEVEL avx512_bf16

// clang-format off: the vocabulary comes before the bodies that are written in it
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/table.h"
// clang-format on

namespace staffel::kernels {

constinit const CpuKernels kAvx512Bf16Kernels =
    avx512_bf16::MakeTable(CpuLevel::kAvx512Bf16, "avx512_bf16");

}  // namespace staffel::kernels
