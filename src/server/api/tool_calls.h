// Tools of a chat: which may be called, whether one must be, and what that means for the parser of
// the answer and for its grammar. Pure.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "answer/parser.h"
#include "server/api/json_parse.h"
#include "staffel/grammar.h"

namespace staffel::api {

struct ToolChoice {
  Json tools;             // that the model is shown and may call, as in the request; null: none
  bool required = false;  // the answer is one call or more
  std::string named;      // and of this one; "": of any
  bool parallel = true;   // more than one call may come; only enforced where one is required
};

// Reads tools, tool_choice and parallel_tool_calls; an error is left in `reader`.
ToolChoice ReadToolChoice(FieldReader& reader);

// What the parser must know of them.
std::vector<answer::ToolSignature> SignaturesOf(const Json& tools);

// The grammar of an answer that must be a call. Unimplemented: this version cannot hold a model
// with this format to it.
Result<std::shared_ptr<const grammar::GrammarSpec>> CallGrammar(const ToolChoice& choice,
                                                                answer::CallFormat format);

}  // namespace staffel::api
