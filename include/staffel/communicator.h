// Collectives of one tensor group in one epoch; used by one thread. Sums are taken in rank order,
// so that the bits do not depend on timing or message size. The first error is sticky; nothing here
// throws or ends the process.
#pragma once

#include "absl/types/span.h"
#include "staffel/status.h"

namespace staffel {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // of the group's members
  virtual int size() const = 0;
  // data[i] becomes the sum over the group. A group of one: nothing happens, at no cost.
  virtual Status AllReduceSum(absl::Span<float> data) = 0;
  // out is the concatenation of every member's part, counts[m] floats from member m.
  virtual Status AllGather(absl::Span<const float> part, absl::Span<const int> counts,
                           absl::Span<float> out) = 0;
  // Between stages: `to` and `from` are ranks of the replica (RankShard::rank), not members.
  virtual Status Send(int to, absl::Span<const float> data) = 0;
  virtual Status Recv(int from, absl::Span<float> data) = 0;
  // Any thread: every pending and later call of this group returns Aborted within 5 ms.
  virtual void Abort() = 0;
};

}  // namespace staffel
