// A model's chat template: messages in, prompt text out. Parsed once, immutable, rendered from any
// thread at once; no I/O and no clock (the time is an argument).
//
// Rendering follows what `transformers` does (Jinja2 3.1, immutable sandbox, trim_blocks,
// lstrip_blocks, loop controls, its own `tojson`, `raise_exception`, `strftime_now`), so that a
// template gives the bytes it gave in training.
//
// Trust: the result says which bytes come from the caller (message text, names, tool schemas,
// chat_template_kwargs). The tokenizer never makes a control token of them. Trusted are the
// template's own text, the special tokens, and a message's role if it is one of kKnownRoles: some
// templates spell a control token around it ("<|" + role + "|>").
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "nlohmann/json.hpp"
#include "staffel/status.h"
#include "staffel/tokenizer.h"

namespace staffel {

namespace jinja {
class Template;
}

// Roles whose text is trusted. A server lets only these through; any other role is caller's text.
bool IsKnownChatRole(std::string_view role);

// Text of the model's special tokens. "": the model has none, and the variable is undefined.
struct SpecialTokens {
  std::string bos, eos, unk, pad;
};
SpecialTokens SpecialTokensOf(const Tokenizer& tokenizer);

struct ChatOptions {
  const nlohmann::ordered_json* tools = nullptr;   // array; null pointer, null and [] are the same
  const nlohmann::ordered_json* kwargs = nullptr;  // object: chat_template_kwargs of the request
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // excludes add_generation_prompt
  std::tm now = {};                     // local time, for strftime_now
};

// What a template takes as a message's content.
enum class ContentForm {
  kString,  // text
  kParts,   // also the list of parts, over which it iterates itself
};

class ChatTemplate {
 public:
  // InvalidArgument, with line and reason, for a template that cannot be parsed or uses a filter,
  // test or function that does not exist.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                     SpecialTokens special_tokens);
  ~ChatTemplate();

  // messages: array of objects as in an OpenAI request. Before rendering, null and absent content
  // become "", other null fields and empty tool_calls vanish, lists of text parts become their
  // texts one after another unless the template iterates parts, and tool-call arguments become
  // objects where they parse and the template can take them.
  //
  // InvalidArgument: bad messages or options, or the template's own raise_exception, whose message
  // is passed on as it is. Internal: the template itself failed (with line), or hit a limit.
  Result<PromptText> Render(const nlohmann::ordered_json& messages,
                            const ChatOptions& options) const;

  ContentForm content_form() const { return content_form_; }
  // Whether the template looks at `tools`; if not, tools in a request would vanish silently.
  bool uses_tools() const { return uses_tools_; }

 private:
  using Json = nlohmann::ordered_json;

  ChatTemplate(std::unique_ptr<jinja::Template> program, SpecialTokens special_tokens);
  // Finds out what the template can take, by rendering small conversations.
  void Probe();
  Result<Json> Normalize(const Json& messages) const;
  Status NormalizeContent(Json* message) const;
  void NormalizeArguments(Json* message) const;
  Result<PromptText> RenderNormalized(const Json& messages, const ChatOptions& options) const;
  Result<PromptText> RenderContinued(Json messages, const ChatOptions& options) const;

  const std::unique_ptr<jinja::Template> program_;
  const SpecialTokens special_tokens_;
  // Set by Probe.
  ContentForm content_form_ = ContentForm::kString;
  bool takes_string_content_ = true;
  bool takes_object_arguments_ = true;
  bool uses_tools_ = false;
};

// A template for a model file that has none: the first well-known format whose control tokens are
// all in the vocabulary (ChatML, Llama 3, Gemma). FailedPrecondition if there is none: the model
// then serves completions only.
Result<std::string_view> DefaultChatTemplate(
    absl::FunctionRef<bool(std::string_view)> has_control_token);

}  // namespace staffel
