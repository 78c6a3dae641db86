// KServe's protocol v2 over HTTP, with Triton's generate extension: /v2 and what is below it.
#pragma once

#include <span>

#include "server/api/fields.h"
#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::kserve {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::kserve
