// What a chat's fields say of reasoning: how much of it there may be, and who sees it. Pure.
#pragma once

#include <optional>

#include "answer/format.h"
#include "server/api/json_parse.h"

namespace staffel::api {

struct ReasoningWish {
  std::optional<int> tokens_max;  // a budget; its end is forced behind it
  bool separate = true;           // told apart from content
  bool include = true;            // shown to the client
  // For the template, where chat_template_kwargs do not say it: reasoning_effort,
  // enable_thinking, thinking.
  Json template_kwargs = Json::object();
};

// Reads reasoning_effort, reasoning, thinking, the budgets by their several names,
// include_reasoning, separate_reasoning and reasoning_format; an error is left in `reader`.
// `format`: harmony's templates know three efforts only.
ReasoningWish ReadReasoning(FieldReader& reader, answer::ReasoningFormat format);

}  // namespace staffel::api
