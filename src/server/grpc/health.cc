#include "server/grpc/health.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "health.pb.h"
#include "server/grpc/message.h"

namespace staffel {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr std::chrono::milliseconds kAskInterval{500};

bool Parse(const std::string& bytes, GrpcCall& call, HealthCheckRequest& request) {
  const std::optional<HttpError> error = ReadMessage(bytes, request);
  if (error) call.Fail(*error);
  return !error;
}

HealthCheckResponse::ServingStatus StatusOf(bool healthy) {
  return healthy ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

}  // namespace

struct GrpcHealth::Watch {
  std::shared_ptr<GrpcCall> call;
  bool known = false;
  HealthCheckResponse::ServingStatus told = HealthCheckResponse::UNKNOWN;
  std::atomic<bool> gone = false;

  bool Tell(HealthCheckResponse::ServingStatus status) {
    if (gone) return false;
    if (!known) status = HealthCheckResponse::SERVICE_UNKNOWN;
    if (status == told) return true;
    told = status;
    HealthCheckResponse response;
    response.set_status(status);
    return call->Write(response);
  }
};

GrpcHealth::GrpcHealth(std::shared_ptr<GrpcContext> context) : context_(std::move(context)) {}
GrpcHealth::~GrpcHealth() = default;

std::vector<GrpcMethod> GrpcHealth::Methods() {
  GrpcMethod check{.path = "/grpc.health.v1.Health/Check", .open = true, .quick = true};
  check.handle = [this](const std::string& bytes, const std::shared_ptr<GrpcCall>& call) {
    HealthCheckRequest request;
    if (!Parse(bytes, *call, request)) return;
    if (!Knows(request.service())) {
      return call->Fail({.status = 404,
                         .message = StrCat("There is no service '",
                                           request.service().substr(0, 100), "' here.")});
    }
    HealthCheckResponse response;
    response.set_status(StatusOf(context_->Healthy()));
    call->Write(response);
    call->Finish();
  };
  GrpcMethod watch{.path = "/grpc.health.v1.Health/Watch", .open = true, .quick = true};
  watch.handle = [this](const std::string& bytes, std::shared_ptr<GrpcCall> call) {
    HealthCheckRequest request;
    if (Parse(bytes, *call, request)) StartWatch(request.service(), std::move(call));
  };
  return {std::move(check), std::move(watch)};
}

bool GrpcHealth::Knows(const std::string& service) const {
  const auto& services = context_->services;
  return service.empty() || std::find(services.begin(), services.end(), service) != services.end();
}

void GrpcHealth::StartWatch(const std::string& service, std::shared_ptr<GrpcCall> call) {
  auto watch = std::make_shared<Watch>();
  watch->call = std::move(call);
  watch->known = Knows(service);
  // Not the watch itself: it holds the call.
  watch->call->OnDisconnect([self = weak_from_this(), weak = std::weak_ptr<Watch>(watch)] {
    if (const auto gone = weak.lock()) gone->gone = true;
    if (const auto health = self.lock()) health->Notify();
  });
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_) watches_.push_back(watch);
  }
  Notify();
}

void GrpcHealth::Notify() {
  std::vector<std::shared_ptr<Watch>> ended;  // let go of without the lock
  std::lock_guard<std::mutex> lock(mutex_);
  if (watches_.empty() || stopped_) return;  // after Stop nobody is asked any more
  const auto status = StatusOf(context_->Healthy());
  auto kept = watches_.begin();
  for (auto& watch : watches_) {
    if (watch->Tell(status)) {
      std::swap(*kept++, watch);
    }
  }
  ended.assign(kept, watches_.end());
  watches_.erase(kept, watches_.end());
  AskLater();
}

void GrpcHealth::AskLater() {
  if (watches_.empty() || asking_ || stopped_) return;
  asking_ = true;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now() + kAskInterval, [self = weak_from_this()](bool) {
    const auto health = self.lock();
    if (health == nullptr) return;
    {
      std::lock_guard<std::mutex> lock(health->mutex_);
      health->asking_ = false;
    }
    health->Notify();
  });
}

void GrpcHealth::Stop() {
  std::vector<std::shared_ptr<Watch>> ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    ended.swap(watches_);
  }
  for (const auto& watch : ended) {
    watch->call->Fail({.status = 503, .message = "The server is stopping.", .code = "unavailable"});
  }
}

}  // namespace staffel
