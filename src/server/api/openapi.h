// The OpenAPI 3.1 document of the server, from the tables that validate requests (fields.h). Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/api/fields.h"

namespace staffel::api {

std::string OpenApiDocument(std::span<const RouteDoc> routes, std::string_view version);

}  // namespace staffel::api
