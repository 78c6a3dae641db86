// A caller's JSON as values of a template.
#pragma once

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "text/jinja/runtime.h"

namespace staffel::jinja {

// Which strings of a JSON value are trusted although a caller sent them: asked for the entries of
// the objects in a top-level array, that is, for the fields of messages.
using IsTrustedField = bool (*)(std::string_view key, std::string_view value);

// Whether the value is nested deeper than templates take it. Ask before copying or printing JSON of
// a caller: nlohmann::json recurses for both.
bool IsNestedTooDeeply(const nlohmann::ordered_json& json);

// Bytes of memory, about, that the value takes. Fails with a TemplateError for input that is nested
// too deeply.
size_t JsonBytes(const nlohmann::ordered_json& json);

// Everything in it is marked as the caller's, but for trusted fields (may be null: none).
// Fails for strings that are not UTF-8. JsonBytes must have passed.
Value FromJson(Runtime& runtime, const nlohmann::ordered_json& json, IsTrustedField is_trusted);

}  // namespace staffel::jinja
