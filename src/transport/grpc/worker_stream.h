// One worker's Join call at the master: hello, messages both ways, liveness, end.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "staffel/clock.h"
#include "staffel/cluster.h"
#include "transport/grpc/server_call.h"

namespace staffel {

class WorkerStream;

// The server, as its streams see it. Calls come on the completion queue's thread.
class WorkerStreamOwner {
 public:
  virtual ~WorkerStreamOwner() = default;
  virtual void OnHello(WorkerStream& stream) = 0;
  virtual void OnWorkerMessage(WorkerStream& stream, WorkerMessage message) = 0;
  // Once for each stream. Not joined: it never said a proper Hello.
  virtual void OnStreamEnd(WorkerStream& stream, const Status& reason) = 0;
};

class WorkerStream final : public CallHandler {
 public:
  // Takes over an accepted call, and begins to read.
  static std::shared_ptr<WorkerStream> Create(std::unique_ptr<ServerCall> call,
                                              WorkerStreamOwner* owner, ProtocolVersion protocol);

  // Any thread. After the end: nothing happens.
  void Send(const grpc::ByteBuffer& message);
  // Ends the call: what waits is sent, then `status`, with the little patience that CutOff has.
  // `reason` is what the owner is told, if nothing was before. Any thread.
  void End(Status reason, const grpc::Status& status);
  // Sends `ping` if nothing else was sent since the last call.
  void Ping(const grpc::ByteBuffer& ping);
  // Cancels the call if it should have ended by now.
  void CutOff(Time now);

  // The queue's thread from here on.
  void Join(WorkerId id);  // the owner has accepted the hello
  // Tells the owner of the end, once.
  void ReportEnd(const Status& reason);
  // "worker NAME on host HOST (ADDRESS) WHAT; last finished step ..."
  std::string Describe(std::string_view what, Time now) const;

  bool joined() const { return id_.valid(); }
  WorkerId id() const { return id_; }
  const Hello& hello() const { return hello_; }
  const std::string& peer() const { return peer_; }
  bool is_local() const { return is_local_; }  // over a Unix socket: on this machine
  Time last_heard() const { return last_heard_; }

  void OnRead(bool ok) override;
  void OnWritten(bool ok) override;
  void OnOver() override;

 private:
  WorkerStream(std::unique_ptr<ServerCall> call, WorkerStreamOwner* owner,
               ProtocolVersion protocol);
  void TakeHello(const std::string& bytes);
  void TakeMessage(const std::string& bytes);
  void NoteProgress(const WorkerMessage& message);
  void Refuse(const Status& status);
  void FinishIfIdle();  // mutex_ held

  const std::unique_ptr<ServerCall> call_;
  WorkerStreamOwner* const owner_;
  const ProtocolVersion protocol_;
  const std::string peer_;
  const bool is_local_;

  // The queue's thread only.
  WorkerId id_;
  Hello hello_;
  bool said_hello_ = false;
  bool reported_ = false;
  std::string leaving_;  // why, once the worker has said so
  Time last_heard_;
  uint64_t step_ = 0, collective_ = 0;  // last finished
  Time progress_;                       // when they changed last

  std::mutex mutex_;
  // Guarded by mutex_:
  std::deque<grpc::ByteBuffer> queue_;  // not yet given to gRPC
  bool writing_ = false;                // gRPC has one
  bool sent_since_ping_ = false;
  std::optional<grpc::Status> finish_;  // how the call is to end
  Time finish_by_;
  Status end_reason_;
  bool finished_ = false;  // Finish was called, or can no longer be
};

}  // namespace staffel
