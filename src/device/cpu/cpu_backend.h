// The CPU backend: programs on packed weights with the kernels of one instruction set level.
#pragma once

#include <memory>
#include <string>

#include "staffel/backend.h"

namespace staffel {

struct CpuBackendOptions {
  int threads = 0;      // the caller included; 0: as many as UsableCores()
  std::string level;    // kernels/api: "scalar", "avx2", ...; empty: the best of this machine
  bool timing = false;  // measure each launch; see CpuTimingReport
};

// InvalidArgument: no such level, or this machine lacks it; or threads < 0.
Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

// Where the steps of an executable of a CPU backend with `timing` spent their time since the last
// call: a table, one line a kind of op. Empty for any other executable.
std::string CpuTimingReport(Executable& executable);

}  // namespace staffel
