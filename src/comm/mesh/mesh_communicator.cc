#include "comm/mesh/mesh_communicator.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "comm/mesh/rank_sum.h"
#include "comm/mesh/streams.h"

namespace staffel {
namespace {

// Written to a link before the other streams have their turn: what one side writes is still in the
// cache when the other reads it.
constexpr size_t kTurnBytes = 64 << 10;
// Looks between two looks at the clock, while spinning.
constexpr int kLooksPerClock = 16;
constexpr int kLooksPerYield = 64;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

double SecondsSince(Time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string_view Name(MessageKind kind) {
  switch (kind) {
    case MessageKind::kAllReduce:
      return "an all-reduce";
    case MessageKind::kPoint:
      return "a message";
    case MessageKind::kFarewell:
      return "a farewell";
  }
  return "something unknown";
}

// A link and what the current call still has to move over it. A large all-reduce uses two streams
// each way, one after the other; other calls one at most.
struct Peer {
  int rank = 0;
  std::unique_ptr<Link> link;
  uint32_t sent_count = 0, received_count = 0;  // messages
  OutStream out[2];
  size_t ready[2] = {};  // bytes of out that may go
  InStream in[2];

  bool done() const { return out[0].done() && out[1].done() && in[0].done() && in[1].done(); }
  size_t wanted() const { return in[0].wanted() + in[1].wanted(); }
  bool wants_input() const { return wanted() > link->Buffered(); }
  bool wants_room() const { return !out[0].idle(ready[0]) || !out[1].idle(ready[1]); }

  bool AdvanceOut(size_t limit = kTurnBytes) {
    const int stream = out[0].done() ? 1 : 0;
    return out[stream].Advance(*link, ready[stream], limit);
  }
};

// What one look at all streams of a call has brought.
enum class Turn { kMoved, kStuck, kDone, kMismatch };

class MeshCommunicator final : public Communicator {
 public:
  explicit MeshCommunicator(MeshParts parts)
      : rank_(parts.rank),
        size_(static_cast<int>(parts.group.size())),
        spin_(std::chrono::microseconds(parts.spin_us)),
        crowded_(parts.crowded),
        doorbell_(std::move(parts.doorbell)) {
    for (auto& [rank, link] : parts.links) {
      Peer& peer = peers_[rank];
      peer.rank = rank;
      peer.link = std::move(link);
    }
    for (int member = 0; member < size_; ++member) {
      const int rank = parts.group[member];
      if (rank == rank_) {
        member_ = member;
      } else {
        others_.push_back(&peers_.at(rank));
      }
    }
    parts_.resize(size_);
    polls_.reserve(peers_.size() + 1);
  }

  int rank() const override { return member_; }
  int size() const override { return size_; }

  Status AllReduceSum(absl::Span<float> data) override {
    STAFFEL_RETURN_IF_ERROR(Begin());
    if (size_ == 1) return absl::OkStatus();
    const size_t bytes = data.size() * sizeof(float);
    expected_ = {MessageKind::kAllReduce, bytes};
    return bytes <= kWholeVectorBytes ? ReduceWhole(data) : ReduceSlices(data);
  }

  Status Send(int to, absl::Span<const float> data) override {
    STAFFEL_RETURN_IF_ERROR(Begin());
    Peer* peer = FindPeer(to);
    if (peer == nullptr) return NoLink(to);
    StartOut(*peer, 0, MessageKind::kPoint, data.data(), data.size(), data.size());
    peer->in[0].Start(false, 0);
    Peer* const involved[] = {peer};
    return Drive(involved, [&] {
      return peer->AdvanceOut(data.size() * sizeof(float)) ? Turn::kMoved : Turn::kStuck;
    });
  }

  Status Recv(int from, absl::Span<float> data) override {
    STAFFEL_RETURN_IF_ERROR(Begin());
    Peer* peer = FindPeer(from);
    if (peer == nullptr) return NoLink(from);
    const size_t bytes = data.size() * sizeof(float);
    expected_ = {MessageKind::kPoint, bytes};
    peer->out[0].Start(nullptr, nullptr, 0);
    peer->in[0].Start(true, bytes);
    Peer* const involved[] = {peer};
    return Drive(involved, [&] {
      InStream& in = peer->in[0];
      if (!in.AdvanceHeader(*peer->link)) return Turn::kStuck;
      if (!Matches(*peer, 0, bytes)) return Turn::kMismatch;
      return in.ReadTo(*peer->link, data.data()) ? Turn::kMoved : Turn::kStuck;
    });
  }

  void Abort() override {
    if (aborted_.exchange(true, std::memory_order_seq_cst)) return;
    LeaveAll(Farewell::Aborted());
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(doorbell_.get(), &one, sizeof one);
  }

  CommStats stats() const override {
    CommStats stats = {
        collectives_.load(std::memory_order_relaxed), wait_s_.load(std::memory_order_relaxed),
        wire_s_.load(std::memory_order_relaxed), bytes_sent_.load(std::memory_order_relaxed),
        bytes_received_.load(std::memory_order_relaxed)};
    stats.waiting_for = waiting_for_.load(std::memory_order_acquire);
    if (stats.waiting_for >= 0) {
      stats.waiting_s = std::max(0.0, SecondsSince(waiting_since_.load(std::memory_order_relaxed)));
    }
    return stats;
  }

 private:
  struct Failure {
    Status status;
    Farewell farewell;
  };
  struct Expected {
    MessageKind kind{};
    size_t bytes = 0;
  };

  Status Begin() {
    if (!error_.ok()) return error_;
    if (aborted_.load(std::memory_order_relaxed)) return Keep(Aborted());
    return absl::OkStatus();
  }
  Status Aborted() const {
    return absl::AbortedError("the communicator was aborted; its epoch has ended");
  }
  Status Keep(Status status) {
    if (!status.ok()) error_ = status;
    return status;
  }
  // What one rank cannot go on from ends the epoch for all: they would wait for it in vain.
  Status Fail(Status status, Farewell farewell = Farewell::Aborted()) {
    LeaveAll(farewell);
    return Keep(std::move(status));
  }
  void LeaveAll(Farewell farewell) {
    for (auto& [rank, peer] : peers_) peer.link->Leave(farewell);
  }

  Peer* FindPeer(int rank) {
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : &found->second;
  }
  Status NoLink(int rank) {
    return Fail(absl::InternalError(
        StrCat("rank ", rank_, " has no link to rank ", rank, ": it is not in a stage beside it")));
  }

  // ready_count: floats of `data` that may go already.
  void StartOut(Peer& peer, int stream, MessageKind kind, const float* data, size_t count,
                size_t ready_count) {
    StartOut(peer, stream, kind, count * sizeof(float), data, count, ready_count);
  }
  void StartOut(Peer& peer, int stream, MessageKind kind, size_t vector_bytes, const float* data,
                size_t count, size_t ready_count) {
    const MessageHeader header{kind, peer.sent_count++, vector_bytes};
    peer.out[stream].Start(&header, data, count * sizeof(float));
    peer.ready[stream] = ready_count * sizeof(float);
  }

  // Everybody gets everybody's vector.
  Status ReduceWhole(absl::Span<float> data) {
    const size_t bytes = data.size() * sizeof(float);
    for (Peer* peer : others_) {
      StartOut(*peer, 0, MessageKind::kAllReduce, data.data(), data.size(), data.size());
      peer->in[0].Start(true, bytes);
    }
    size_t summed = 0;  // bytes
    return Drive(others_, [&] {
      bool moved = false, complete = true;
      size_t can_sum = bytes - summed;
      for (Peer* peer : others_) {
        moved |= peer->AdvanceOut();
        // The sum replaces the own part, which must be on its way by then.
        can_sum = std::min(can_sum, peer->out[0].written() - summed);
        if (!peer->in[0].AdvanceHeaderToSum(*peer->link)) {
          complete = false;
        } else if (!Matches(*peer, 0, bytes)) {
          return Turn::kMismatch;
        }
      }
      if (complete && can_sum > 0) {
        const size_t size = SumArrived(data.data() + summed / sizeof(float), can_sum);
        summed += size;
        moved |= size > 0;
      }
      return moved ? Turn::kMoved : Turn::kStuck;
    });
  }

  // Member m sums slice m of all vectors and sends the result to all. Parts of the result may
  // arrive while the slice is still being sent: they are of bytes that m has read already.
  Status ReduceSlices(absl::Span<float> data) {
    const auto begin_of = [&](int member) { return data.size() * member / size_; };
    const size_t vector_bytes = data.size() * sizeof(float);
    float* const own = data.data() + begin_of(member_);
    const size_t own_count = begin_of(member_ + 1) - begin_of(member_);
    const size_t own_bytes = own_count * sizeof(float);
    int member = 0;
    for (Peer* peer : others_) {
      if (member == member_) ++member;
      const size_t begin = begin_of(member), count = begin_of(member + 1) - begin;
      StartOut(*peer, 0, MessageKind::kAllReduce, vector_bytes, data.data() + begin, count, count);
      StartOut(*peer, 1, MessageKind::kAllReduce, vector_bytes, own, own_count, 0);
      peer->in[0].Start(true, own_bytes);
      peer->in[1].Start(true, count * sizeof(float));
      targets_[peer->rank] = data.data() + begin;
      ++member;
    }
    size_t summed = 0;  // bytes of the own slice
    return Drive(others_, [&] {
      bool moved = false, complete = true;
      for (Peer* peer : others_) {
        moved |= peer->AdvanceOut();
        if (!peer->in[0].AdvanceHeaderToSum(*peer->link)) {
          complete = false;
        } else if (!Matches(*peer, 0, vector_bytes)) {
          return Turn::kMismatch;
        }
      }
      if (complete && summed < own_bytes) {
        const size_t size = SumArrived(own + summed / sizeof(float), own_bytes - summed);
        summed += size;
        moved |= size > 0;
      }
      for (Peer* peer : others_) {
        peer->ready[1] = summed;
        if (!peer->in[0].done() || !peer->in[1].AdvanceHeader(*peer->link)) continue;
        if (!Matches(*peer, 1, vector_bytes)) return Turn::kMismatch;
        moved |= peer->in[1].ReadTo(*peer->link, targets_[peer->rank]);
      }
      return moved ? Turn::kMoved : Turn::kStuck;
    });
  }

  // Sums into `own` what has come from all of the others, `bytes` at most; returns how many.
  size_t SumArrived(float* own, size_t bytes) {
    for (int m = 0, i = 0; m < size_; ++m) {
      if (m == member_) {
        parts_[m] = own;
        continue;
      }
      const absl::Span<const uint8_t> here = others_[i]->in[0].Peek(*others_[i]->link);
      if (here.empty()) return 0;
      bytes = std::min(bytes, here.size());
      parts_[m] = reinterpret_cast<const float*>(here.data());
      ++i;
    }
    bytes &= ~size_t{3};  // a socket may have taken part of a float
    SumInOrder(parts_, bytes / sizeof(float), own);
    for (Peer* peer : others_) peer->in[0].Consume(*peer->link, bytes);
    return bytes;
  }

  // Whether the message of `peer` whose header has come is the one that this call is about;
  // otherwise the call is to fail with mismatch_.
  bool Matches(const Peer& peer, int stream, size_t bytes) {
    const MessageHeader header = peer.in[stream].header();
    const uint32_t sequence = peer.received_count + stream;
    if (header.kind == expected_.kind && header.bytes == bytes && header.sequence == sequence) {
      return true;
    }
    if (header.kind == MessageKind::kFarewell) {
      mismatch_ = {LeftStatus(peer.rank, Farewell{header.sequence}), Farewell{header.sequence}};
      return false;
    }
    mismatch_ = {absl::InternalError(StrCat("rank ", rank_, " expects ", Name(expected_.kind),
                                            " of ", bytes / sizeof(float), " floats from rank ",
                                            peer.rank, ", which sent ", Name(header.kind), " of ",
                                            header.bytes / sizeof(float), " floats (messages ",
                                            sequence, " and ", header.sequence, " of the link)")),
                 Farewell::Aborted()};
    return false;
  }

  // Takes turns until all streams of the peers are done.
  template <class Step>
  Status Drive(absl::Span<Peer* const> peers, Step step) {
    const Time begin = std::chrono::steady_clock::now();
    Time stuck_since{};
    double waited_s = 0;
    int stuck = 0;  // turns in a row without progress
    bool armed = false;
    while (true) {
      if (aborted_.load(std::memory_order_relaxed)) return Keep(Aborted());
      const Turn turn = step();
      if (turn == Turn::kMismatch) return Fail(mismatch_.status, mismatch_.farewell);
      if (turn == Turn::kMoved) {
        if (armed) Disarm(peers, armed);
        if (stuck > 0) {
          waited_s += SecondsSince(stuck_since);
          waiting_for_.store(-1, std::memory_order_relaxed);
        }
        stuck = 0;
      }
      if (std::all_of(peers.begin(), peers.end(), [](const Peer* peer) { return peer->done(); })) {
        break;
      }
      if (turn == Turn::kMoved) continue;
      if (stuck++ == 0) stuck_since = std::chrono::steady_clock::now();
      for (Peer* peer : peers) {
        if (peer->link->gone() && (peer->wants_input() || peer->wants_room())) {
          return Lost(*peer);
        }
      }
      if (armed) {
        TellWaiting(peers, stuck_since);
        Sleep(peers);
        Disarm(peers, armed);
      } else if (!MaySpin(stuck, stuck_since)) {
        for (Peer* peer : peers) peer->link->Arm();
        armed = true;  // one more look, then sleep
      }
    }
    Account(peers, SecondsSince(begin), waited_s);
    return absl::OkStatus();
  }

  bool MaySpin(int looks, Time since) {
    if (crowded_ || looks % kLooksPerYield == 0) {
      sched_yield();
    } else {
      Pause();
    }
    if (looks % kLooksPerClock != 0) return spin_.count() > 0;
    return std::chrono::steady_clock::now() - since < spin_;
  }

  // Waits that are worth a sleep can be seen from outside: for whom nothing is here, or else for
  // whom there is no room.
  void TellWaiting(absl::Span<Peer* const> peers, Time since) {
    const Peer* awaited = nullptr;
    size_t least = 0;
    for (Peer* peer : peers) {
      if (!peer->wants_input()) continue;
      const size_t here = peer->link->Buffered();
      if (awaited != nullptr && here >= least) continue;
      awaited = peer;
      least = here;
    }
    for (Peer* peer : peers) {
      if (awaited == nullptr && peer->wants_room()) awaited = peer;
    }
    if (awaited == nullptr) return;
    waiting_since_.store(since, std::memory_order_relaxed);
    waiting_for_.store(awaited->rank, std::memory_order_release);
  }

  void Disarm(absl::Span<Peer* const> peers, bool& armed) {
    for (Peer* peer : peers) peer->link->Disarm();
    armed = false;
  }

  // Until a peer or Abort rings the doorbell, or a socket has something.
  void Sleep(absl::Span<Peer* const> peers) {
    polls_.assign(1, pollfd{doorbell_.get(), POLLIN, 0});
    for (Peer* peer : peers) {
      polls_.push_back(peer->link->PollFor(peer->wants_input(), peer->wants_room()));
    }
    if (poll(polls_.data(), polls_.size(), -1) <= 0) return;
    if (polls_[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t size = read(doorbell_.get(), &count, sizeof count);
    }
    for (size_t i = 0; i < peers.size(); ++i) peers[i]->link->OnPoll(polls_[i + 1].revents);
  }

  // A rank that leaves because of another passes the blame on.
  Status Lost(const Peer& peer) {
    // An own Abort ends the links as well.
    if (aborted_.load(std::memory_order_seq_cst)) return Keep(Aborted());
    const std::optional<Farewell> farewell = peer.link->farewell();
    if (!farewell) {
      return Fail(absl::UnavailableError(
                      StrCat("rank ", rank_, " has lost rank ", peer.rank, ": ", peer.link->end())),
                  Farewell::Lost(peer.rank));
    }
    return Fail(LeftStatus(peer.rank, *farewell), *farewell);
  }
  Status LeftStatus(int peer, Farewell farewell) const {
    const int lost = farewell.lost_rank();
    if (lost < 0) return absl::AbortedError(StrCat("rank ", peer, " has aborted the epoch"));
    return absl::UnavailableError(
        StrCat("rank ", rank_, " has lost rank ", lost, ": so says rank ", peer));
  }

  void Account(absl::Span<Peer* const> peers, double call_s, double waited_s) {
    int64_t sent = 0, received = 0;
    for (Peer* peer : peers) {
      peer->received_count += peer->in[0].expects_header() + peer->in[1].expects_header();
      sent += peer->out[0].written() + peer->out[1].written();
      received += peer->in[0].read() + peer->in[1].read();
      peer->out[1].Start(nullptr, nullptr, 0);
      peer->in[1].Start(false, 0);
    }
    // One thread writes: no read-modify-write is needed.
    const auto add = [](auto& total, auto more) {
      total.store(total.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    };
    add(collectives_, 1);
    add(wait_s_, waited_s);
    add(wire_s_, call_s - waited_s);
    add(bytes_sent_, sent);
    add(bytes_received_, received);
  }

  const int rank_, size_;
  const std::chrono::microseconds spin_;
  const bool crowded_;
  const Fd doorbell_;
  int member_ = 0;
  std::map<int, Peer> peers_;  // by rank
  std::vector<Peer*> others_;  // of the group, in its order
  std::atomic<bool> aborted_{false};
  Status error_;

  // Of the current call.
  Expected expected_;
  Failure mismatch_;
  std::map<int, float*> targets_;  // by rank: where its part goes
  std::vector<const float*> parts_;
  std::vector<pollfd> polls_;

  std::atomic<uint64_t> collectives_{0};
  std::atomic<double> wait_s_{0}, wire_s_{0};
  std::atomic<int64_t> bytes_sent_{0}, bytes_received_{0};
  // Of the current call: see CommStats.
  std::atomic<int> waiting_for_{-1};
  std::atomic<Time> waiting_since_{Time{}};
};

}  // namespace

std::unique_ptr<Communicator> MakeMeshCommunicator(MeshParts parts) {
  return std::make_unique<MeshCommunicator>(std::move(parts));
}

}  // namespace staffel
