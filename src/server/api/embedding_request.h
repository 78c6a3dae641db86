// Requests for embeddings in their internal form, a JSON object of these fields; fronts with other
// names build such an object (answer_sink.h).
#pragma once

#include <memory>

#include "server/api/embedding.h"
#include "server/api/json_parse.h"
#include "server/api/served_model.h"

namespace staffel::api {

inline constexpr int kEmbeddingInputsMax = 2048;  // of one request, as OpenAI has it
inline constexpr char kInputSchema[] = R"({"type":["string","array"]})";

// input: as `prompt` of text completions, but text is plain: nothing in it becomes a control token.
// The model's first and last tokens are added where it asks for them, unless add_special_tokens is
// false. dimensions, normalize, priority, cache_salt. An input that is too long is an error, unless
// truncate_prompt_tokens (the last so many tokens; -1: as many as fit) or truncate (true: the first
// ones that fit) is there.
//
// `runner`, `done` and `on_disconnect` are left to the front. 501 for a model whose vectors we
// cannot make (ServedModel::embedding_problem).
Checked<EmbeddingSpec> ReadEmbedding(std::shared_ptr<const ServedModel> model, FieldReader& reader);

}  // namespace staffel::api
