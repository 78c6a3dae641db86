// The fields of the Messages routes: what is read, ignored and refused, with ranges and defaults.
#pragma once

#include <span>

#include "server/api/fields.h"

namespace staffel::api::anthropic {

std::span<const Field> MessagesFields();  // but max_tokens, which only an answer needs
std::span<const Field> MaxTokensField();

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::anthropic
