// The listening side of an endpoint: one thread that greets whoever connects, for the life of the
// endpoint, and hands over the connections that have proved to be of the epoch being formed.
#pragma once

#include <sys/eventfd.h>

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "comm/mesh/greeting.h"
#include "comm/mesh/shm_ring.h"
#include "staffel/clock.h"

namespace staffel {

// A rank that is there: all that a link needs.
struct Arrival {
  int rank = 0;
  Fd socket;
  std::unique_ptr<ShmSegment> segment;  // null: the socket carries the data
  int side = 0;                         // of the segment
  Fd peer_doorbell;
};

struct FormingEpoch {
  int replica = 0, epoch = 0, rank = 0;
  std::string secret;
  std::set<int> expected;  // ranks that connect to this one
  int doorbell = -1;       // handed to peers of this machine
  int announce = -1;       // eventfd that is written for each arrival
};

struct AcceptorLimits {
  std::chrono::milliseconds greeting_timeout, parking_timeout;
  size_t greeting_max;
};

class Acceptor {
 public:
  // unix_listener may be empty.
  Acceptor(Fd tcp_listener, Fd unix_listener, AcceptorLimits limits);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Any thread. Between Begin and End arrivals are announced; Take hands them over, at most one for
  // each rank: a rank that connects again takes the place of its older connection.
  void Begin(FormingEpoch forming);
  std::vector<Arrival> Take();
  void End();
  // What was wrong with the last connection that claimed to be this rank; empty: none came.
  std::string Remark(int rank);

 private:
  struct Guest {
    enum class State { kGreeting, kParked, kChallenged };
    Fd socket;
    bool local = false;  // came through the UNIX socket
    State state = State::kGreeting;
    Time deadline;
    HelloFrame hello;
    MeshNonce nonce{};
    MeshProof proof{};
    FrameReader reader;
  };

  void Loop();
  void Accept(int listener, bool local);
  // All with mutex_ held. False: the guest goes.
  bool OnInput(Guest& guest);
  bool Judge(Guest& guest);
  bool Refuse(Guest& guest, Verdict verdict, int value);
  bool Admit(Guest& guest);
  bool Park(Guest& guest);

  const Fd tcp_listener_, unix_listener_;
  const AcceptorLimits limits_;
  const Fd wake_;
  Time accept_after_{};      // thread: descriptors had run out
  std::list<Guest> guests_;  // thread; in order of arrival

  std::mutex mutex_;
  // Guarded by mutex_.
  bool stop_ = false;
  bool is_forming_ = false;
  FormingEpoch forming_;
  int last_replica_ = -1, last_epoch_ = -1;  // begun
  std::vector<Arrival> arrivals_;
  std::map<int, std::string> remarks_;

  std::thread thread_;  // last: uses all of the above
};

}  // namespace staffel
