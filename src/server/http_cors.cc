#include "server/http_cors.h"

#include <algorithm>

namespace staffel {
namespace {

std::string_view Find(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

bool Allowed(const std::vector<std::string>& origins, std::string_view origin) {
  return !origin.empty() && std::any_of(origins.begin(), origins.end(), [&](const auto& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

}  // namespace

HttpHeaders CorsHeaders(const std::vector<std::string>& origins, const HttpHeaders& request) {
  if (origins.empty()) return {};
  std::string_view origin = Find(request, "origin");
  bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  HttpHeaders headers;
  if (!any) headers.emplace_back("Vary", "Origin");
  if (Allowed(origins, origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : origin);
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
  }
  return headers;
}

std::optional<HttpHeaders> PreflightHeaders(const std::vector<std::string>& origins,
                                            std::string_view method, const HttpHeaders& request) {
  if (method != "OPTIONS" || Find(request, "access-control-request-method").empty() ||
      !Allowed(origins, Find(request, "origin"))) {
    return std::nullopt;
  }
  std::string_view asked = Find(request, "access-control-request-headers");
  HttpHeaders headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"},
                         {"Access-Control-Max-Age", "600"}};
  if (!asked.empty()) headers.emplace_back("Access-Control-Allow-Headers", asked);
  return headers;
}

}  // namespace staffel
