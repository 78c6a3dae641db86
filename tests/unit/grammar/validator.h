// A second opinion on JSON Schema, written for tests: obvious, slow, and independent of
// src/grammar.
#pragma once

#include "nlohmann/json.hpp"

namespace staffel::grammar {

// Formats count as annotations.
bool IsValid(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
             const nlohmann::ordered_json& root);

}  // namespace staffel::grammar
