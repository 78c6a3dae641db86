// HttpConnection's part for one request: what its head must pass, its body, its handler.
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <exception>
#include <utility>

#include "base/strings.h"
#include "server/http_connection.h"
#include "server/http_cors.h"
#include "spdlog/spdlog.h"

namespace staffel {
namespace {

namespace net = boost::asio;

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

std::string_view Find(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

HttpError Unauthorized() {
  return {.status = 401,
          .message = "A valid API key is needed: send it as 'Authorization: Bearer KEY'.",
          .code = "invalid_api_key",
          .headers = {{"WWW-Authenticate", "Bearer"}}};
}

HttpError TooLarge(size_t limit) {
  return {.status = 413,
          .message = StrCat("The body is larger than the limit of ", limit, " bytes."),
          .code = "request_too_large"};
}

HttpError Overloaded(std::string message) {
  return {.status = 503, .message = std::move(message), .code = "overloaded"};
}

}  // namespace

void HttpConnection::ReadHead() {
  const auto& message = parser_->get();
  started_at_ = std::chrono::steady_clock::now();
  method_ = std::string(message.method_string());
  head_ = {.version = static_cast<int>(message.version())};
  for (const auto& field : message) {
    head_.headers.emplace_back(Lower(field.name_string()), field.value());
  }
  target_ = ParseTarget(message.target());
  match_ = target_ ? context_.routes.Find(method_, target_->path) : RouteMatch{.route = "other"};
  answer_bytes_ = 0;
  unread_body_ = false;
  traits_ = {.version = head_.version,
             .head_only = method_ == "HEAD",
             .keep_alive = parser_->is_header_done() && parser_->keep_alive(),
             .request_id = RequestIdFor(Find(head_.headers, "x-request-id")),
             .headers = CorsHeaders(context_.options.cors_origins, head_.headers),
             .buffer_bytes_max = context_.options.limits.stream_buffer_bytes_max,
             .error_shape = match_.error_shape};
}

void HttpConnection::OnHead() {
  ReadHead();
  std::optional<HttpError> error = CheckHead(head_);
  if (!error && head_.headers.size() > size_t(context_.options.limits.header_count_max)) {
    error = {.status = 431, .message = "There are too many headers."};
  }
  if (error) {
    // Where the next request would begin is not certain.
    traits_.keep_alive = false;
    return Fail(*std::move(error));
  }
  if (auto preflight = PreflightHeaders(context_.options.cors_origins, method_, head_.headers)) {
    unread_body_ = !parser_->is_done();
    traits_.keep_alive = traits_.keep_alive && !unread_body_;
    BeginAnswer();
    state_->Send(204, "", "", *preflight);
    return Flush();
  }
  if ((error = CheckRequest())) return Fail(*std::move(error));
  BeginBody();
}

std::optional<HttpError> HttpConnection::CheckRequest() {
  const HttpServerOptions& options = context_.options;
  if (!IsOpenRoute(options, method_, match_.route) && !context_.keys.Admits(head_.headers)) {
    return Unauthorized();
  }
  if (!target_) return HttpError{.status = 400, .message = "The request target is not a path."};
  if (context_.connections > options.limits.connections_max) {
    return Overloaded("The server has too many connections; try again.");
  }
  if (!IsOperationsRoute(match_.route)) {
    if (std::optional<HttpError> error = UnavailableError(context_)) return error;
  }
  if (match_.allow.empty()) {
    return HttpError{.status = 404,
                     .message = StrCat("There is no route ", Printable(method_), " ",
                                       Printable(target_->path), "."),
                     .code = "unknown_url"};
  }
  if (!match_.handler) {
    return HttpError{.status = 405,
                     .message = StrCat("This path does not take ", Printable(method_), ", but ",
                                       match_.allow, "."),
                     .code = "method_not_allowed",
                     .headers = {{"Allow", match_.allow}}};
  }
  auto length = parser_->content_length();
  if (length && *length > options.limits.body_bytes_max)
    return TooLarge(options.limits.body_bytes_max);
  return std::nullopt;
}

void HttpConnection::BeginBody() {
  if (ExpectsContinue(head_) && !parser_->is_done() && buffer_.size() == 0) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    // All earlier answers have been sent: the socket has room.
    boost::system::error_code error;
    socket_.write_some(net::buffer(kContinue.data(), kContinue.size()), error);
    if (error) return Abort();
  }
  phase_ = Phase::kBody;
  deadline_ = started_at_ + context_.options.timeouts.body;
  parser_->eager(true);
  parser_->body_limit(context_.options.limits.body_bytes_max);
}

bool HttpConnection::CountBody() {
  size_t size = parser_->get().body().size();
  context_.body_bytes += size - body_counted_;
  body_counted_ = size;
  if (context_.body_bytes <= context_.options.limits.bodies_bytes_max) return true;
  Fail(Overloaded("The server holds too many large requests; try again."));
  return false;
}

void HttpConnection::BeginAnswer() {
  phase_ = Phase::kAnswer;
  auto wake = [worker = worker_, weak = weak_from_this()] {
    net::post(worker->io, [weak] {
      if (auto self = weak.lock()) self->Flush();
    });
  };
  // An error sends nothing; the connection meets it when it writes.
  auto send = [socket = socket_.native_handle()](std::string_view bytes) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  };
  state_ = std::make_shared<ResponseState>(
      traits_, std::move(wake), [worker = worker_] { return worker->context->draining.load(); },
      std::move(send));
}

void HttpConnection::Dispatch() {
  HttpRequest request;
  request.method = method_ == "HEAD" ? "GET" : method_;
  request.path = match_.path;
  request.query = std::move(target_->query);
  request.headers = std::move(head_.headers);
  request.body = std::move(parser_->get().body());
  request.request_id = traits_.request_id;
  parser_.reset();
  BeginAnswer();
  auto writer = std::make_shared<ResponseHandle>(state_);
  try {
    match_.handler(std::move(request), writer);
  } catch (const std::exception& error) {
    spdlog::error("{}: the handler of {} threw: {}", traits_.request_id, match_.route,
                  error.what());
  }
  writer.reset();
  Flush();
}

void HttpConnection::Fail(HttpError error) {
  unread_body_ = !parser_ || !parser_->is_done();
  if (unread_body_) traits_.keep_alive = false;
  parser_.reset();
  BeginAnswer();
  state_->Send(error.status, "application/json", traits_.error_shape(error), error.headers);
  Flush();
}

}  // namespace staffel
