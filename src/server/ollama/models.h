// What Ollama's routes tell of models. Pure.
#pragma once

#include <string>

#include "server/api/json_parse.h"
#include "server/api/served_model.h"

namespace staffel::api::ollama {

// {"models": [...]} of /api/tags and /api/ps: every model under all its names.
Json TagsOf(const ModelSet& models);
Json RunningOf(const ModelSet& models);

// The answer of /api/show.
Json ShowOf(const ServedModel& model);

// "smollm2:latest" of "smollm2"; names with a tag stay.
std::string Tagged(const std::string& name);

}  // namespace staffel::api::ollama
