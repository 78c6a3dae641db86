// Templates for model files that have none.
#include "text/chat_template.h"

namespace staffel {
namespace {

constexpr std::string_view kChatMl = R"({%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%})";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' -}}
{{- message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%})";

// Gemma knows no system role: its text goes before the first user message.
constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' or message.role == 'developer' -%}
    {%- set ns.system = ns.system + message.content | trim + '\n\n' -%}
  {%- else -%}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' -}}
    {%- if message.role != 'assistant' -%}
      {{- ns.system -}}
      {%- set ns.system = '' -%}
    {%- endif -%}
    {{- message.content | trim + '<end_of_turn>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<start_of_turn>model\n' -}}
{%- endif -%})";

struct Candidate {
  std::string_view source;
  std::string_view tokens[3];
};

constexpr Candidate kCandidates[] = {
    {kChatMl, {"<|im_start|>", "<|im_end|>", "<|im_end|>"}},
    {kLlama3, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {kGemma, {"<start_of_turn>", "<end_of_turn>", "<end_of_turn>"}}};

}  // namespace

Result<std::string_view> DefaultChatTemplate(
    absl::FunctionRef<bool(std::string_view)> has_control_token) {
  for (const Candidate& candidate : kCandidates) {
    bool all = true;
    for (const std::string_view token : candidate.tokens) all = all && has_control_token(token);
    if (all) return candidate.source;
  }
  return absl::FailedPreconditionError(
      "the model has no chat template, and its vocabulary fits none of the known ones: give one, "
      "or "
      "use completions in place of chat");
}

}  // namespace staffel
