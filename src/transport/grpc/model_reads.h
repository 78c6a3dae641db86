// The ReadModel calls at the master's server. Files are read, and pages of them waited for, on a
// thread of its own, never on the one that carries steps.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "staffel/status.h"
#include "transport/grpc/server_call.h"

namespace staffel {

// Copies [offset, offset + out.size()) of the model of that digest. NotFound: no such model;
// OutOfRange: it is shorter. Called on the thread of the model reads.
using ModelReader =
    std::function<Status(const std::string& digest, int64_t offset, absl::Span<uint8_t> out)>;

class ModelReads {
 public:
  explicit ModelReads(ModelReader reader);
  ~ModelReads();
  // No piece is sent after it; the server cancels the calls that are left.
  void Stop();

  // The completion queue's thread: takes over an accepted call, unless there are too many; then
  // the caller keeps it. ResourceExhausted.
  Status Serve(std::unique_ptr<ServerCall>& call);
  // Likewise: cancels calls whose reader has taken nothing for long.
  void CutOff(Time now);

 private:
  class Read;
  void Post(std::shared_ptr<Read> read);
  void Work();

  const ModelReader reader_;
  std::vector<std::weak_ptr<Read>> reads_;  // the queue's thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Read>> ready_;  // guarded by mutex_: can send their next piece
  bool stop_ = false;                        // guarded by mutex_
  std::thread thread_;                       // last
};

}  // namespace staffel
