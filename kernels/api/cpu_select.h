// Which CPU kernel table to use. Detection asks cpuid and the operating system (saved register
// state), once; both functions may be called from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/api/cpu_kernels.h"
#include "staffel/status.h"

namespace staffel::kernels {

// All levels that this machine can run, best first. The last is always "scalar".
const std::vector<const CpuKernels*>& AvailableCpuKernels();

// The best level, or the one named. InvalidArgument: no such level, or the machine lacks it (the
// message lists those it has).
Result<const CpuKernels*> SelectCpuKernels(std::string_view name = "");

}  // namespace staffel::kernels
