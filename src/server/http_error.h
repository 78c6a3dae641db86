// Error answers, by default in the shape of the OpenAI API:
//   {"error": {"message": str, "type": str, "param": str|null, "code": str|null}}
// (openai-python, types/shared/error_object.py). Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"
#include "staffel/status.h"

namespace staffel {

struct HttpError {
  int status = 500;
  std::string message;                              // one sentence for the person who can act on it
  std::optional<std::string> param = std::nullopt;  // the request field that is wrong
  std::optional<std::string> code = std::nullopt;   // a word for programs, e.g. "invalid_api_key"
  std::string type = "";                            // "": DefaultErrorType(status)
  HttpHeaders headers = {};
};

// The `type` that goes with a status: "invalid_request_error" for 4xx, "rate_limit_error" for 429,
// "service_unavailable" for 503, "server_error" for other 5xx.
std::string_view DefaultErrorType(int http_status);

// OpenAI's shape. Bytes that are not UTF-8 become U+FFFD. Also the data of an SSE error event.
std::string ErrorBody(const HttpError& error);

// The treatment of a status code as `staffel/status.h` lists it: the caller's mistakes 400
// (NotFound 404), ResourceExhausted 429, the world's failures 503, Unimplemented 501, anything else
// 500.
HttpError ErrorOf(const Status& status);

// Sends it as application/json.
void SendError(ResponseWriter& writer, const HttpError& error, ErrorShape shape = ErrorBody);

}  // namespace staffel
