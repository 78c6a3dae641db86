// Chat messages and tools of a request, checked and brought into the form that templates read.
#pragma once

#include "server/api/json_parse.h"
#include "server/api/tool_calls.h"

namespace staffel::api {

inline constexpr int kMessagesMax = 65536;

struct ChatInput {
  Json messages = Json::array();
  ToolChoice tool_choice;
  Json template_kwargs = Json::object();  // chat_template_kwargs
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// Reads messages, tools, tool_choice and the template fields. Roles: system, developer (given to
// the template as system), user, assistant, tool, function. Content: a string, or an array of text
// parts, whose texts are joined without a separator; null or absent only for the assistant. Other
// parts (images, audio, files) are refused: the models served here read text. keep_content_parts:
// the template iterates over content parts itself, so strings become one part.
ChatInput ReadChatInput(FieldReader& reader, bool keep_content_parts);

}  // namespace staffel::api
