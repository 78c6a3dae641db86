// Bodies of /api/chat and /api/generate in the internal form of a request. Pure.
#pragma once

#include <memory>

#include "server/api/embedding.h"
#include "server/api/generation.h"
#include "server/api/json_parse.h"
#include "server/api/served_model.h"

namespace staffel::api::ollama {

// The model that `model` (or `name`, its earlier name) means: as served, or with ":latest" added or
// left out. Otherwise as FindModel.
Checked<std::shared_ptr<const ServedModel>> FindNamed(const ModelSet& models, const Json& body);

// Both without sink and runner. Errors name the client's field.
Checked<GenerationSpec> ReadChatRequest(std::shared_ptr<const ServedModel> model, const Json& body);
Checked<GenerationSpec> ReadGenerateRequest(std::shared_ptr<const ServedModel> model,
                                            const Json& body);

// Of /api/embed, and of the earlier /api/embeddings; `runner`, `done` and `on_disconnect` are left
// to the caller. No inputs: there is nothing to compute.
Checked<EmbeddingSpec> ReadEmbedRequest(std::shared_ptr<const ServedModel> model, const Json& body);
Checked<EmbeddingSpec> ReadEmbeddingsRequest(std::shared_ptr<const ServedModel> model,
                                             const Json& body);

// Whether the body asks for no answer, but only whether the model is there.
bool IsLookUp(const Json& body);

}  // namespace staffel::api::ollama
