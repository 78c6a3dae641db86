// The OpenAI routes and their companions: chat and text completions, responses, models, render.
#pragma once

#include "server/api/service.h"
#include "server/http.h"

namespace staffel::api::openai {

// The service outlives the router.
void AddRoutes(Service& service, Router& router);

}  // namespace staffel::api::openai
