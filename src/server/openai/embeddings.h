// POST /v1/embeddings.
#pragma once

#include "server/api/service.h"

namespace staffel::api::openai {

void Embeddings(Call call);

}  // namespace staffel::api::openai
