// What the calls of one gRPC server share. Used by src/server/grpc only.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "server/auth.h"
#include "server/grpc/server.h"
#include "server/http_error.h"

namespace staffel {

struct GrpcContext {
  GrpcContext(GrpcServerOptions server_options, TaskRunner* task_runner, Metrics* server_metrics)
      : options(std::move(server_options)), runner(task_runner), metrics(server_metrics) {}

  const GrpcServerOptions options;
  TaskRunner* const runner;
  Metrics* const metrics;
  ApiKeys keys;                               // set by Start, before the threads
  std::map<std::string, GrpcMethod> methods;  // constant after Start
  std::vector<std::string> services;          // likewise

  std::atomic<int> calls = 0;
  std::atomic<size_t> message_bytes = 0;  // of all calls in progress

  std::mutex mutex;
  std::string unavailable_reason = "The server is starting.";  // guarded by mutex
  std::function<Status()> health;                              // guarded by mutex
  std::atomic<bool> available = false;

  // The answer to what is called while unavailable.
  std::optional<HttpError> UnavailableError();
  // What GET /health would say.
  bool Healthy();
};

}  // namespace staffel
