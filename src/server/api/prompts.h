// From request bodies to prompts: rendering chats, reading the forms of a text completion's prompt,
// checking lengths.
#pragma once

#include <memory>
#include <vector>

#include "server/api/chat_messages.h"
#include "server/api/generation.h"
#include "server/api/json_parse.h"
#include "server/api/reasoning.h"
#include "server/api/served_model.h"

namespace staffel::api {

inline constexpr int kPromptsMax = 1024;               // of one text completion request
inline constexpr size_t kTemplateBytesMax = 64 << 10;  // of a request's chat_template

// The model that a request names; where there is only one, absent and null mean it. 404 with the
// list of models for a name that there is not, 503 for one that cannot be served now, 400 if it is
// no string, or missing where there are several.
Checked<std::shared_ptr<const ServedModel>> FindModel(const ModelSet& models, const Json& body);

struct ModelRequest {
  Json body;
  std::shared_ptr<const ServedModel> model;
};

// A body as sent, and the model that it names. Errors of ParseBody and FindModel.
Checked<ModelRequest> ReadModelRequest(const ModelSet& models, const std::string& body);

struct RenderedChat {
  PromptText prompt;
  std::vector<TokenId> tokens;
  ToolChoice tool_choice;
  ReasoningWish reasoning;
};

// Messages through the template and the tokenizer. Errors name the field.
Checked<RenderedChat> RenderChat(const ServedModel& model, FieldReader& reader);

// How prompts are read, and what they are called.
struct PromptForm {
  const char* field = "prompt";
  int count_max = kPromptsMax;
  bool plain = false;       // control tokens in strings are not recognised
  bool add_special = true;  // strings get the model's first token where it asks for it
};

// The field: a string, strings, token ids, or lists of token ids. Unless they are plain, control
// tokens are recognised in strings: whoever writes a raw prompt writes its control tokens. Refused
// as a whole if one of the prompts has no tokens.
Checked<std::vector<GenerationPrompt>> ReadPrompts(const ServedModel& model, const PromptForm& form,
                                                   FieldReader& reader);

// 400 if a prompt leaves no room for an answer in the context, or cannot fit into the KV pool.
std::optional<ApiError> CheckPromptLength(const ServedModel& model, size_t prompt_tokens,
                                          int answer_tokens_min, std::string_view param);

}  // namespace staffel::api
