// The HTTP/1.1 server: sockets, framing (RFC 9112), limits, time-outs, authentication, CORS, SSE,
// and the operations routes /live, /health, /metrics and /version.
//
// Life: construct; Bind (before the model is loaded); Start: requests are answered 503 with the
// reason; Handle for each route; SetAvailable when the model is loaded; at the end StopAccepting
// and Shutdown.
//
// Decisions:
// - Deny by default: with API keys set, every path needs one, unknown paths too; only GET /live,
//   /health and (open_metrics) /metrics do not, and CORS preflights.
// - Paths match byte for byte, before percent-decoding: "//v1", "/v1/../v1", "/V1", "/v1%2fchat"
// and
//   a trailing slash are unknown paths.
// - A client that closes or half-closes its connection before its answer is complete is gone: its
//   request is cancelled, streaming or not.
// - What can be refused by the header alone (401, 404, 405, 413, 417, 431) is answered before the
//   body is read, and the connection is then closed if there is a body.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/metrics.h"
#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct HttpLimits {
  size_t header_bytes_max = 64 << 10;         // request line and headers; above: 431 (414)
  int header_count_max = 100;                 // above: 431
  size_t body_bytes_max = 32 << 20;           // above: 413
  size_t bodies_bytes_max = size_t{1} << 29;  // of all requests in progress; above: 503
  size_t stream_buffer_bytes_max = 2 << 20;   // unsent events of one client; above: it is dropped
  int connections_max = 16384;                // above: 503
};

struct HttpTimeouts {
  Duration idle = std::chrono::seconds(75);    // between two requests of a connection
  Duration header = std::chrono::seconds(20);  // from the first byte of a request, or the connect
  Duration body = std::chrono::seconds(30);    // plus the time that 16 KiB/s take
  Duration write = std::chrono::seconds(30);   // without progress while bytes are unsent
  Duration linger = std::chrono::seconds(5);   // reading on after a refusal, so that it arrives
};

struct HttpServerOptions {
  // Addresses or names: "0.0.0.0", "::" (dual stack), "::1", "[::1]", "localhost". All addresses of
  // a name are bound.
  std::vector<std::string> hosts = {"0.0.0.0"};
  int port = 8000;          // 0: any free one, see port()
  std::string unix_socket;  // path of a further, local socket; "": none
  std::vector<std::string> api_keys;
  bool open_metrics = true;               // /metrics needs no key
  std::vector<std::string> cors_origins;  // "*" or origins, e.g. "https://chat.example.org"
  std::string version;                    // told by /version
  HttpLimits limits;
  HttpTimeouts timeouts;
  Duration ping_interval = std::chrono::seconds(15);  // of silent streams; 0: no pings
};

class HttpServer final : public Router {
 public:
  // `metrics` may be null (then there is no /metrics) and outlives the server.
  HttpServer(HttpServerOptions options, Metrics* metrics);
  // Shutdown without waiting.
  ~HttpServer() override;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; clients queue until Start. InvalidArgument: an option is wrong (a key that
  // no client could send, a port out of range); FailedPrecondition: the address cannot be had; the
  // message names it.
  Status Bind();
  // The port that was bound; the real one where the option is 0.
  int port() const;
  // What was bound, for messages: "127.0.0.1:8000", "[::1]:8000", "unix:/run/staffel.sock".
  std::vector<std::string> addresses() const;

  // After Bind, once. Starts `io_threads` (1 or 2 serve thousands of streams).
  void Start(int io_threads);

  // Any thread, at any time. A path that ends in "/*" matches that prefix with any non-empty rest,
  // and HttpRequest::path then holds the rest percent-decoded. HEAD is answered by GET's handler.
  void Handle(std::string method, std::string path, HttpHandler handler) override;
  void ShapeErrors(std::string path, ErrorShape shape) override;

  // Any thread. While unavailable (so at first), all but the operations routes are answered 503
  // with this reason and Retry-After.
  void SetUnavailable(std::string reason);
  // `health` answers /health from now on: OK, or the reason for 503. `degraded`: what it tells
  // beside OK of a service that is less than what was asked for; "": nothing. They must not block.
  void SetAvailable(std::function<Status()> health,
                    std::function<std::string()> degraded = nullptr);

  // Closes the listening sockets and idle connections. Requests in progress go on; their
  // connections close after the answer.
  void StopAccepting();
  // StopAccepting; waits until no connection is left, at most `deadline`; drops the others (their
  // OnDisconnect callbacks run) and ends the threads. Not from a server thread.
  void Shutdown(Duration deadline);

  int open_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace staffel
