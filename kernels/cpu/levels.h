// The tables of all levels that are compiled in.
#pragma once

#include "kernels/api/cpu_kernels.h"

namespace staffel::kernels {

extern const CpuKernels kScalarKernels;
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvx512VnniKernels;
extern const CpuKernels kAvx512Bf16Kernels;

}  // namespace staffel::kernels
