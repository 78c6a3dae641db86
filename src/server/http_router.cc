#include "server/http_router.h"

#include <mutex>
#include <utility>

#include "server/http_message.h"

namespace staffel {
namespace {

constexpr std::string_view kAny = "/*";

std::string AllowOf(const std::map<std::string, HttpHandler, std::less<>>& methods) {
  std::string allow;
  for (const auto& [method, handler] : methods) {
    if (!allow.empty()) allow += ", ";
    allow += method;
    if (method == "GET") allow += ", HEAD";
  }
  return allow;
}

}  // namespace

void RouteTable::Handle(std::string method, std::string path, HttpHandler handler) {
  std::unique_lock lock(mutex_);
  if (path.ends_with(kAny)) {
    path.pop_back();
    prefixes_[path][std::move(method)] = std::move(handler);
  } else {
    exact_[path][std::move(method)] = std::move(handler);
  }
}

void RouteTable::ShapeErrors(std::string path, ErrorShape shape) {
  std::unique_lock lock(mutex_);
  if (path.ends_with(kAny)) path.pop_back();
  shapes_[std::move(path)] = shape;
}

// With the lock held.
ErrorShape RouteTable::ShapeOf(std::string_view path) const {
  for (;;) {
    if (auto it = shapes_.find(path); it != shapes_.end()) return it->second;
    // To the next shorter prefix: "/a/b" and "/a/b/" to "/a/".
    if (path.ends_with('/')) path.remove_suffix(1);
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) return ErrorBody;
    path = path.substr(0, slash + 1);
  }
}

RouteMatch RouteTable::Find(std::string_view method, std::string_view raw_path) const {
  RouteMatch match{
      .route = "other", .handler = nullptr, .path = std::string(raw_path), .allow = ""};
  std::shared_lock lock(mutex_);
  match.error_shape = ShapeOf(raw_path);
  const Methods* methods = nullptr;
  if (auto it = exact_.find(raw_path); it != exact_.end()) {
    methods = &it->second;
    match.route = it->first;
  } else {
    for (const auto& [prefix, candidate] : prefixes_) {
      if (!raw_path.starts_with(prefix) || raw_path.size() == prefix.size()) continue;
      std::optional<std::string> rest = PercentDecode(raw_path.substr(prefix.size()));
      if (!rest) continue;
      methods = &candidate;
      match.route = prefix + "*";
      match.path = prefix + *rest;
    }
  }
  if (!methods) return match;
  match.allow = AllowOf(*methods);
  auto it = methods->find(method);
  if (it == methods->end() && method == "HEAD") it = methods->find("GET");
  if (it != methods->end()) match.handler = it->second;
  return match;
}

}  // namespace staffel
