// A way of their own for plans and outcomes between a master and a worker on its machine: frames
// over a Unix socket, next to the worker's gRPC stream, which carries all else.
//
// gRPC answers every message with two window updates and wakes some three threads for it. Where
// ranks compute on all cores of a machine, each of these wake-ups takes a core from one rank, and
// all ranks of its group wait for it. A frame is one send and one wake-up.
//
// The worker learns the lane's name and a secret from Welcome. The name is in the abstract
// namespace and no secret; a connection that does not begin with one that is expected is closed.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/status.h"

namespace staffel {

// One end. A frame is its length (4 bytes, native order: one machine) and as many bytes.
class StepLane {
 public:
  static constexpr size_t kFrameBytesMax = 64 << 20;

  explicit StepLane(Fd socket) : socket_(std::move(socket)) {}

  // The worker's end: connects to the lane of that name and shows the secret. Unavailable: it
  // cannot be reached, as from another network namespace.
  static Result<std::shared_ptr<StepLane>> Connect(const std::string& name,
                                                   const std::string& secret);

  // Any thread; frames arrive in order. False: the lane has ended, or its other end takes nothing.
  bool Send(std::string_view frame);
  // Reads what has come and gives whole frames to `take`. False: the lane has ended. One thread.
  bool Receive(const std::function<void(std::string_view)>& take);
  // Any thread: both directions end, here and there.
  void End();
  int fd() const { return socket_.get(); }

 private:
  const Fd socket_;
  std::mutex send_mutex_;
  std::string received_;  // of a frame that is not complete
};

// The master's end of all lanes: one thread accepts and reads.
class StepLanes {
 public:
  struct Events {
    // A worker's lane stands. False: it is not wanted (any more).
    std::function<bool(WorkerId, std::shared_ptr<StepLane>)> on_lane;
    std::function<void(WorkerId, std::string_view)> on_frame;
    std::function<void(WorkerId)> on_end;  // of a lane that was wanted
  };

  // Unavailable: no socket can be had.
  static Result<std::unique_ptr<StepLanes>> Listen();
  ~StepLanes();  // Stop()
  // Once. Events come one at a time, on the thread of the lanes.
  void Start(Events events);
  // No event comes afterwards; lanes stand until the end.
  void Stop();

  const std::string& name() const { return name_; }
  // Any thread: the secret by which this worker is known from now on.
  std::string Expect(WorkerId worker);
  // Any thread: it is known no more; a lane that stands is not touched.
  void Forget(WorkerId worker);

 private:
  struct Connection {
    std::shared_ptr<StepLane> lane;
    WorkerId worker;  // invalid: a stranger
    Time since;
  };

  StepLanes(Fd listener, Fd wake, std::string name);
  void Loop();
  void Accept(Time now);
  bool Greet(Connection& connection);  // false: it is to be closed
  bool Read(Connection& connection);
  void DropLateStrangers(Time now);

  const Fd listener_, wake_;
  const std::string name_;
  Events events_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  std::vector<Connection> connections_;  // the thread's

  std::mutex mutex_;
  std::map<std::string, WorkerId> expected_;  // by secret; guarded by mutex_
};

}  // namespace staffel
