// Plain C++: any x86-64 (and any other machine).
#define STAFFEL_CPU_LEVEL scalar

// clang-format off: the vocabulary comes before the bodies that are written in it
#include "kernels/cpu/simd_scalar.h"
#include "kernels/cpu/table.h"
// clang-format on

namespace staffel::kernels {

constinit const CpuKernels kScalarKernels = scalar::MakeTable(CpuLevel::kScalar, "scalar");

}  // namespace staffel::kernels
