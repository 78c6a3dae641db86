// Errors of the routes: the HTTP layer's, with the request field that is wrong. Each front writes
// them in a shape of its own.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/http_error.h"
#include "staffel/status.h"

namespace staffel::api {

using ApiError = HttpError;

// 400 that names the field; param "" is null.
inline ApiError Invalid(std::string_view param, std::string message) {
  ApiError error{.status = 400, .message = std::move(message), .code = "invalid_value"};
  if (!param.empty()) error.param = std::string(param);
  return error;
}

// The treatment that the HTTP layer gives a status, with the field where the caller is at fault.
inline ApiError FromStatus(const Status& status, std::string_view param = "") {
  ApiError error = ErrorOf(status);
  if (!param.empty() && error.status < 500) error.param = std::string(param);
  return error;
}

// The client's name of a field, by OpenAI's name of it.
struct ClientName {
  std::string_view openai;
  std::string_view client;
};

// The error in the names of a front whose fields are called otherwise: in `param`, and where the
// message quotes a field ('max_tokens').
ApiError WithClientNames(ApiError error, std::span<const ClientName> names);

}  // namespace staffel::api
