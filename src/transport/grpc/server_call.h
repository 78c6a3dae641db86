// One call at the master's server: its context, its stream, and the tags of the operations that
// the completion queue reports. Used by cluster_server only.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <memory>

namespace staffel {

// What a call does. Events come one at a time on the queue's thread.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  virtual void OnRead(bool ok) = 0;  // the message is in ServerCall::received
  virtual void OnWritten(bool ok) = 0;
  virtual void OnOver() = 0;  // nothing can be read or written any more; start no operation
};

struct ServerCall {
  enum class Event { kAccepted, kRead, kWritten, kFinished, kOver };
  struct Tag {
    ServerCall* call;
    Event event;
  };

  ServerCall() { context.AsyncNotifyWhenDone(&over); }

  // At most one of each at a time, none after OnOver.
  void Read() {
    ++pending;
    stream.Read(&received, &read);
  }
  void Write(const grpc::ByteBuffer& buffer) {
    ++pending;
    stream.Write(buffer, &written);
  }
  void Finish(const grpc::Status& status) {
    ++pending;
    stream.Finish(status, &finished);
  }

  Tag accepted{this, Event::kAccepted}, read{this, Event::kRead}, written{this, Event::kWritten};
  Tag finished{this, Event::kFinished}, over{this, Event::kOver};
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};
  grpc::ByteBuffer received;
  // Operations whose tag has not come back, `over` included. At 0 the call lets go of its handler,
  // which owns it.
  std::atomic<int> pending = 1;
  std::shared_ptr<CallHandler> handler;
};

}  // namespace staffel
