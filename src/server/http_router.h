// The table of routes. Look-ups and additions from any thread.
#pragma once

#include <map>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/http_error.h"

namespace staffel {

struct RouteMatch {
  std::string route;    // as registered; "other" if there is none. A label for metrics.
  HttpHandler handler;  // empty: unknown path, or method not allowed
  std::string path;     // for HttpRequest::path
  std::string allow;    // methods of the path, "GET, HEAD"; "" for an unknown path
  ErrorShape error_shape = ErrorBody;
};

class RouteTable final : public Router {
 public:
  void Handle(std::string method, std::string path, HttpHandler handler) override;
  void ShapeErrors(std::string path, ErrorShape shape) override;

  // `raw_path` as sent: exact routes match byte for byte; the rest of a "/*" route is decoded, and
  // does not match if that fails.
  RouteMatch Find(std::string_view method, std::string_view raw_path) const;

 private:
  ErrorShape ShapeOf(std::string_view path) const;

  using Methods = std::map<std::string, HttpHandler, std::less<>>;

  mutable std::shared_mutex mutex_;
  std::map<std::string, Methods, std::less<>> exact_;     // guarded by mutex_
  std::map<std::string, Methods, std::less<>> prefixes_;  // key "/v1/models/"; guarded by mutex_
  // By path, or by prefix ("/api/"); guarded by mutex_.
  std::map<std::string, ErrorShape, std::less<>> shapes_;
};

}  // namespace staffel
