#include "server/api/generation_request.h"

#include <utility>

#include "server/api/output_grammar.h"
#include "server/api/prompts.h"

namespace staffel::api {
namespace {

// Fields of text completions that this version cannot honour.
void RefuseCompletionFields(FieldReader& reader, int n) {
  if (reader.String("suffix").value_or("") != "") {
    reader.Fail("suffix", "'suffix' (fill in the middle) is not supported by this version");
  }
  if (reader.Int("best_of", 1, kChoicesMax).value_or(n) != n) {
    reader.Fail("best_of", "'best_of' other than 'n' is not supported by this version");
  }
}

void ReadChatLogprobs(FieldReader& reader, SamplingParams& sampling) {
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  std::optional<int64_t> top = reader.Int("top_logprobs", 0, kTopLogprobsMax);
  if (top && *top > 0 && !logprobs) {
    reader.Fail("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true");
  }
  if (logprobs) sampling.top_logprobs = static_cast<int>(top.value_or(0));
}

void ReadMaxTokens(FieldReader& reader, GenerationOptions& options, int min) {
  std::optional<int64_t> max_tokens = reader.Int("max_tokens", min, INT64_MAX);
  std::optional<int64_t> newer = reader.Int("max_completion_tokens", min, INT64_MAX);
  options.max_tokens = newer ? newer : max_tokens;
}

// What both kinds of request begin with.
GenerationSpec ReadShared(std::shared_ptr<const ServedModel> model, FieldReader& reader) {
  GenerationSpec spec;
  spec.model = std::move(model);
  spec.options = ReadGenerationOptions(reader, *spec.model->tokenizer);
  ReadOutputGrammar(reader, spec.model->grammars.get(), spec.options);
  return spec;
}

bool ReportsTokens(const GenerationOptions& options) {
  return options.sampling.top_logprobs >= 0 || options.return_token_ids;
}

}  // namespace

Checked<GenerationSpec> ReadChat(std::shared_ptr<const ServedModel> model, FieldReader& reader) {
  GenerationSpec spec = ReadShared(std::move(model), reader);
  ReadChatLogprobs(reader, spec.options.sampling);
  ReadMaxTokens(reader, spec.options, 1);
  if (!reader.ok()) return *reader.error();
  Checked<RenderedChat> rendered = RenderChat(*spec.model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered)) return *error;
  RenderedChat& chat = std::get<RenderedChat>(rendered);
  if (auto error = CheckPromptLength(*spec.model, chat.tokens.size(), 1, "messages")) return *error;
  spec.max_tokens_default = spec.model->limits.max_model_len;
  spec.prompts.push_back({std::move(chat.tokens), ""});
  spec.token_pieces = ReportsTokens(spec.options);
  return spec;
}

Checked<GenerationSpec> ReadCompletion(std::shared_ptr<const ServedModel> model,
                                       FieldReader& reader) {
  GenerationSpec spec = ReadShared(std::move(model), reader);
  RefuseCompletionFields(reader, spec.options.n);
  std::optional<int64_t> logprobs = reader.Int("logprobs", 0, kTopLogprobsMax);
  if (logprobs) spec.options.sampling.top_logprobs = static_cast<int>(*logprobs);
  const bool echo = reader.Bool("echo").value_or(false);
  ReadMaxTokens(reader, spec.options, echo ? 0 : 1);
  if (!reader.ok()) return *reader.error();
  Checked<std::vector<GenerationPrompt>> prompts = ReadPrompts(*spec.model, reader);
  if (auto* error = std::get_if<ApiError>(&prompts)) return *error;
  spec.prompts = std::get<std::vector<GenerationPrompt>>(std::move(prompts));
  const int answer_min = spec.options.max_tokens == 0 ? 0 : 1;
  for (GenerationPrompt& prompt : spec.prompts) {
    if (auto error = CheckPromptLength(*spec.model, prompt.tokens.size(), answer_min, "prompt"))
      return *error;
    if (!echo) prompt.echo_text.clear();
  }
  spec.echo_logprobs = echo && logprobs.has_value();
  spec.token_pieces = ReportsTokens(spec.options);
  return spec;
}

}  // namespace staffel::api
