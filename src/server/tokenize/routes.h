// A front of its own: /tokenize and /detokenize in the words of all servers that have them. The
// shape of a request tells which: vLLM sends `prompt` or `messages`,
// llama-server `content`, text-generation-inference `inputs`.
#pragma once

#include <span>

#include "server/api/fields.h"
#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::tokenize {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::tokenize
