// The fixed texts of the formats, each once.
#pragma once

#include <string_view>

namespace staffel::answer {

inline constexpr std::string_view kHermesBegin = "<tool_call>";
inline constexpr std::string_view kHermesEnd = "</tool_call>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kGraniteCalls = "<|tool_call|>";
inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";
inline constexpr std::string_view kMistralArgsMarker = "[ARGS]";
inline constexpr std::string_view kMistralCallId = "[CALL_ID]";
// The bars are U+FF5C, the low lines U+2581.
inline constexpr std::string_view kDeepSeekCallsBegin = "<｜tool▁calls▁begin｜>";
inline constexpr std::string_view kDeepSeekCallBegin = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kDeepSeekSep = "<｜tool▁sep｜>";
inline constexpr std::string_view kDeepSeekCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";

inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
inline constexpr std::string_view kMistralThink = "[THINK]";
inline constexpr std::string_view kMistralThinkEnd = "[/THINK]";
inline constexpr std::string_view kThoughtProcess = "Here is my thought process:";
inline constexpr std::string_view kThoughtProcessShort = "Here's my thought process:";
inline constexpr std::string_view kResponse = "Here is my response:";
inline constexpr std::string_view kResponseShort = "Here's my response:";
inline constexpr std::string_view kResponseOpen = "<response>";
inline constexpr std::string_view kResponseClose = "</response>";

inline constexpr std::string_view kHarmonyStart = "<|start|>";
inline constexpr std::string_view kHarmonyChannel = "<|channel|>";
inline constexpr std::string_view kHarmonyConstrain = "<|constrain|>";
inline constexpr std::string_view kHarmonyMessage = "<|message|>";
inline constexpr std::string_view kHarmonyEnd = "<|end|>";
inline constexpr std::string_view kHarmonyCall = "<|call|>";
inline constexpr std::string_view kHarmonyReturn = "<|return|>";
inline constexpr std::string_view kHarmonyMarkers[] = {
    kHarmonyStart, kHarmonyChannel, kHarmonyConstrain, kHarmonyMessage,
    kHarmonyEnd,   kHarmonyCall,    kHarmonyReturn};

}  // namespace staffel::answer
