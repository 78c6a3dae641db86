#include "app/epoch_communicator.h"

#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace staffel {
namespace {

Status NoEpoch() { return absl::AbortedError("no epoch is running on this worker"); }

}  // namespace

void EpochCommunicator::Bind(std::unique_ptr<Communicator> epoch) {
  STAFFEL_CHECK(epoch == nullptr || (epoch->rank() == rank_ && epoch->size() == size_))
      << "an epoch's communicator must have the shard's place";
  {
    std::lock_guard lock(mutex_);
    epoch_.swap(epoch);
  }
  // The one before ends here, outside of the lock.
}

Status EpochCommunicator::AllReduceSum(absl::Span<float> data) {
  return epoch_ == nullptr ? NoEpoch() : epoch_->AllReduceSum(data);
}

Status EpochCommunicator::Send(int to, absl::Span<const float> data) {
  return epoch_ == nullptr ? NoEpoch() : epoch_->Send(to, data);
}

Status EpochCommunicator::Recv(int from, absl::Span<float> data) {
  return epoch_ == nullptr ? NoEpoch() : epoch_->Recv(from, data);
}

void EpochCommunicator::Abort() {
  std::lock_guard lock(mutex_);
  if (epoch_ != nullptr) epoch_->Abort();
}

CommStats EpochCommunicator::stats() const {
  std::lock_guard lock(mutex_);
  return epoch_ == nullptr ? CommStats() : epoch_->stats();
}

}  // namespace staffel
