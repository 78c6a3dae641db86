// grpc.health.v1.Health: what GET /health says, for the server ("") and each of its services.
#pragma once

#include <grpcpp/alarm.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/grpc/call.h"
#include "server/grpc/context.h"

namespace staffel {

// Any thread. Watch tells a change of availability at once; what the engine says of itself is asked
// twice a second, while someone watches.
class GrpcHealth : public std::enable_shared_from_this<GrpcHealth> {
 public:
  explicit GrpcHealth(std::shared_ptr<GrpcContext> context);
  ~GrpcHealth();
  std::vector<GrpcMethod> Methods();
  void Notify();  // the state may have changed
  void Stop();    // ends all watches

 private:
  struct Watch;

  bool Knows(const std::string& service) const;
  void StartWatch(const std::string& service, std::shared_ptr<GrpcCall> call);
  void AskLater();  // mutex_ is held

  const std::shared_ptr<GrpcContext> context_;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<std::shared_ptr<Watch>> watches_;
  std::unique_ptr<grpc::Alarm> alarm_;
  bool asking_ = false;
  bool stopped_ = false;
};

}  // namespace staffel
