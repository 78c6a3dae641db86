// Errors of the HTTP routes as gRPC statuses, with details that clients know how to read. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>

#include "server/http_error.h"

namespace staffel {

// INVALID_ARGUMENT for 400, NOT_FOUND for 404 and so on (proto/inference.proto has the list), with
// google.rpc.BadRequest, RetryInfo and ErrorInfo where there is something to say.
grpc::Status GrpcStatusOf(const HttpError& error);

// When the call may be tried again; for 429 and 503.
std::optional<std::chrono::milliseconds> RetryDelay(const HttpError& error);

// "OK", "INVALID_ARGUMENT", ...
const char* GrpcCodeName(grpc::StatusCode code);

}  // namespace staffel
