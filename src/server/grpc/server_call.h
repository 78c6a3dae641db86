// One call at the gRPC server: what its head must pass, its messages, its end.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/grpc/call.h"
#include "server/grpc/context.h"
#include "staffel/clock.h"

namespace staffel {

// Reactions of gRPC come on its threads, one at a time for each kind. The object keeps itself until
// OnDone.
class ServerCall final : public grpc::ServerGenericBidiReactor,
                         public GrpcCall,
                         public std::enable_shared_from_this<ServerCall> {
 public:
  // The reactor of a call that has come.
  static grpc::ServerGenericBidiReactor* Accept(std::shared_ptr<GrpcContext> context,
                                                grpc::GenericCallbackServerContext* call);
  ~ServerCall() override;

  const std::string& request_id() const override { return request_id_; }
  void Begin() override;
  bool Write(const google::protobuf::MessageLite& message) override;
  void Finish() override;
  void Fail(const HttpError& error) override;
  void OnDisconnect(std::function<void()> callback) override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class Handle;

  ServerCall(std::shared_ptr<GrpcContext> context, grpc::GenericCallbackServerContext* call);
  std::optional<HttpError> CheckHead();
  std::shared_ptr<GrpcCall> MakeHandle();
  void TakeMessage(std::string bytes);
  void TakeEnd();
  void ReadNext();
  void Run(std::function<void()> task);
  void End(grpc::Status status, std::optional<int> retry_ms);
  // Starts an operation, if the end has not been; the end waits for it to be started.
  void Start(const std::function<void()>& operation);
  // mutex_ is held, and given back: gRPC's operations are started without it, since their reactions
  // may come at once.
  void Proceed(std::unique_lock<std::mutex>& lock);
  void CutOff();  // mutex_ is held
  void WatchLastWrites();

  const std::shared_ptr<GrpcContext> context_;
  grpc::GenericCallbackServerContext* const call_;  // until OnDone
  const GrpcMethod* method_ = nullptr;              // null: there is none of that path
  std::string request_id_;
  grpc::ByteBuffer received_;
  size_t received_bytes_ = 0;  // counted in the context

  std::mutex mutex_;
  // Guarded by mutex_:
  std::shared_ptr<ServerCall> self_;           // until OnDone
  std::shared_ptr<GrpcStreamHandler> stream_;  // until the client's end, or OnDone
  int starting_ = 0;                           // operations
  std::deque<grpc::ByteBuffer> queue_;
  size_t queue_bytes_ = 0;
  bool writing_ = false;  // the queue's front is with gRPC
  Time write_began_{};
  bool begun_ = false;                  // the initial metadata is on its way
  std::optional<grpc::Status> status_;  // how the call is to end
  bool finished_ = false;               // gRPC was told
  bool cancelled_ = false;
  std::function<void()> on_disconnect_;
  grpc::StatusCode code_ = grpc::OK;
  std::unique_ptr<grpc::Alarm> alarm_;
};

}  // namespace staffel
