// Collectives and messages over links, one thread. A call is a set of streams that move side by
// side, whichever can: no order among peers is assumed, so that calls of all ranks together cannot
// wait in a circle.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "comm/mesh/link.h"
#include "staffel/communicator.h"

namespace staffel {

struct MeshParts {
  int rank = 0;                                // own, of the replica
  std::vector<int> group;                      // ranks of the own tensor group, in order
  std::map<int, std::unique_ptr<Link>> links;  // by rank: group members and stage neighbours
  Fd doorbell;                                 // eventfd; peers of this machine have it too
  int spin_us = 0;
  bool crowded = false;  // more ranks than cores here: give the core away at each look
};

std::unique_ptr<Communicator> MakeMeshCommunicator(MeshParts parts);

}  // namespace staffel
