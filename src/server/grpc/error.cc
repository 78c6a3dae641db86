#include "server/grpc/error.h"

#include <charconv>
#include <string>
#include <string_view>

#include "rpc_status.pb.h"

namespace staffel {
namespace {

// Message and details together stay below the 8 KiB of trailers that every client takes: the
// message is there up to three times, and once percent-encoded.
constexpr size_t kMessageBytesMax = 900;
constexpr char kDomain[] = "staffel";

std::string Cut(std::string_view text) {
  if (text.size() <= kMessageBytesMax) return std::string(text);
  size_t end = kMessageBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

grpc::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 401:
      return grpc::UNAUTHENTICATED;
    case 403:
      return grpc::PERMISSION_DENIED;
    case 404:
      return grpc::NOT_FOUND;
    case 405:
    case 501:
      return grpc::UNIMPLEMENTED;
    case 408:
    case 504:
      return grpc::DEADLINE_EXCEEDED;
    case 413:
    case 429:
      return grpc::RESOURCE_EXHAUSTED;
    case 499:
      return grpc::CANCELLED;
    case 503:
      return grpc::UNAVAILABLE;
    default:
      return http_status >= 400 && http_status < 500 ? grpc::INVALID_ARGUMENT : grpc::INTERNAL;
  }
}

}  // namespace

std::optional<std::chrono::milliseconds> RetryDelay(const HttpError& error) {
  if (error.status != 429 && error.status != 503) return std::nullopt;
  int seconds = 1;
  for (const auto& [name, value] : error.headers) {
    if (name == "Retry-After") std::from_chars(value.data(), value.data() + value.size(), seconds);
  }
  return std::chrono::seconds(seconds);
}

grpc::Status GrpcStatusOf(const HttpError& error) {
  const grpc::StatusCode code = CodeOf(error.status);
  const std::string message = Cut(error.message);
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  if (error.param) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(Cut(*error.param));
    violation->set_description(message);
    details.add_details()->PackFrom(bad);
  }
  if (const auto delay = RetryDelay(error)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(delay->count() / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int>(delay->count() % 1000) * 1'000'000);
    details.add_details()->PackFrom(retry);
  }
  if (error.code) {
    google::rpc::ErrorInfo info;
    info.set_reason(*error.code);
    info.set_domain(kDomain);
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(code, message,
                      details.details_size() > 0 ? details.SerializeAsString() : std::string());
}

const char* GrpcCodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= 0 && code <= 16 ? kNames[code] : "UNKNOWN";
}

}  // namespace staffel
