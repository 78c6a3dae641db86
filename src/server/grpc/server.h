// The gRPC server: sockets, keys, limits and the flow of each call, over gRPC's callback API; no
// thread waits for a client. Methods are added by path, those of the standard services
// grpc.health.v1 and grpc.reflection are here (health.h, reflection.h).
//
// Life: construct; Handle for each method; Start (before the model is loaded): calls fail with
// UNAVAILABLE and the reason; SetAvailable when the model is loaded; SetUnavailable and Shutdown at
// the end.
//
// Decisions:
// - Deny by default: with keys set every call needs one, those of unknown methods too; only
//   grpc.health.v1 and methods that say so (`open`) do not.
// - A client whose unsent messages exceed its buffer, or who takes none for the write time-out, is
//   cancelled.
// - Clients may ping every 10 s, with or without calls: load balancers and clients with the usual
//   keepalive settings are not sent away.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/grpc/call.h"
#include "server/http.h"
#include "server/metrics.h"
#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct GrpcServerOptions {
  std::vector<std::string> hosts;  // addresses or names, as HttpServerOptions has them
  int port = 0;                    // 0: any free one
  std::shared_ptr<grpc::ServerCredentials> credentials;  // null: no TLS
  std::vector<std::string> api_keys;
  size_t message_bytes_max = 32 << 20;          // above: RESOURCE_EXHAUSTED, by gRPC
  size_t messages_bytes_max = size_t{1} << 29;  // of all calls in progress; above: UNAVAILABLE
  size_t buffer_bytes_max = 2 << 20;            // unsent messages of one call
  int calls_max = 16384;                        // above: UNAVAILABLE
  Duration write_timeout = std::chrono::seconds(30);
};

class GrpcServer {
 public:
  // `runner` runs the methods and, as `metrics` (may be null), outlives the server.
  GrpcServer(GrpcServerOptions options, TaskRunner* runner, Metrics* metrics);
  ~GrpcServer();  // Shutdown without waiting
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Before Start.
  void Handle(GrpcMethod method);
  // Full name of a service whose methods were added: for health and reflection. Its descriptor is
  // in the generated pool.
  void AddService(std::string name);

  // Binds and serves. InvalidArgument: a key that no client could send; FailedPrecondition: an
  // address cannot be had.
  Status Start();
  // What was bound: "127.0.0.1:9000", "[::1]:9000".
  std::vector<std::string> addresses() const;

  // As HttpServer has them. Any thread.
  void SetUnavailable(std::string reason);
  void SetAvailable(std::function<Status()> health);

  // Takes no new connections and waits until no call is left, at most `deadline`; cancels the
  // others (their OnDisconnect callbacks run). Not from a thread of gRPC's. Methods are not called
  // afterwards.
  void Shutdown(Duration deadline);

  // What GET /health would say. Any thread.
  bool healthy() const;
  int open_calls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace staffel
