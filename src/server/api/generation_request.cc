#include "server/api/generation_request.h"

#include <algorithm>
#include <random>
#include <utility>

#include "answer/format.h"
#include "base/strings.h"
#include "server/api/call_grammar.h"
#include "server/api/output_grammar.h"
#include "server/api/prompts.h"
#include "text/fill_in_middle.h"

namespace staffel::api {
namespace {

// best_of answers are drawn and the n likeliest shown.
void ReadBestOf(FieldReader& reader, GenerationSpec& spec) {
  GenerationOptions& options = spec.options;
  const auto best_of = reader.Int("best_of", 1, kChoicesMax);
  if (!best_of || *best_of == options.n) return;
  if (*best_of < options.n) return reader.Fail("best_of", "'best_of' must be at least 'n'");
  if (options.stream) {
    return reader.Fail("best_of",
                       "'best_of' above 'n' cannot be streamed: which answers are best "
                       "is known at their end");
  }
  spec.best_of = std::exchange(options.n, static_cast<int>(*best_of));
  options.sampling.top_logprobs = std::max(options.sampling.top_logprobs, 0);
}

// Text behind the gap that the answer fills.
void ReadSuffix(FieldReader& reader, bool echo, GenerationSpec& spec) {
  const auto suffix = reader.String("suffix");
  if (!suffix || suffix->empty() || !reader.ok()) return;
  if (echo) return reader.Fail("suffix", "'suffix' and 'echo' exclude each other");
  for (GenerationPrompt& prompt : spec.prompts) {
    // Text is encoded anew: what a client wants completed is plain text.
    auto framed = prompt.is_text ? FimPrompt(*spec.model->tokenizer, prompt.echo_text, *suffix)
                                 : FimPrompt(*spec.model->tokenizer, prompt.tokens, *suffix);
    if (!framed.ok()) {
      return reader.Fail("suffix", StrCat("'suffix' cannot be honoured: ",
                                          std::string(framed.status().message())));
    }
    prompt.tokens = *std::move(framed);
  }
  const std::vector<TokenId> ends = FimEndTokens(spec.model->tokenizer->spec());
  if (!spec.options.ignore_eos)
    spec.options.stop_token_ids.insert(spec.options.stop_token_ids.end(), ends.begin(), ends.end());
}

// The last tokens of a prompt that is too long, where the client wants that.
void Truncate(const GenerationSpec& spec, int answer_min, std::vector<TokenId>& tokens) {
  if (!spec.options.prompt_tokens_max) return;
  const EngineLimits& limits = spec.model->limits;
  int64_t max = *spec.options.prompt_tokens_max;
  if (max < 0) max = std::min(limits.max_model_len - answer_min, limits.kv_capacity_tokens);
  if (static_cast<int64_t>(tokens.size()) > max) tokens.erase(tokens.begin(), tokens.end() - max);
}

void ReadChatLogprobs(FieldReader& reader, GenerationOptions& options) {
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  std::optional<int64_t> top = reader.Int("top_logprobs", 0, kTopLogprobsMax);
  if (top && *top > 0 && !logprobs) {
    reader.Fail("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true");
  }
  options.logprobs = logprobs;
  if (logprobs) options.sampling.top_logprobs = static_cast<int>(top.value_or(0));
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
  return spec;
}

uint64_t RandomNumber() {
  thread_local std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// How the answer is told apart.
answer::ParserOptions ParserOf(const ServedModel& model, const RenderedChat& chat) {
  answer::ParserOptions parser;
  parser.formats = model.formats;
  parser.in_reasoning = answer::OpensReasoning(chat.prompt.text, parser.formats.reasoning);
  if (answer::ClosesReasoning(chat.prompt.text, parser.formats.reasoning))
    parser.formats.reasoning = answer::ReasoningFormat::kNone;
  if (chat.tool_choice.tools.is_null()) {
    parser.formats.calls = answer::CallFormat::kNone;
  } else {
    parser.tools = SignaturesOf(chat.tool_choice.tools);
  }
  parser.id_seed = RandomNumber();
  return parser;
}

bool IsJson(const grammar::GrammarSpec& spec) {
  return spec.kind == grammar::GrammarSpec::Kind::kJsonSchema ||
         spec.kind == grammar::GrammarSpec::Kind::kJsonObject;
}

// What the answer is held to: calls where they are demanded or strict, else the wished format,
// beside which calls may stand if it is JSON. No value: nothing.
Checked<std::optional<OutputWish>> Held(const ToolChoice& choice, answer::CallFormat format,
                                        std::optional<OutputWish> wish,
                                        const Tokenizer& tokenizer) {
  const bool json = wish && IsJson(wish->spec);
  if (choice.required && wish && !json) {
    return Invalid("tool_choice", StrCat("'tool_choice' demands a call, and '", wish->field,
                                         "' a format of the answer; send one of them"));
  }
  const bool strict = HasStrictTool(choice.tools);
  const bool beside = json && !choice.tools.is_null() && format != answer::CallFormat::kNone;
  const bool calls = choice.required || (wish ? beside : strict);
  if (!calls) return wish;
  const std::string field = choice.required ? "tool_choice" : "tools";
  auto spec = CallGrammar(choice, format, tokenizer);
  if (!spec.ok())
    return Invalid(field, StrCat("'", field, "': ", std::string(spec.status().message())));
  if (beside && !choice.required) {
    const bool any = wish->spec.kind == grammar::GrammarSpec::Kind::kJsonObject;
    spec->source = any ? R"({"type":"object"})" : wish->spec.source;
  }
  return std::optional<OutputWish>(OutputWish{*std::move(spec), field});
}

AnswerRules RulesOf(const RenderedChat& chat, const answer::ParserOptions& parser) {
  AnswerRules rules;
  rules.single_call = !chat.tool_choice.parallel;
  if (!chat.reasoning.include) {
    rules.reasoning = AnswerRules::Reasoning::kHidden;
  } else if (!chat.reasoning.separate) {
    rules.reasoning = AnswerRules::Reasoning::kAsContent;
    const answer::ReasoningMarkers markers = answer::MarkersOf(parser.formats.reasoning);
    if (!parser.in_reasoning) rules.reasoning_open = markers.open;
    rules.reasoning_close = StrCat(markers.close, "\n\n");
  }
  return rules;
}

std::optional<ApiError> ReadAnswerForm(const RenderedChat& chat, std::optional<OutputWish> wish,
                                       GenerationSpec& spec) {
  answer::ParserOptions parser = ParserOf(*spec.model, chat);
  const std::optional<int> budget = chat.reasoning.tokens_max;
  const bool reasons = parser.formats.reasoning != answer::ReasoningFormat::kNone;
  auto held = Held(chat.tool_choice, parser.formats.calls, std::move(wish), *spec.model->tokenizer);
  if (auto* error = std::get_if<ApiError>(&held)) return std::move(*error);
  auto& hold = std::get<std::optional<OutputWish>>(held);
  if (!hold && budget && reasons) {
    hold.emplace();
    hold->spec.kind = grammar::GrammarSpec::Kind::kText;
    hold->field = "thinking_token_budget";
  }
  if (hold) {
    if (budget) hold->spec.reasoning_tokens_max = *budget;
    parser.held_calls = hold->spec.kind == grammar::GrammarSpec::Kind::kTags;
    AddBeginning(parser, *spec.model->tokenizer, &hold->spec);
    if (auto error = SetGrammar(std::move(hold->spec), spec.model->grammars.get(), hold->field,
                                spec.options))
      return error;
  }
  spec.rules = RulesOf(chat, parser);
  if (parser.formats.calls != answer::CallFormat::kNone ||
      parser.formats.reasoning != answer::ReasoningFormat::kNone) {
    spec.parser = std::move(parser);
  }
  return std::nullopt;
}

bool ReportsTokens(const GenerationOptions& options) {
  return options.logprobs || options.return_token_ids;
}

}  // namespace

Checked<GenerationSpec> ReadChat(std::shared_ptr<const ServedModel> model, FieldReader& reader) {
  GenerationSpec spec = ReadShared(std::move(model), reader);
  ReadChatLogprobs(reader, spec.options);
  ReadMaxTokens(reader, spec.options, 1);
  std::optional<OutputWish> wish = ReadOutputWish(reader);
  if (!reader.ok()) return *reader.error();
  Checked<RenderedChat> rendered = RenderChat(*spec.model, reader);
  if (auto* error = std::get_if<ApiError>(&rendered)) return *error;
  RenderedChat& chat = std::get<RenderedChat>(rendered);
  if (auto error = ReadAnswerForm(chat, std::move(wish), spec)) return *error;
  Truncate(spec, 1, chat.tokens);
  if (auto error = CheckPromptLength(*spec.model, chat.tokens.size(), 1, "messages")) return *error;
  spec.max_tokens_default = spec.model->limits.max_model_len;
  spec.prompts.push_back({std::move(chat.tokens), "", false});
  spec.prompt_logprobs = spec.options.prompt_logprobs.value_or(-1);
  spec.token_pieces = ReportsTokens(spec.options);
  return spec;
}

Checked<GenerationSpec> ReadCompletion(std::shared_ptr<const ServedModel> model,
                                       FieldReader& reader) {
  GenerationSpec spec = ReadShared(std::move(model), reader);
  std::optional<int64_t> logprobs = reader.Int("logprobs", 0, kTopLogprobsMax);
  spec.options.logprobs = logprobs.has_value();
  if (logprobs) spec.options.sampling.top_logprobs = static_cast<int>(*logprobs);
  ReadBestOf(reader, spec);
  const bool echo = reader.Bool("echo").value_or(false);
  ReadMaxTokens(reader, spec.options, echo ? 0 : 1);
  std::optional<OutputWish> wish = ReadOutputWish(reader);
  if (!reader.ok()) return *reader.error();
  if (wish) {
    if (auto error = SetGrammar(std::move(wish->spec), spec.model->grammars.get(), wish->field,
                                spec.options))
      return *error;
  }
  Checked<std::vector<GenerationPrompt>> prompts =
      ReadPrompts(*spec.model, {.add_special = spec.options.add_special_tokens}, reader);
  if (auto* error = std::get_if<ApiError>(&prompts)) return *error;
  spec.prompts = std::get<std::vector<GenerationPrompt>>(std::move(prompts));
  ReadSuffix(reader, echo, spec);
  if (!reader.ok()) return *reader.error();
  const int answer_min = spec.options.max_tokens == 0 ? 0 : 1;
  for (GenerationPrompt& prompt : spec.prompts) {
    Truncate(spec, answer_min, prompt.tokens);
    if (auto error = CheckPromptLength(*spec.model, prompt.tokens.size(), answer_min, "prompt"))
      return *error;
    if (!echo) prompt.echo_text.clear();
  }
  if (echo && logprobs) spec.prompt_logprobs = static_cast<int>(*logprobs);
  spec.prompt_logprobs = std::max(spec.prompt_logprobs, spec.options.prompt_logprobs.value_or(-1));
  spec.token_pieces = ReportsTokens(spec.options);
  return spec;
}

}  // namespace staffel::api
