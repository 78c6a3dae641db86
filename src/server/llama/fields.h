// The fields of llama-server's routes: what is read, ignored and refused, with ranges and defaults.
#pragma once

#include <span>

#include "server/api/fields.h"

namespace staffel::api::llama {

std::span<const Field> CompletionFields();  // of /completion, but `prompt`
std::span<const Field> PromptField();
std::span<const Field> EmbeddingFields();
std::span<const Field> InfillFields();  // of /infill, besides those of completions

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::llama
