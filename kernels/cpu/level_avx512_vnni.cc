// AVX-512 with VNNI, without BF16 (Cascade Lake, Ice Lake).
#define STAFFEL_CPU_LEVEL avx512_vnni

// clang-format off: the vocabulary comes before the bodies that are written in it
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/table.h"
// clang-format on

namespace staffel::kernels {

constinit const CpuKernels kAvx512VnniKernels =
    avx512_vnni::MakeTable(CpuLevel::kAvx512Vnni, "avx512_vnni");

}  // namespace staffel::kernels
