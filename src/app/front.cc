#include "app/front.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/apis.h"
#include "app/commands.h"
#include "app/service_notify.h"
#include "app/version.h"
#include "base/strings.h"
#include "server/inference/methods.h"
#include "server/kserve/grpc_methods.h"
#include "transport/grpc/endpoint.h"

namespace staffel {
namespace {

// Sockets are cheap beside the model: two threads carry thousands of streams.
constexpr int kIoThreads = 2;

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

}  // namespace

Front::Front(const ServeOptions& options)
    : options_(options),
      metrics_(Version()),
      pool_(options.http_threads),
      service_(&pool_),
      server_(ServerOptions(options), &metrics_) {
  metrics_.SetOpenConnections([this] { return server_.open_connections(); });
  AddApis(options.apis, service_, server_);
}

Status Front::Start(const std::string& reason) {
  STAFFEL_RETURN_IF_ERROR(server_.Bind());
  STAFFEL_RETURN_IF_ERROR(StartGrpc());
  SetUnavailable(reason);
  server_.Start(kIoThreads);
  return absl::OkStatus();
}

Status Front::StartGrpc() {
  if (options_.grpc_port < 0) return absl::OkStatus();
  InitGrpcLog();
  GrpcServerOptions grpc;
  grpc.hosts = options_.grpc_hosts.empty() ? options_.hosts : options_.grpc_hosts;
  grpc.port = options_.grpc_port;
  STAFFEL_ASSIGN_OR_RETURN(
      grpc.credentials,
      MakeServerCredentials({options_.grpc_tls_cert, options_.grpc_tls_key, options_.grpc_tls_ca}));
  const HttpServerOptions http = ServerOptions(options_);
  grpc.api_keys = http.api_keys;
  grpc.message_bytes_max = http.limits.body_bytes_max;
  grpc.messages_bytes_max = http.limits.bodies_bytes_max;
  grpc.buffer_bytes_max = http.limits.stream_buffer_bytes_max;
  grpc.write_timeout = http.timeouts.write;
  grpc_ = std::make_unique<GrpcServer>(std::move(grpc), &pool_, &metrics_);
  for (GrpcMethod& method : api::inference::Methods(service_)) grpc_->Handle(std::move(method));
  grpc_->AddService(api::inference::kServiceName);
  auto ready = [this] { return grpc_->healthy(); };
  for (GrpcMethod& method : api::kserve::Methods(service_, Version(), std::move(ready)))
    grpc_->Handle(std::move(method));
  grpc_->AddService(api::kserve::kServiceName);
  return grpc_->Start();
}

void Front::SetUnavailable(const std::string& reason) {
  server_.SetUnavailable(reason);
  if (grpc_) grpc_->SetUnavailable(reason);
}

void Front::SetAvailable(const std::function<Status()>& health,
                         std::function<std::string()> degraded) {
  server_.SetAvailable(health, std::move(degraded));
  if (grpc_) grpc_->SetAvailable(health);
}

void Front::Shutdown(Duration deadline) {
  const Time end = SystemClock().Now() + deadline;
  server_.StopAccepting();
  if (grpc_) grpc_->Shutdown(deadline);
  server_.Shutdown(std::max(Duration::zero(), end - SystemClock().Now()));
}

void Front::LogReady(const ModelText& text, Duration took) {
  std::string addresses;
  for (const std::string& address : server_.addresses()) {
    StrAppend(addresses, addresses.empty() ? "" : ", ", address);
  }
  if (grpc_) {
    for (const std::string& address : grpc_->addresses()) {
      StrAppend(addresses, ", grpc://", address);
    }
  }
  spdlog::info("ready in {:.2f} s, listening on {}", std::chrono::duration<double>(took).count(),
               addresses);
  const char* key = options_.api_keys.empty() ? "" : " -H \"Authorization: Bearer $KEY\"";
  if (text.chat_template) {
    spdlog::info(
        "try: curl {}/v1/chat/completions{} -H 'Content-Type: application/json' "
        R"(-d '{{"messages":[{{"role":"user","content":"Hello!"}}],"max_tokens":50}}')",
        LocalUrl(server_), key);
  } else {
    spdlog::warn("no chat: {}", text.chat_template_problem);
    spdlog::info(
        "try: curl {}/v1/completions{} -H 'Content-Type: application/json' "
        R"(-d '{{"prompt":"Once upon a time","max_tokens":50}}')",
        LocalUrl(server_), key);
  }
  if (options_.api_keys.empty() && !IsLoopback(options_)) {
    spdlog::warn("no --api-key is set: whoever reaches this address may use the model");
  }
}

void LoadingProgress::Report(double share) {
  const int percent = static_cast<int>(std::clamp(share, 0.0, 1.0) * 100);
  if (percent == percent_) return;
  percent_ = percent;
  front_->SetUnavailable(StrCat("The model is being loaded (", percent, " %)."));
  const Time now = SystemClock().Now();
  if (now - logged_ < std::chrono::seconds(1)) return;
  logged_ = now;
  spdlog::info("loading: {} %", percent);
  NotifyService(StrCat("STATUS=loading: ", percent, " %"));
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

std::string WaitForEnd(StopSignals& signals, const std::function<Status()>& health) {
  const std::optional<Duration> watchdog = WatchdogTimeout();
  while (true) {
    // Half of the time-out, as sd_watchdog_enabled(3) recommends.
    const std::string reason = signals.Wait(watchdog ? *watchdog / 2 : std::chrono::hours(24));
    if (!reason.empty()) return reason;
    if (watchdog && health().ok()) NotifyService("WATCHDOG=1");
  }
}

void Drain(Front& front, const std::vector<Engine*>& engines, Duration timeout) {
  NotifyService("STOPPING=1\nSTATUS=finishing requests");
  front.SetUnavailable("The server is stopping.");
  const Time deadline = SystemClock().Now() + timeout;
  for (Engine* engine : engines) engine->Drain(deadline);
  // Past the deadline engines end what is left; that takes a step at most.
  for (Engine* engine : engines) engine->WaitUntilIdle(deadline + kGoodbye);
  front.Shutdown(kGoodbye);
}

int Refuse(const ServeOptions& options, const Status& status, int exit_code) {
  if (options.log_format == LogFormat::kText) return Fail(status, exit_code);
  spdlog::critical("{}", std::string(status.message()));
  return exit_code;
}

}  // namespace staffel
