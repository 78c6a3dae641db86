// The API of text-generation-inference: /generate, /generate_stream, / (either of them), /info and
// /chat_tokenize.
#pragma once

#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::tgi {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

}  // namespace staffel::api::tgi
