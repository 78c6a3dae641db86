// Messages of proto/inference.proto as requests of the core (api/generation_request.h). Pure.
#pragma once

#include "inference.pb.h"
#include "server/api/json_parse.h"

namespace staffel::api::inference {

// A JSON object of OpenAI's field names; `model` is left out. Errors name the field of the message.
Checked<Json> ToJson(const v1::GenerateRequest& request);
Checked<Json> ToJson(const v1::ChatRequest& request);
Checked<Json> ToJson(const v1::EmbedRequest& request);
// What RenderChat reads.
Checked<Json> ToJson(const v1::TokenizeRequest::Chat& chat);

// Errors of the core in the names of the message: "max_tokens" is its `sampling.max_tokens`.
ApiError WithFieldNames(ApiError error, const v1::GenerateRequest& request);
ApiError WithFieldNames(ApiError error, const v1::ChatRequest& request);
ApiError WithFieldNames(ApiError error, const v1::EmbedRequest& request);
ApiError WithFieldNames(ApiError error, const v1::TokenizeRequest& request);

}  // namespace staffel::api::inference
