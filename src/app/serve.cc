// `staffel serve MODEL`: the life of the server process.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "app/commands.h"
#include "app/option_sources.h"
#include "app/replica.h"
#include "app/serve_options.h"
#include "app/service_notify.h"
#include "app/stop_signals.h"
#include "app/version.h"
#include "base/strings.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/openai/api.h"
#include "server/task_pool.h"

namespace staffel {
namespace {

// Sockets are cheap beside the model: two threads carry thousands of streams.
constexpr int kIoThreads = 2;
// What is left after the drain: last bytes on their way to clients.
constexpr Duration kGoodbye = std::chrono::seconds(2);
// Between availability and READY=1: answers of 503 that are on their way arrive before it.
constexpr Duration kSettle = std::chrono::milliseconds(50);

HttpServerOptions ServerOptions(const ServeOptions& options) {
  HttpServerOptions server;
  server.hosts = options.hosts;
  server.port = options.port;
  server.unix_socket = options.unix_socket;
  server.api_keys = options.api_keys;
  server.open_metrics = options.open_metrics;
  server.cors_origins = options.cors_origins;
  server.version = Version();
  server.limits.body_bytes_max = static_cast<size_t>(options.body_bytes_max);
  server.limits.bodies_bytes_max =
      std::max(server.limits.bodies_bytes_max, 2 * server.limits.body_bytes_max);
  server.limits.stream_buffer_bytes_max = static_cast<size_t>(options.client_buffer_bytes);
  server.timeouts.write = options.write_timeout;
  server.ping_interval = options.sse_ping_interval;
  return server;
}

// "/models/x-00001-of-00003.gguf" is served as "x".
std::vector<std::string> ServedNames(const ServeOptions& options) {
  if (!options.served_model_names.empty()) return options.served_model_names;
  std::string stem = std::filesystem::path(options.model).stem().string();
  constexpr std::string_view kPart = "-00001-of-00000";
  const size_t at = stem.size() > kPart.size() ? stem.size() - kPart.size() : stem.npos;
  if (at != stem.npos && stem.compare(at, 10, "-00001-of-") == 0) stem.resize(at);
  return {stem};
}

// The address to show: what clients on this machine can reach.
std::string LocalUrl(const HttpServer& server) {
  std::string host = server.addresses().front();
  host.resize(host.rfind(':'));
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "[::]") host = "[::1]";
  return StrCat("http://", host, ":", server.port());
}

bool IsLoopback(const ServeOptions& options) {
  return std::all_of(options.hosts.begin(), options.hosts.end(), [](const std::string& host) {
    return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
  });
}

// Tells /health, the log and the service manager how far loading is.
class LoadingProgress {
 public:
  explicit LoadingProgress(HttpServer* server) : server_(server) {}

  void Report(double share) {
    const int percent = static_cast<int>(std::clamp(share, 0.0, 1.0) * 100);
    if (percent == percent_) return;
    percent_ = percent;
    server_->SetUnavailable(StrCat("The model is being loaded (", percent, " %)."));
    const Time now = SystemClock().Now();
    if (now - logged_ < std::chrono::seconds(1)) return;
    logged_ = now;
    spdlog::info("loading: {} %", percent);
    NotifyService(StrCat("STATUS=loading: ", percent, " %"));
  }

 private:
  HttpServer* const server_;
  int percent_ = -1;
  Time logged_ = SystemClock().Now();
};

void LogReady(const ServeOptions& options, const HttpServer& server, const Replica& replica,
              Duration took) {
  spdlog::info("{}", replica.description());
  std::string addresses;
  for (const std::string& address : server.addresses()) {
    StrAppend(addresses, addresses.empty() ? "" : ", ", address);
  }
  spdlog::info("ready in {:.2f} s, listening on {}", std::chrono::duration<double>(took).count(),
               addresses);
  const char* key = options.api_keys.empty() ? "" : " -H \"Authorization: Bearer $KEY\"";
  if (replica.text().chat_template) {
    spdlog::info(
        "try: curl {}/v1/chat/completions{} -H 'Content-Type: application/json' "
        R"(-d '{{"messages":[{{"role":"user","content":"Hello!"}}],"max_tokens":50}}')",
        LocalUrl(server), key);
  } else {
    spdlog::warn("no chat: {}", replica.text().chat_template_problem);
    spdlog::info(
        "try: curl {}/v1/completions{} -H 'Content-Type: application/json' "
        R"(-d '{{"prompt":"Once upon a time","max_tokens":50}}')",
        LocalUrl(server), key);
  }
  if (options.api_keys.empty() && !IsLoopback(options)) {
    spdlog::warn("no --api-key is set: whoever reaches this address may use the model");
  }
}

// Waits for a signal or the worker's loss; meanwhile tells the service manager that all is well.
std::string WaitForEnd(StopSignals& signals, const Engine& engine) {
  const std::optional<Duration> watchdog = WatchdogTimeout();
  while (true) {
    // Half of the time-out, as sd_watchdog_enabled(3) recommends.
    const std::string reason = signals.Wait(watchdog ? *watchdog / 2 : std::chrono::hours(24));
    if (!reason.empty()) return reason;
    if (watchdog && engine.health().ok()) NotifyService("WATCHDOG=1");
  }
}

// New requests get 503 from here on; those that run have until the deadline.
void Drain(HttpServer& server, Engine& engine, Duration timeout) {
  NotifyService("STOPPING=1\nSTATUS=finishing requests");
  server.SetUnavailable("The server is stopping.");
  const Time deadline = SystemClock().Now() + timeout;
  engine.Drain(deadline);
  // Past the deadline the engine ends what is left; that takes a step at most.
  engine.WaitUntilIdle(deadline + kGoodbye);
  server.Shutdown(kGoodbye);
}

// Errors after logging has begun: a sentence, or a JSON line where the log is JSON.
int Refuse(const ServeOptions& options, const Status& status, int exit_code) {
  if (options.log_format == LogFormat::kText) return Fail(status, exit_code);
  spdlog::critical("{}", std::string(status.message()));
  return exit_code;
}

int Serve(const ServeOptions& options) {
  const Time begin = SystemClock().Now();
  StopSignals signals;
  Metrics metrics(Version());
  TaskPool pool(options.http_threads);
  openai::Api api(&pool);
  HttpServer server(ServerOptions(options), &metrics);
  // The port first: whether it can be had is known at once, loading takes a while.
  if (const Status bound = server.Bind(); !bound.ok()) {
    return Refuse(options, bound, absl::IsInvalidArgument(bound) ? kExitUsage : kExitFailure);
  }
  spdlog::info("staffel {}, loading {}, port {}", Version(), options.model, server.port());
  metrics.SetOpenConnections([&server] { return server.open_connections(); });
  api.Register(server);
  server.SetUnavailable("The model is being loaded.");
  server.Start(kIoThreads);

  LoadingProgress progress(&server);
  std::atomic<bool> lost = false;
  const Result<std::shared_ptr<Replica>> loaded = Replica::Load(
      options, [&](double share) { progress.Report(share); },
      [&](const Status& reason) {
        spdlog::error("the worker has failed: {}", std::string(reason.message()));
        lost = true;
        signals.Request("the worker has failed");
      });
  if (!loaded.ok()) return Refuse(options, loaded.status(), kExitFailure);
  const std::shared_ptr<Replica>& replica = *loaded;
  const std::vector<std::string> names = ServedNames(options);
  // Whoever holds the engine holds the worker and the transport behind it too.
  const std::shared_ptr<Engine> engine(replica, &replica->engine());

  auto model = std::make_shared<openai::ServedModel>();
  model->names = names;
  model->created_unix_s = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  model->tokenizer = replica->text().tokenizer;
  model->chat_template = replica->text().chat_template;
  model->chat_template_problem = replica->text().chat_template_problem;
  model->engine = engine;
  model->limits = engine->limits();
  model->metrics = metrics.AddModel(names.front(), [engine] { return engine->stats(); });
  api.SetModels(std::make_shared<openai::ModelSet>(
      openai::ModelSet{.served = {std::move(model)}, .pending = {}}));
  server.SetAvailable([engine] { return engine->health(); });
  signals.EndAtFirst(false);
  LogReady(options, server, *replica, SystemClock().Now() - begin);
  signals.Wait(kSettle);
  NotifyService("READY=1\nSTATUS=serving");

  const std::string reason = WaitForEnd(signals, *engine);
  spdlog::info("{}: finishing requests, at most {} s; a second signal ends at once", reason,
               std::chrono::duration_cast<std::chrono::seconds>(options.drain_timeout).count());
  Drain(server, *engine, options.drain_timeout);
  engine->Stop();
  spdlog::info("stopped");
  return lost ? kExitFailure : kExitOk;
}

}  // namespace

int RunServe(std::vector<std::string> args) {
  ServeOptions options;
  const OptionList list = ServeOptionList(&options);
  const Result<bool> help = LoadOptions(list, "model", std::move(args), environ);
  if (!help.ok()) return Fail(help.status(), kExitUsage);
  if (*help) {
    std::printf(
        "usage: staffel serve MODEL [options]\n%s\nEach option is also a variable "
        "(--max-queue: STAFFEL_MAX_QUEUE) and a key of the --config file (max_queue).\n",
        list.Help().c_str());
    return kExitOk;
  }
  if (const Status status = FinishServeOptions(&options); !status.ok()) {
    return Fail(status, kExitUsage);
  }
  InitLogging(options.log_level, options.log_format);
  return Serve(options);
}

}  // namespace staffel
