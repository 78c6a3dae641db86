// POST /v1/responses, without storage.
#pragma once

#include "server/api/service.h"

namespace staffel::api::openai {

void Responses(Call call);

}  // namespace staffel::api::openai
