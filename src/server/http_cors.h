// Cross-origin requests of browsers (WHATWG Fetch, "CORS protocol"). Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace staffel {

// Headers for the answer to a request with these headers; none where no origin is configured.
// `origins`: "*", or origins to be matched byte for byte.
HttpHeaders CorsHeaders(const std::vector<std::string>& origins, const HttpHeaders& request);

// Headers of the 204 that answers a preflight from an allowed origin; nothing if this is none.
// Preflights carry no credentials, so they are answered without a key and tell nothing about paths.
std::optional<HttpHeaders> PreflightHeaders(const std::vector<std::string>& origins,
                                            std::string_view method, const HttpHeaders& request);

}  // namespace staffel
