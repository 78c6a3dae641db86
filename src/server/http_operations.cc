// The routes for operators: is it alive, would it serve, how much does it do, what is it.
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "server/http_context.h"
#include "server/http_error.h"

namespace staffel {
namespace {

constexpr std::string_view kLive = "/live", kHealth = "/health", kMetrics = "/metrics",
                           kVersion = "/version";
// Long enough to load a model or to restart, short enough that a client's own retries wait it out.
constexpr char kRetryAfterSeconds[] = "2";

HttpError Unavailable(std::string reason) {
  if (reason.empty()) reason = "The server does not serve requests now.";
  return {.status = 503,
          .message = std::move(reason),
          .code = "unavailable",
          .headers = {{"Retry-After", kRetryAfterSeconds}}};
}

void AnswerHealth(HttpContext& context, ResponseWriter& writer) {
  if (std::optional<HttpError> error = UnavailableError(context)) return SendError(writer, *error);
  std::function<Status()> health;
  std::function<std::string()> degraded;
  {
    std::lock_guard lock(context.availability_mutex);
    health = context.health;
    degraded = context.degraded;
  }
  Status status = health ? health() : absl::OkStatus();
  if (!status.ok()) return SendError(writer, Unavailable(std::string(status.message())));
  nlohmann::json body = {{"status", "ok"}};
  if (std::string text = degraded ? degraded() : ""; !text.empty()) body["degraded"] = text;
  using Json = nlohmann::json;
  writer.Send(200, "application/json", body.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

bool IsOperationsRoute(std::string_view route) {
  return route == kLive || route == kHealth || route == kMetrics || route == kVersion;
}

bool IsOpenRoute(const HttpServerOptions& options, std::string_view method,
                 std::string_view route) {
  if (method != "GET" && method != "HEAD") return false;
  return route == kLive || route == kHealth || (route == kMetrics && options.open_metrics);
}

std::optional<HttpError> UnavailableError(HttpContext& context) {
  if (context.available) return std::nullopt;
  std::lock_guard lock(context.availability_mutex);
  return Unavailable(context.unavailable_reason);
}

void AddOperationsRoutes(const std::shared_ptr<HttpContext>& context) {
  // The context owns the table that owns the handlers: they hold no reference that counts.
  HttpContext* shared = context.get();
  auto add = [&](std::string_view path, HttpHandler handler) {
    context->routes.Handle("GET", std::string(path), std::move(handler));
  };
  add(kLive, [](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->Send(200, "application/json", R"({"status":"ok"})");
  });
  add(kHealth, [shared](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    AnswerHealth(*shared, *writer);
  });
  add(kVersion, [shared](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    nlohmann::json body = {{"version", shared->options.version}};
    writer->Send(200, "application/json", body.dump());
  });
  if (!context->metrics) return;
  add(kMetrics, [shared](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->Send(200, Metrics::kContentType, shared->metrics->Render());
  });
}

}  // namespace staffel
