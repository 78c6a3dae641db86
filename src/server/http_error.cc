#include "server/http_error.h"

#include <nlohmann/json.hpp>

namespace staffel {
namespace {

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
      return 503;
    default:
      return 500;
  }
}

nlohmann::json StringOrNull(const std::optional<std::string>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

std::string_view DefaultErrorType(int http_status) {
  if (http_status == 429) return "rate_limit_error";
  if (http_status == 503) return "service_unavailable";
  return http_status < 500 ? "invalid_request_error" : "server_error";
}

std::string ErrorBody(const HttpError& error) {
  nlohmann::ordered_json body;
  body["error"]["message"] = error.message;
  body["error"]["type"] =
      error.type.empty() ? std::string(DefaultErrorType(error.status)) : error.type;
  body["error"]["param"] = StringOrNull(error.param);
  body["error"]["code"] = StringOrNull(error.code);
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpError ErrorOf(const Status& status) {
  HttpError error;
  error.status = HttpStatusOf(status.code());
  error.message = std::string(status.message());
  if (error.message.empty()) error.message = "The server failed without saying why; see its log.";
  // The OpenAI clients repeat 5xx answers; what is not implemented stays so.
  if (error.status == 501) error.headers.emplace_back("x-should-retry", "false");
  return error;
}

void SendError(ResponseWriter& writer, const HttpError& error, ErrorShape shape) {
  writer.Send(error.status, "application/json", shape(error), error.headers);
}

}  // namespace staffel
