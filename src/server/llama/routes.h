// The routes of llama-server that OpenAI does not have: /completion, /infill, /apply-template,
// /props, /slots. (/tokenize and /detokenize: server/tokenize.)
#pragma once

#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::llama {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

}  // namespace staffel::api::llama
