// Communicators of ranks that are threads of one process: for tests, and for small machines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "staffel/communicator.h"
#include "staffel/status.h"

namespace staffel {

// Asked before each call of a communicator with the rank and the number of its calls so far; an
// error becomes the outcome of that call, on that rank only.
using CommunicatorFault = std::function<Status(int rank, uint64_t call)>;

// One communicator for every rank of a replica; index is the rank. `tensor_groups` as in
// PlacementPlan: every rank in one group. Abort on one aborts them all (they are one epoch). Each
// is used by one thread; the communicators may be destroyed in any order once no call is pending.
std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(
    const std::vector<std::vector<int>>& tensor_groups, CommunicatorFault fault = nullptr);

}  // namespace staffel
