// The life of a process whose models are computed by worker processes: `staffel master`, and
// `staffel serve` with more ranks than one.
#pragma once

#include <optional>

#include "app/local_workers.h"
#include "app/master_options.h"

namespace staffel {

// Serves until a signal ends it; returns the exit code. With `local`, starts these workers itself
// (their `master` and `token` are filled in), and the cluster's address is private to this machine.
int ServeCluster(const MasterOptions& options, std::optional<LocalWorkerOptions> local);

}  // namespace staffel
