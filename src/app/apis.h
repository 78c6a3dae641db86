// The table of fronts: each API that a server can speak, under the name that --api has for it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields.h"
#include "server/api/service.h"
#include "server/http.h"
#include "staffel/status.h"

namespace staffel {

struct Api {
  std::string_view name;
  void (*add_routes)(api::Service& service, Router& router);
  std::span<const api::RouteDoc> (*route_docs)();
};

std::span<const Api> Apis();

// "openai, anthropic, ...".
std::string ApiNames();
// InvalidArgument, without a subject: no API has this name.
Status CheckApi(std::string_view name);

// Adds the routes of the named APIs, all if none is named, and GET /openapi.json about them. The
// service outlives the router.
void AddApis(const std::vector<std::string>& names, api::Service& service, Router& router);

}  // namespace staffel
