// The clients' side of a server process, whatever computes behind it: sockets, metrics, the routes
// of HTTP, the methods of gRPC, and the words for the log and the service manager.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/model_text.h"
#include "app/serve_options.h"
#include "app/stop_signals.h"
#include "engine/engine.h"
#include "server/api/service.h"
#include "server/grpc/server.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/task_pool.h"
#include "staffel/clock.h"

namespace staffel {

class Front {
 public:
  // `options` outlives the front.
  explicit Front(const ServeOptions& options);

  // Takes the ports, so that it is known at once whether they can be had, and answers 503
  // with `reason` from then on. Routes are added before. InvalidArgument: an option is wrong.
  Status Start(const std::string& reason);

  HttpServer& server() { return server_; }
  // Of both servers, see HttpServer. Any thread.
  void SetUnavailable(const std::string& reason);
  void SetAvailable(const std::function<Status()>& health,
                    std::function<std::string()> degraded = nullptr);
  // See both servers: no client is left afterwards.
  void Shutdown(Duration deadline);

  Metrics& metrics() { return metrics_; }
  api::Service& service() { return service_; }

  // Any thread; what EngineOptions::on_delivered of every engine behind this front must call.
  void WakeStreams() { pool_.WakeForShort(); }

  // What clients may use to try the server, and a warning where it is open to all.
  void LogReady(const ModelText& text, Duration took);

 private:
  Status StartGrpc();

  const ServeOptions& options_;
  Metrics metrics_;
  TaskPool pool_;
  api::Service service_;
  HttpServer server_;
  std::unique_ptr<GrpcServer> grpc_;  // null: there is none
};

// Tells /health, the log and the service manager how far loading is.
class LoadingProgress {
 public:
  explicit LoadingProgress(Front* front) : front_(front) {}
  void Report(double share);

 private:
  Front* const front_;
  int percent_ = -1;
  Time logged_ = SystemClock().Now();
};

// The names requests may use: those given, else the file's.
std::vector<std::string> ServedNames(const ServeOptions& options);

// Waits for a signal or a request to end, and returns the reason. Meanwhile tells the service
// manager's watchdog that all is well, as long as `health` says so.
std::string WaitForEnd(StopSignals& signals, const std::function<Status()>& health);

// Service manager and clients are told; new requests get 503 from here on, those that run have
// until the deadline.
void Drain(Front& front, const std::vector<Engine*>& engines, Duration timeout);

// Errors after logging has begun: a sentence, or a JSON line where the log is JSON. Returns
// `exit_code`.
int Refuse(const ServeOptions& options, const Status& status, int exit_code);

// After the drain: last bytes on their way to clients.
inline constexpr Duration kGoodbye = std::chrono::seconds(2);
// Between availability and READY=1: answers of 503 that are on their way arrive before it.
inline constexpr Duration kSettle = std::chrono::milliseconds(50);

}  // namespace staffel
