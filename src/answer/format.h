// How a family of models writes tool calls and reasoning into its text, and which family a chat
// template belongs to. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "staffel/status.h"

namespace staffel::answer {

enum class CallFormat : uint8_t {
  kNone,     // text is never a call
  kJson,     // {"name": …, "arguments": …} at the beginning of a line, or in a ```json fence
  kHermes,   // <tool_call>{…}</tool_call>: Qwen, Hermes and many more
  kQwenXml,  // <tool_call><function=…><parameter=…>…: Qwen3-Coder
  kLlama,    // {"name": …, "parameters": …}, also behind <|python_tag|>
  kMistral,  // [TOOL_CALLS] [{…}, {…}]
  kMistralArgs,  // [TOOL_CALLS]name[ARGS]{…}
  kDeepSeek,     // <｜tool▁calls▁begin｜>…name, JSON in a fence: V3, R1
  kDeepSeek31,   // <｜tool▁calls▁begin｜>…name<｜tool▁sep｜>{…}: V3.1
  kGemma,        // ```tool_code f(a=1) ```, or JSON as for kJson
  kGranite,      // <|tool_call|>[{…}, {…}]
  kHarmony,      // <|channel|>commentary to=functions.f<|message|>{…}: GPT-OSS
};

enum class ReasoningFormat : uint8_t {
  kNone,
  kThink,    // <think>…</think>
  kGranite,  // "Here is my thought process: … Here is my response: …", or <think>
  kMistral,  // [THINK]…[/THINK]
  kHarmony,  // the analysis channel
};

struct Formats {
  CallFormat calls = CallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
};

// By what the source of the template names; a template that names no format has kJson and kNone.
Formats DetectFormats(std::string_view template_source);

// Names as options have them: "none", "json", "hermes", "qwen-xml", "llama", "mistral",
// "mistral-args", "deepseek", "deepseek-v3.1", "gemma", "granite", "harmony"; and "none", "think",
// "granite", "mistral", "harmony". InvalidArgument, with the list, for other names.
Result<CallFormat> ParseCallFormat(std::string_view name);
Result<ReasoningFormat> ParseReasoningFormat(std::string_view name);
std::string_view Name(CallFormat format);
std::string_view Name(ReasoningFormat format);

// Markers that may be control tokens of a vocabulary: where they are, the parser must be told them
// though they are no text for the client. All others are skipped.
std::vector<std::string_view> Markers(const Formats& formats);

// What opens and closes reasoning in text that the model writes now (kThink, kMistral, kGranite's
// newer form); empty for others.
struct ReasoningMarkers {
  std::string_view open, close;
};
ReasoningMarkers MarkersOf(ReasoningFormat format);

// Whether a prompt ends within reasoning: its last text but white space opens it.
bool OpensReasoning(std::string_view prompt, ReasoningFormat format);
// Whether a prompt ends with reasoning that is closed, so that the answer has none.
bool ClosesReasoning(std::string_view prompt, ReasoningFormat format);

}  // namespace staffel::answer
