#include "comm/local/local_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace staffel {
namespace {

// A member usually arrives within microseconds of the others; the spin yields, since there may be
// more ranks than cores.
constexpr auto kSpin = std::chrono::microseconds(50);

Status Aborted() { return absl::AbortedError("the communicator was aborted; its epoch has ended"); }

// Where the members of one group meet. A collective is: meet with one's part, work on everybody's
// parts, leave together.
class Meeting {
 public:
  struct Part {
    float* data = nullptr;
    size_t size = 0;
  };

  explicit Meeting(int size) : parts_(size) {}

  // Waits until all members have come with their parts; Aborted if that does not happen any more.
  // Once one member has got OK, all do, and each must then call Leave.
  Status Meet(int member, Part part) {
    parts_[member] = part;
    return Arrive(/*abortable=*/true);
  }
  // Waits until all are done with the parts. Not abortable: a member that left early would take its
  // part away from the others; none of them waits for anything but the processor.
  void Leave() { STAFFEL_CHECK(Arrive(/*abortable=*/false).ok()); }

  const std::vector<Part>& parts() const { return parts_; }

  void Abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  Status Arrive(bool abortable) {
    uint64_t round = 0;
    {
      std::lock_guard lock(mutex_);
      if (abortable && aborted_) return Aborted();
      round = round_.load(std::memory_order_relaxed);
      if (++arrived_ == static_cast<int>(parts_.size())) {
        arrived_ = 0;
        round_.store(round + 1, std::memory_order_release);
        changed_.notify_all();
        return absl::OkStatus();
      }
    }
    const auto spin_end = std::chrono::steady_clock::now() + kSpin;
    while (std::chrono::steady_clock::now() < spin_end) {
      if (round_.load(std::memory_order_acquire) != round) return absl::OkStatus();
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return round_ != round || (abortable && aborted_); });
    return round_ != round ? absl::OkStatus() : Aborted();
  }

  std::vector<Part> parts_;  // own entry written before meeting, all read until leaving
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;                 // guarded by mutex_
  bool aborted_ = false;            // guarded by mutex_
  std::atomic<uint64_t> round_{0};  // written under mutex_
};

// Messages on their way between ranks, by sender and receiver.
class Mail {
 public:
  Status Send(int from, int to, absl::Span<const float> data) {
    std::lock_guard lock(mutex_);
    if (aborted_) return Aborted();
    boxes_[{from, to}].emplace_back(data.begin(), data.end());
    changed_.notify_all();
    return absl::OkStatus();
  }

  Status Receive(int from, int to, absl::Span<float> data) {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<float>>& box = boxes_[{from, to}];
    changed_.wait(lock, [&] { return aborted_ || !box.empty(); });
    if (aborted_) return Aborted();
    const std::vector<float> message = std::move(box.front());
    box.pop_front();
    if (message.size() != data.size()) {
      return absl::InternalError(StrCat("rank ", to, " expects ", data.size(), " floats from rank ",
                                        from, ", which sent ", message.size()));
    }
    std::copy(message.begin(), message.end(), data.begin());
    return absl::OkStatus();
  }

  void Abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> boxes_;  // guarded by mutex_
  bool aborted_ = false;                                                 // guarded by mutex_
};

// All that the ranks of one epoch share.
struct World {
  int rank_count = 0;
  std::deque<Meeting> meetings;  // by group
  Mail mail;
  CommunicatorFault fault;
  std::atomic<bool> aborted{false};

  void Abort() {
    aborted = true;
    for (Meeting& meeting : meetings) meeting.Abort();
    mail.Abort();
  }
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<World> world, Meeting& meeting, int rank, int member, int size)
      : world_(std::move(world)), meeting_(meeting), rank_(rank), member_(member), size_(size) {}

  int rank() const override { return member_; }
  int size() const override { return size_; }

  Status AllReduceSum(absl::Span<float> data) override {
    STAFFEL_RETURN_IF_ERROR(Begin());
    if (size_ == 1) return absl::OkStatus();
    STAFFEL_RETURN_IF_ERROR(Keep(meeting_.Meet(member_, {data.data(), data.size()})));
    const bool alike =
        std::all_of(meeting_.parts().begin(), meeting_.parts().end(),
                    [&](const Meeting::Part& part) { return part.size == data.size(); });
    if (alike) SumOwnSlice(data.size());
    meeting_.Leave();
    return alike ? absl::OkStatus() : Fail("members reduce vectors of different sizes");
  }

  Status Send(int to, absl::Span<const float> data) override {
    STAFFEL_RETURN_IF_ERROR(Begin());
    STAFFEL_RETURN_IF_ERROR(CheckPeer(to));
    return Keep(world_->mail.Send(rank_, to, data));
  }

  Status Recv(int from, absl::Span<float> data) override {
    STAFFEL_RETURN_IF_ERROR(Begin());
    STAFFEL_RETURN_IF_ERROR(CheckPeer(from));
    return Keep(world_->mail.Receive(from, rank_, data));
  }

  void Abort() override { world_->Abort(); }

 private:
  Status Begin() {
    if (!error_.ok()) return error_;
    if (world_->aborted.load(std::memory_order_relaxed)) return Keep(Aborted());
    if (world_->fault) return Keep(world_->fault(rank_, calls_++));
    return absl::OkStatus();
  }
  Status Keep(Status status) {
    if (!status.ok()) error_ = status;
    return status;
  }
  // A call that does not fit the others' ends the epoch: they would wait for it in vain.
  Status Fail(const char* what) {
    world_->Abort();
    return Keep(absl::InternalError(StrCat("rank ", rank_, ": ", what)));
  }
  Status CheckPeer(int rank) {
    if (rank >= 0 && rank < world_->rank_count && rank != rank_) return absl::OkStatus();
    return Fail("a message goes to or comes from a rank that does not exist");
  }

  // Member m sums slice m of all members' vectors, in rank order, and writes it to all of them.
  void SumOwnSlice(size_t size) {
    const size_t begin = size * member_ / size_, end = size * (member_ + 1) / size_;
    for (size_t i = begin; i < end; ++i) {
      float sum = 0;
      for (const Meeting::Part& part : meeting_.parts()) sum += part.data[i];
      for (const Meeting::Part& part : meeting_.parts()) part.data[i] = sum;
    }
  }

  const std::shared_ptr<World> world_;
  Meeting& meeting_;
  const int rank_, member_, size_;
  uint64_t calls_ = 0;
  Status error_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(
    const std::vector<std::vector<int>>& tensor_groups, CommunicatorFault fault) {
  auto world = std::make_shared<World>();
  world->fault = std::move(fault);
  for (const std::vector<int>& group : tensor_groups) {
    world->rank_count += static_cast<int>(group.size());
  }
  std::vector<std::unique_ptr<Communicator>> communicators(world->rank_count);
  for (const std::vector<int>& group : tensor_groups) {
    Meeting& meeting = world->meetings.emplace_back(static_cast<int>(group.size()));
    for (int member = 0; member < static_cast<int>(group.size()); ++member) {
      const int rank = group[member];
      STAFFEL_CHECK(rank >= 0 && rank < world->rank_count && communicators[rank] == nullptr)
          << "rank " << rank << " must be in exactly one group";
      communicators[rank] = std::make_unique<LocalCommunicator>(world, meeting, rank, member,
                                                                static_cast<int>(group.size()));
    }
  }
  return communicators;
}

}  // namespace staffel
