// The Anthropic Messages API: /v1/messages and /v1/messages/count_tokens.
#pragma once

#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::anthropic {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

}  // namespace staffel::api::anthropic
