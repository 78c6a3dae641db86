#include "app/devices.h"

#include "device/cpu/cpu_backend.h"

namespace staffel {

Result<std::unique_ptr<Backend>> MakeBackend(const ServeOptions& options) {
  return MakeCpuBackend({.threads = options.threads});
}

}  // namespace staffel
