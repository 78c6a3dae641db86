// A link within one machine: rings in shared memory; a doorbell (eventfd) of each side for a side
// that sleeps; a UNIX socket whose end shows the end of the peer, and which carries its farewell.
#pragma once

#include <memory>

#include "base/fd.h"
#include "comm/mesh/link.h"
#include "comm/mesh/shm_ring.h"

namespace staffel {

// side: 0 or 1, the other one than the peer's.
std::unique_ptr<Link> MakeShmLink(std::unique_ptr<ShmSegment> segment, int side, Fd socket,
                                  Fd peer_doorbell);

}  // namespace staffel
