// The backends that were built in.
#pragma once

#include <memory>

#include "app/serve_options.h"
#include "staffel/backend.h"

namespace staffel {

// InvalidArgument: the device is not there.
Result<std::unique_ptr<Backend>> MakeBackend(const ServeOptions& options);

}  // namespace staffel
