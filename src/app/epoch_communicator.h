// The communicator that an executable is prepared with: passes every call on to the one of the
// epoch that runs, so that packed weights outlive epochs.
#pragma once

#include <memory>
#include <mutex>

#include "staffel/communicator.h"

namespace staffel {

class EpochCommunicator final : public Communicator {
 public:
  // The shard's place: `rank` of `size` members.
  EpochCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  // The epoch's communicator, of the same rank and size; null: none, calls return Aborted. The
  // thread that makes the calls.
  void Bind(std::unique_ptr<Communicator> epoch);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status AllReduceSum(absl::Span<float> data) override;
  Status Send(int to, absl::Span<const float> data) override;
  Status Recv(int from, absl::Span<float> data) override;
  // The bound epoch's.
  void Abort() override;
  CommStats stats() const override;

 private:
  const int rank_, size_;
  // Written with mutex_ held by the calling thread, which therefore reads it without; others read
  // and use it under mutex_.
  std::unique_ptr<Communicator> epoch_;
  mutable std::mutex mutex_;
};

}  // namespace staffel
