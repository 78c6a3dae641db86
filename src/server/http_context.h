// What the connections of one server share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "server/auth.h"
#include "server/http_error.h"
#include "server/http_router.h"
#include "server/http_server.h"

namespace staffel {

struct HttpContext {
  explicit HttpContext(HttpServerOptions server_options) : options(std::move(server_options)) {}

  const HttpServerOptions options;
  ApiKeys keys;  // set by Bind, before the threads
  Metrics* metrics = nullptr;
  RouteTable routes;
  std::atomic<bool> draining =
      false;  // connections end with the answer they are at, new ones at once
  std::atomic<int> connections = 0;
  std::atomic<size_t> body_bytes = 0;  // of all requests in progress

  // Signalled when a connection has closed while draining.
  std::mutex drain_mutex;
  std::condition_variable drained;

  // Whether requests are served, see HttpServer::SetUnavailable.
  std::mutex availability_mutex;
  std::string unavailable_reason = "The server is starting.";  // guarded by availability_mutex
  std::function<Status()> health;                              // guarded by availability_mutex
  std::function<std::string()> degraded;                       // guarded by availability_mutex
  std::atomic<bool> available = false;
};

// Routes that the server answers itself, at any time: /live, /health, /metrics, /version.
bool IsOperationsRoute(std::string_view route);
// Of these, the ones that need no key.
bool IsOpenRoute(const HttpServerOptions& options, std::string_view method, std::string_view route);
void AddOperationsRoutes(const std::shared_ptr<HttpContext>& context);
// The 503 of everything else while unavailable.
std::optional<HttpError> UnavailableError(HttpContext& context);

}  // namespace staffel
