#include "comm/mesh/acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/strings.h"
#include "comm/mesh/link.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kRingBytesMax = size_t{1} << 30;
constexpr milliseconds kNoDescriptorsPause{100};

void Ring(int eventfd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(eventfd, &one, sizeof one);
}

}  // namespace

Acceptor::Acceptor(Fd tcp_listener, Fd unix_listener, AcceptorLimits limits)
    : tcp_listener_(std::move(tcp_listener)),
      unix_listener_(std::move(unix_listener)),
      limits_(limits),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

Acceptor::~Acceptor() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  Ring(wake_.get());
  thread_.join();
}

void Acceptor::Begin(FormingEpoch forming) {
  {
    std::lock_guard lock(mutex_);
    forming_ = std::move(forming);
    is_forming_ = true;
    last_replica_ = forming_.replica;
    last_epoch_ = forming_.epoch;
    arrivals_.clear();
    remarks_.clear();
  }
  Ring(wake_.get());
}

std::vector<Arrival> Acceptor::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(arrivals_, {});
}

void Acceptor::End() {
  std::lock_guard lock(mutex_);
  is_forming_ = false;
  forming_ = {};
  arrivals_.clear();
}

std::string Acceptor::Remark(int rank) {
  std::lock_guard lock(mutex_);
  const auto found = remarks_.find(rank);
  return found == remarks_.end() ? std::string() : found->second;
}

void Acceptor::Loop() {
  std::vector<pollfd> polls;
  while (true) {
    const Time now = steady_clock::now();
    const bool may_accept = now >= accept_after_;
    polls.assign({{wake_.get(), POLLIN, 0},
                  {may_accept ? tcp_listener_.get() : -1, POLLIN, 0},
                  {may_accept ? unix_listener_.get() : -1, POLLIN, 0}});
    Time next = may_accept ? Time::max() : accept_after_;
    for (const Guest& guest : guests_) {
      polls.push_back({guest.socket.get(), POLLIN, 0});
      next = std::min(next, guest.deadline);
    }
    int timeout_ms = -1;
    if (next != Time::max()) {
      const auto left = std::chrono::ceil<milliseconds>(next - now);
      timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
    }
    if (poll(polls.data(), polls.size(), timeout_ms) < 0) continue;
    if (polls[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof count);
    }
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      const Time after = steady_clock::now();
      size_t i = 3;
      for (auto guest = guests_.begin(); guest != guests_.end(); ++i) {
        bool stays = guest->deadline > after;
        if (stays && polls[i].revents != 0) stays = OnInput(*guest);
        // A new epoch may be what a parked one waits for.
        if (stays && guest->state == Guest::State::kParked) stays = Judge(*guest);
        guest = stays && guest->socket.ok() ? std::next(guest) : guests_.erase(guest);
      }
    }
    if (polls[1].revents != 0) Accept(tcp_listener_.get(), false);
    if (polls[2].revents != 0) Accept(unix_listener_.get(), true);
  }
}

void Acceptor::Accept(int listener, bool local) {
  while (true) {
    Fd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.ok()) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        accept_after_ = steady_clock::now() + kNoDescriptorsPause;
      }
      return;
    }
    if (guests_.size() >= limits_.greeting_max) {
      // The oldest of those that have not said who they are: peers say it at once.
      const auto silent = std::find_if(guests_.begin(), guests_.end(), [](const Guest& guest) {
        return guest.state == Guest::State::kGreeting;
      });
      if (silent == guests_.end()) continue;
      guests_.erase(silent);
    }
    Guest& guest = guests_.emplace_back();
    guest.socket = std::move(socket);
    guest.local = local;
    guest.deadline = steady_clock::now() + limits_.greeting_timeout;
    guest.reader.Start(&guest.hello, sizeof guest.hello);
  }
}

bool Acceptor::OnInput(Guest& guest) {
  if (guest.state == Guest::State::kParked) return false;  // its end, or words out of turn
  const bool proves = guest.state == Guest::State::kChallenged;
  const FrameReader::Outcome outcome = guest.reader.Read(guest.socket.get(), proves && guest.local);
  if (outcome == FrameReader::Outcome::kEnd) return false;
  if (proves) return outcome == FrameReader::Outcome::kMore || Admit(guest);
  const size_t magic_size = std::min(guest.reader.size(), kMeshMagic.size());
  if (!std::equal(kMeshMagic.begin(), kMeshMagic.begin() + magic_size, guest.hello.magic.begin())) {
    return false;
  }
  return outcome == FrameReader::Outcome::kMore || Judge(guest);
}

bool Acceptor::Judge(Guest& guest) {
  const HelloFrame& hello = guest.hello;
  const Transport transport = guest.local ? Transport::kSharedMemory : Transport::kTcp;
  if (hello.protocol != kMeshProtocol || hello.transport != transport) {
    return Refuse(guest, Verdict::kOtherProtocol, kMeshProtocol);
  }
  if (hello.replica == last_replica_ &&
      (hello.epoch < last_epoch_ || (hello.epoch == last_epoch_ && !is_forming_))) {
    return Refuse(guest, Verdict::kOldEpoch, last_epoch_);
  }
  if (!is_forming_ || hello.replica != forming_.replica || hello.epoch > forming_.epoch) {
    return Park(guest);
  }
  if (hello.to != forming_.rank || !forming_.expected.contains(hello.from)) {
    return Refuse(guest, Verdict::kNotExpected, forming_.rank);
  }
  ChallengeFrame challenge;
  challenge.nonce = guest.nonce = RandomNonce();
  challenge.proof = Prove(forming_.secret, Prover::kListener, hello, guest.nonce);
  if (!SendFrame(guest.socket.get(), &challenge, sizeof challenge, {})) return false;
  guest.state = Guest::State::kChallenged;
  guest.deadline = steady_clock::now() + limits_.greeting_timeout;
  guest.reader.Start(&guest.proof, sizeof guest.proof);
  return true;
}

bool Acceptor::Refuse(Guest& guest, Verdict verdict, int value) {
  ChallengeFrame refusal;
  refusal.verdict = verdict;
  refusal.value = value;
  SendFrame(guest.socket.get(), &refusal, sizeof refusal, {});
  return false;
}

bool Acceptor::Park(Guest& guest) {
  if (guest.state == Guest::State::kGreeting) {
    guest.state = Guest::State::kParked;
    guest.deadline = steady_clock::now() + limits_.parking_timeout;
  }
  return true;
}

bool Acceptor::Admit(Guest& guest) {
  const HelloFrame& hello = guest.hello;
  if (!is_forming_ || hello.replica != forming_.replica || hello.epoch != forming_.epoch) {
    return false;
  }
  const MeshProof expected = Prove(forming_.secret, Prover::kConnector, hello, guest.nonce);
  if (!SameProof(guest.proof, expected)) {
    remarks_[hello.from] = "it does not know this epoch's secret";
    return false;
  }
  Arrival arrival;
  arrival.rank = hello.from;
  std::vector<int> handed;
  if (guest.local) {
    std::vector<Fd>& descriptors = guest.reader.descriptors();
    const bool sane = descriptors.size() == 2 && hello.ring_bytes % 4096 == 0 &&
                      hello.ring_bytes >= kLinkBufferBytesMin && hello.ring_bytes <= kRingBytesMax;
    if (!sane) return false;
    Result<std::unique_ptr<ShmSegment>> segment =
        ShmSegment::Map(std::move(descriptors[0]), hello.ring_bytes);
    if (!segment.ok()) {
      remarks_[hello.from] = std::string(segment.status().message());
      return false;
    }
    arrival.segment = *std::move(segment);
    arrival.side = 1;
    arrival.peer_doorbell = std::move(descriptors[1]);
    handed.push_back(forming_.doorbell);
  }
  const AcceptedFrame accepted;
  if (!SendFrame(guest.socket.get(), &accepted, sizeof accepted, handed)) return false;
  arrival.socket = std::move(guest.socket);
  std::erase_if(arrivals_, [&](const Arrival& older) { return older.rank == arrival.rank; });
  arrivals_.push_back(std::move(arrival));
  Ring(forming_.announce);
  return true;
}

}  // namespace staffel
