// Ollama's API: chats, prompts, and what it tells of models. What changes models is refused.
#pragma once

#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::ollama {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

}  // namespace staffel::api::ollama
