#include "comm/mesh/connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "comm/mesh/tcp_options.h"

namespace staffel {
namespace {

constexpr std::chrono::milliseconds kRetryMin{10}, kRetryMax{200};

}  // namespace

Connector::Connector(ConnectorParts parts) : parts_(std::move(parts)) {
  local_ = parts_.shared_memory && !parts_.address.unix_name.empty();
}

short Connector::events() const { return state_ == State::kConnecting ? POLLOUT : POLLIN; }

std::optional<Arrival> Connector::Advance(Time now) {
  if (state_ == State::kIdle && now >= retry_at_) Connect(now);
  if (state_ == State::kConnecting) OnConnected(now);
  if (state_ == State::kHello) OnChallenge(now);
  if (state_ == State::kProving) return OnAccepted(now);
  return std::nullopt;
}

void Connector::Retry(Time now, std::string remark) {
  socket_.Close();
  segment_.reset();
  remark_ = std::move(remark);
  state_ = State::kIdle;
  retry_at_ = now + std::min(kRetryMax, kRetryMin * (1 << std::min(attempts_, 5)));
  ++attempts_;
}

void Connector::Connect(Time now) {
  const SocketAddress address = local_ ? UnixAddress(parts_.address.unix_name) : parts_.address.tcp;
  socket_ = Fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_.ok()) return Retry(now, StrCat("no socket: ", strerror(errno)));
  if (!local_) SetTcpOptions(socket_.get());
  if (connect(socket_.get(), address.get(), address.size) == 0 || errno == EINPROGRESS) {
    remark_ = "no answer from its address";
    state_ = State::kConnecting;
    return;
  }
  const std::string why = strerror(errno);
  if (local_) {
    // Not to be reached this way after all, perhaps another network namespace.
    local_ = false;
    return Connect(now);
  }
  Retry(now, why);
}

void Connector::OnConnected(Time now) {
  pollfd writable{socket_.get(), POLLOUT, 0};
  if (poll(&writable, 1, 0) <= 0) return;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Retry(now, strerror(error));
  hello_ = {};
  hello_.replica = parts_.replica;
  hello_.epoch = parts_.epoch;
  hello_.from = parts_.rank;
  hello_.to = parts_.peer;
  hello_.transport = local_ ? Transport::kSharedMemory : Transport::kTcp;
  hello_.ring_bytes = parts_.ring_bytes;
  hello_.nonce = RandomNonce();
  if (!SendFrame(socket_.get(), &hello_, sizeof hello_, {})) {
    return Retry(now, "it closes the connection");
  }
  remark_ = StrCat("is reached, but has not begun to form epoch ", parts_.epoch);
  reader_.Start(&challenge_, sizeof challenge_);
  state_ = State::kHello;
}

void Connector::OnChallenge(Time now) {
  const FrameReader::Outcome outcome = reader_.Read(socket_.get(), false);
  if (outcome == FrameReader::Outcome::kMore) return;
  if (outcome == FrameReader::Outcome::kEnd) return Retry(now, "it closes the connection");
  if (challenge_.verdict != Verdict::kGoOn) return Retry(now, Describe(challenge_, hello_));
  const MeshProof expected = Prove(parts_.secret, Prover::kListener, hello_, challenge_.nonce);
  if (!SameProof(challenge_.proof, expected)) {
    return Retry(now, "it does not know this epoch's secret");
  }
  std::vector<int> handed;
  if (local_) {
    Result<std::unique_ptr<ShmSegment>> segment = ShmSegment::Create(parts_.ring_bytes);
    if (!segment.ok()) return Retry(now, std::string(segment.status().message()));
    segment_ = *std::move(segment);
    handed = {segment_->fd(), parts_.doorbell};
  }
  const MeshProof proof = Prove(parts_.secret, Prover::kConnector, hello_, challenge_.nonce);
  if (!SendFrame(socket_.get(), proof.data(), proof.size(), handed)) {
    return Retry(now, "it closes the connection");
  }
  reader_.Start(&accepted_, sizeof accepted_);
  state_ = State::kProving;
}

std::optional<Arrival> Connector::OnAccepted(Time now) {
  const FrameReader::Outcome outcome = reader_.Read(socket_.get(), local_);
  if (outcome == FrameReader::Outcome::kMore) return std::nullopt;
  if (outcome == FrameReader::Outcome::kEnd || accepted_.magic != kMeshMagic ||
      reader_.descriptors().size() != (local_ ? 1 : 0)) {
    Retry(now, "it closes the connection");
    return std::nullopt;
  }
  Arrival arrival;
  arrival.rank = parts_.peer;
  arrival.socket = std::move(socket_);
  if (local_) {
    arrival.segment = std::move(segment_);
    arrival.side = 0;
    arrival.peer_doorbell = std::move(reader_.descriptors()[0]);
  }
  return arrival;
}

}  // namespace staffel
