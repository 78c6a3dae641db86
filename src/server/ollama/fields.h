// The fields of Ollama's routes: what is read, ignored and refused, with ranges and defaults.
#pragma once

#include <span>

#include "server/api/fields.h"

namespace staffel::api::ollama {

std::span<const Field> OptionFields();  // of `options`
std::span<const Field> SharedFields();  // of /api/chat and /api/generate
std::span<const Field> GenerateFields();
std::span<const Field> ChatFields();
std::span<const Field> EmbedFields();
std::span<const Field> EmbeddingsFields();  // of the earlier route
std::span<const Field> ShowFields();
std::span<const Field> PullFields();

std::span<const RouteDoc> RouteDocs();

}  // namespace staffel::api::ollama
