// Errors of the OpenAI routes: the HTTP layer's, with the request field that is wrong.
#pragma once

#include <string>
#include <string_view>

#include "server/http_error.h"
#include "staffel/status.h"

namespace staffel::openai {

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

}  // namespace staffel::openai
