// Tools of a chat: which may be called, and whether one must be. Pure.
#pragma once

#include <string>
#include <vector>

#include "answer/parser.h"
#include "server/api/json_parse.h"

namespace staffel::api {

struct ToolChoice {
  Json tools;             // that the model is shown and may call, as in the request; null: none
  bool required = false;  // the answer is one call or more
  std::string named;      // and of this one; "": of any
  bool parallel = true;   // more than one call may come
};

// Reads tools, tool_choice and parallel_tool_calls; an error is left in `reader`.
ToolChoice ReadToolChoice(FieldReader& reader);

// What the parser must know of them.
std::vector<answer::ToolSignature> SignaturesOf(const Json& tools);

// Of a tool that ReadToolChoice has let through.
const std::string& ToolName(const Json& tool);
bool IsStrict(const Json& tool);        // its arguments must follow its schema
bool HasStrictTool(const Json& tools);  // null: none

}  // namespace staffel::api
