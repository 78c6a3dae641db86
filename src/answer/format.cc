#include "answer/format.h"

#include <utility>

#include "answer/markers.h"
#include "base/strings.h"

namespace staffel::answer {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

CallFormat DetectCalls(std::string_view source) {
  if (Has(source, "<|channel|>") && Has(source, "<|message|>")) return CallFormat::kHarmony;
  if (Has(source, kDeepSeekCallBegin)) {
    return Has(source, "```json") ? CallFormat::kDeepSeek : CallFormat::kDeepSeek31;
  }
  if (Has(source, kMistralCalls)) {
    return Has(source, kMistralArgsMarker) ? CallFormat::kMistralArgs : CallFormat::kMistral;
  }
  if (Has(source, "<function=") && Has(source, "<parameter=")) return CallFormat::kQwenXml;
  if (Has(source, kHermesBegin)) return CallFormat::kHermes;
  if (Has(source, kGraniteCalls) || Has(source, "<|start_of_role|>")) return CallFormat::kGranite;
  if (Has(source, kPythonTag) || (Has(source, "<|start_header_id|>") && Has(source, "ipython"))) {
    return CallFormat::kLlama;
  }
  if (Has(source, "<start_of_turn>")) return CallFormat::kGemma;
  return CallFormat::kJson;
}

ReasoningFormat DetectReasoning(std::string_view source, CallFormat calls) {
  if (calls == CallFormat::kHarmony) return ReasoningFormat::kHarmony;
  if (Has(source, kThoughtProcess)) return ReasoningFormat::kGranite;
  if (Has(source, kMistralThink)) return ReasoningFormat::kMistral;
  if (Has(source, kThinkOpen) || Has(source, kThinkClose)) {
    return Has(source, "<|start_of_role|>") ? ReasoningFormat::kGranite : ReasoningFormat::kThink;
  }
  return ReasoningFormat::kNone;
}

constexpr std::pair<CallFormat, std::string_view> kCallNames[] = {
    {CallFormat::kNone, "none"},
    {CallFormat::kJson, "json"},
    {CallFormat::kHermes, "hermes"},
    {CallFormat::kQwenXml, "qwen-xml"},
    {CallFormat::kLlama, "llama"},
    {CallFormat::kMistral, "mistral"},
    {CallFormat::kMistralArgs, "mistral-args"},
    {CallFormat::kDeepSeek, "deepseek"},
    {CallFormat::kDeepSeek31, "deepseek-v3.1"},
    {CallFormat::kGemma, "gemma"},
    {CallFormat::kGranite, "granite"},
    {CallFormat::kHarmony, "harmony"}};

constexpr std::pair<ReasoningFormat, std::string_view> kReasoningNames[] = {
    {ReasoningFormat::kNone, "none"},
    {ReasoningFormat::kThink, "think"},
    {ReasoningFormat::kGranite, "granite"},
    {ReasoningFormat::kMistral, "mistral"},
    {ReasoningFormat::kHarmony, "harmony"}};

template <class Format, size_t count>
Result<Format> Find(const std::pair<Format, std::string_view> (&names)[count],
                    std::string_view name, std::string_view what) {
  std::string known;
  for (const auto& [format, text] : names) {
    if (text == name) return format;
    StrAppend(known, known.empty() ? "" : ", ", text);
  }
  return absl::InvalidArgumentError(
      StrCat("'", name, "' is no format of ", what, "; there are ", known));
}

template <class Format, size_t count>
std::string_view NameOf(const std::pair<Format, std::string_view> (&names)[count], Format format) {
  for (const auto& [known, text] : names) {
    if (known == format) return text;
  }
  return "";
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

}  // namespace

Formats DetectFormats(std::string_view source) {
  Formats formats;
  formats.calls = DetectCalls(source);
  formats.reasoning = DetectReasoning(source, formats.calls);
  return formats;
}

Result<CallFormat> ParseCallFormat(std::string_view name) {
  return Find(kCallNames, name, "tool calls");
}
Result<ReasoningFormat> ParseReasoningFormat(std::string_view name) {
  return Find(kReasoningNames, name, "reasoning");
}
std::string_view Name(CallFormat format) { return NameOf(kCallNames, format); }
std::string_view Name(ReasoningFormat format) { return NameOf(kReasoningNames, format); }

std::vector<std::string_view> Markers(const Formats& formats) {
  if (formats.calls == CallFormat::kHarmony || formats.reasoning == ReasoningFormat::kHarmony) {
    return {std::begin(kHarmonyMarkers), std::end(kHarmonyMarkers)};
  }
  std::vector<std::string_view> markers;
  switch (formats.calls) {
    case CallFormat::kNone:
    case CallFormat::kHarmony:
      break;
    case CallFormat::kLlama:
      markers = {kPythonTag};
      break;
    case CallFormat::kMistral:
    case CallFormat::kMistralArgs:
      markers = {kMistralCalls, kMistralArgsMarker, kMistralCallId};
      break;
    case CallFormat::kDeepSeek:
    case CallFormat::kDeepSeek31:
      markers = {kDeepSeekCallsBegin, kDeepSeekCallBegin, kDeepSeekSep, kDeepSeekCallEnd,
                 kDeepSeekCallsEnd};
      break;
    case CallFormat::kGranite:
      markers = {kGraniteCalls, kHermesBegin, kHermesEnd};
      break;
    case CallFormat::kJson:
    case CallFormat::kGemma:
    case CallFormat::kHermes:
    case CallFormat::kQwenXml:
      markers = {kHermesBegin, kHermesEnd};
      break;
  }
  const ReasoningMarkers reasoning = MarkersOf(formats.reasoning);
  if (!reasoning.open.empty()) markers.insert(markers.end(), {reasoning.open, reasoning.close});
  return markers;
}

ReasoningMarkers MarkersOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kThink:
    case ReasoningFormat::kGranite:
      return {kThinkOpen, kThinkClose};
    case ReasoningFormat::kMistral:
      return {kMistralThink, kMistralThinkEnd};
    case ReasoningFormat::kNone:
    case ReasoningFormat::kHarmony:
      break;
  }
  return {};
}

bool OpensReasoning(std::string_view prompt, ReasoningFormat format) {
  const ReasoningMarkers markers = MarkersOf(format);
  return !markers.open.empty() && WithoutSpaceAtEnd(prompt).ends_with(markers.open);
}

bool ClosesReasoning(std::string_view prompt, ReasoningFormat format) {
  const ReasoningMarkers markers = MarkersOf(format);
  return !markers.close.empty() && WithoutSpaceAtEnd(prompt).ends_with(markers.close);
}

}  // namespace staffel::answer
