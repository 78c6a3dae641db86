// The fields of the OpenAI routes: what is read, ignored and refused, with ranges and defaults.
#pragma once

#include <span>

#include "server/api/fields.h"

namespace staffel::api::openai {

std::span<const Field> SharedFields();  // of both kinds of completions
std::span<const Field> ChatFields();
std::span<const Field> CompletionFields();
std::span<const Field> ResponsesFields();
std::span<const Field> EmbeddingFields();

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::openai
