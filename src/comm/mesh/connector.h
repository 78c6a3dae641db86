// The connecting side of a greeting, for one peer: tries until it has succeeded. One thread.
#pragma once

#include <optional>
#include <string>

#include "comm/mesh/acceptor.h"
#include "comm/mesh/socket_address.h"

namespace staffel {

struct ConnectorParts {
  int replica = 0, epoch = 0, rank = 0, peer = 0;
  EndpointAddress address;
  bool shared_memory = false;  // try the UNIX socket, and TCP if that is not there
  std::string secret;
  size_t ring_bytes = 0;
  int doorbell = -1;  // handed to the peer
};

class Connector {
 public:
  explicit Connector(ConnectorParts parts);
  int peer() const { return parts_.peer; }
  // Connects or reads on, whatever is possible now; the peer when it is there.
  std::optional<Arrival> Advance(Time now);
  // What to poll for, and when to call Advance at the latest.
  int fd() const { return socket_.get(); }
  short events() const;
  Time wake_at() const { return state_ == State::kIdle ? retry_at_ : Time::max(); }
  // What it is waiting for, or what went wrong last.
  const std::string& remark() const { return remark_; }

 private:
  enum class State { kIdle, kConnecting, kHello, kProving };

  void Connect(Time now);
  void OnConnected(Time now);
  void OnChallenge(Time now);
  std::optional<Arrival> OnAccepted(Time now);
  void Retry(Time now, std::string remark);

  const ConnectorParts parts_;
  State state_ = State::kIdle;
  bool local_ = false;  // of the current attempt
  Fd socket_;
  Time retry_at_{};
  int attempts_ = 0;
  HelloFrame hello_;
  ChallengeFrame challenge_;
  AcceptedFrame accepted_;
  FrameReader reader_;
  std::unique_ptr<ShmSegment> segment_;
  std::string remark_;
};

}  // namespace staffel
