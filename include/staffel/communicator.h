// Collectives of one tensor group in one epoch; used by one thread. Sums are taken in rank order,
// so that the bits do not depend on timing or message size. The first error is sticky; nothing here
// throws or ends the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

// Totals of an epoch; wait: for peers that are not there yet, wire: moving bytes.
struct CommStats {
  uint64_t collectives = 0;  // finished, Send and Recv included
  double wait_s = 0, wire_s = 0;
  int64_t bytes_sent = 0, bytes_received = 0;
  // Now: the rank of the replica (not member) that the running call waits for, and since when
  // nothing has moved; -1: none.
  int waiting_for = -1;
  double waiting_s = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // of the group's members
  virtual int size() const = 0;
  // data[i] becomes the sum over the group. A group of one: nothing happens, at no cost.
  virtual Status AllReduceSum(absl::Span<float> data) = 0;
  // Between ranks of neighbouring stages or of one group: `to` and `from` are ranks of the replica
  // (RankShard::rank), not members. Messages of one rank to another arrive in order.
  virtual Status Send(int to, absl::Span<const float> data) = 0;
  virtual Status Recv(int from, absl::Span<float> data) = 0;
  // Any thread: every pending and later call of this group returns Aborted within 5 ms. Other ranks
  // of the epoch need not be told: their calls fail as soon as they wait for this one.
  virtual void Abort() = 0;
  // Any thread, at any time: how far it is.
  virtual CommStats stats() const { return {}; }
};

// One epoch's ranks, as a member of it sees them.
struct GroupSpec {
  int replica = 0;
  int epoch = 0;
  int rank = 0;                                 // own
  std::vector<std::vector<int>> tensor_groups;  // as PlacementPlan
  std::vector<std::string> addresses;           // CommEndpoint::address() by rank
  std::vector<std::string> machines;            // by rank; equal: memory can be shared
  std::string secret;                           // of this epoch; who does not know it is not let in
};

// A process's part in the data plane: listens from its creation until its end, forms one
// communicator after the other. Strangers at its port are turned away and harm nothing.
class CommEndpoint {
 public:
  virtual ~CommEndpoint() = default;
  // What others need to reach it; opaque, changes never.
  virtual const std::string& address() const = 0;
  // Connects to all peers that this rank has business with (its tensor group, the stages beside
  // it) and returns when all are there. DeadlineExceeded names the ranks that are missing; Aborted:
  // AbortForming.
  virtual Result<std::unique_ptr<Communicator>> Form(const GroupSpec& spec, Duration timeout) = 0;
  // Any thread: Form of this replica and epoch, be it running or still to come, returns Aborted.
  virtual void AbortForming(int replica, int epoch) = 0;
};

}  // namespace staffel
