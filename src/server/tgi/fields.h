// The fields of the routes of text-generation-inference: what is read, ignored and refused, with
// ranges and defaults.
#pragma once

#include <span>

#include "server/api/fields.h"

namespace staffel::api::tgi {

std::span<const Field> GenerateFields();

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::tgi
