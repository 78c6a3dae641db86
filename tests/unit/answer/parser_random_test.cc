// Random answers: those that follow their format give back what they were made of, and whatever
// else a model may write is covered, in order and independently of how it was cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "answer/cursor.h"
#include "tests/support/seed.h"
#include "tests/unit/answer/parse.h"

namespace staffel::answer {
namespace {

using Rng = std::mt19937_64;
using Kind = Delta::Kind;

constexpr CallFormat kCallFormats[] = {
    CallFormat::kNone,       CallFormat::kJson,    CallFormat::kHermes,      CallFormat::kQwenXml,
    CallFormat::kLlama,      CallFormat::kMistral, CallFormat::kMistralArgs, CallFormat::kDeepSeek,
    CallFormat::kDeepSeek31, CallFormat::kGemma,   CallFormat::kGranite,     CallFormat::kHarmony};
constexpr ReasoningFormat kReasoningFormats[] = {ReasoningFormat::kNone, ReasoningFormat::kThink,
                                                 ReasoningFormat::kGranite,
                                                 ReasoningFormat::kMistral};

// What models write, whole and in pieces.
constexpr std::string_view kSnippets[] = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=",
                                          "f>",
                                          "<function=f>",
                                          "<parameter=text>",
                                          "</parameter>",
                                          "</function>",
                                          "<|python_tag|>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "[CALL_ID]",
                                          "<｜tool▁calls▁begin｜>",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          "<｜tool▁call▁end｜>",
                                          "<｜tool▁calls▁end｜>",
                                          "<|tool_call|>",
                                          "<think>",
                                          "</think>",
                                          "[THINK]",
                                          "[/THINK]",
                                          "Here is my thought process:",
                                          "Here is my response:",
                                          "<response>",
                                          "</response>",
                                          "<|start|>",
                                          "assistant",
                                          "<|channel|>",
                                          "analysis",
                                          "commentary to=functions.f",
                                          "final",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|call|>",
                                          "```",
                                          "```json",
                                          "```tool_code",
                                          "json",
                                          "{\"name\": \"f\", \"arguments\": {",
                                          "{\"name\": \"g\", \"parameters\": ",
                                          "{\"name\":",
                                          "\"f\"",
                                          "\"arguments\":",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          ";",
                                          "(",
                                          ")",
                                          "=",
                                          "\"",
                                          "'",
                                          "\\",
                                          "\n",
                                          " ",
                                          "\n\n",
                                          "\t",
                                          "f",
                                          "a",
                                          "1",
                                          "true",
                                          "<",
                                          "|",
                                          "é",
                                          "😀",
                                          "text",
                                          "f(a=1)",
                                          "f(",
                                          "{}",
                                          "}}",
                                          "}]",
                                          "[f(x='y')]",
                                          "null",
                                          "\\u00e9"};

template <class T>
const T& Any(Rng& rng, const T* items, size_t count) {
  return items[rng() % count];
}
template <class T, size_t count>
const T& Any(Rng& rng, const T (&items)[count]) {
  return Any(rng, items, count);
}

std::string Soup(Rng& rng) {
  std::string out;
  for (uint64_t n = rng() % 30; n > 0; --n) {
    std::string_view snippet = Any(rng, kSnippets);
    if (rng() % 12 == 0) {
      size_t size = rng() % (snippet.size() + 1);
      while (size < snippet.size() && (snippet[size] & 0xC0) == 0x80) ++size;  // whole characters
      snippet = snippet.substr(0, size);
    }
    out += snippet;
  }
  return out;
}

void ExpectOrder(const std::vector<Delta>& deltas) {
  int calls = 0;
  bool open = false;
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Kind::kContent:
      case Kind::kReasoning:
        EXPECT_FALSE(open);
        EXPECT_FALSE(delta.text.empty());
        break;
      case Kind::kCallBegin:
        EXPECT_FALSE(open);
        EXPECT_EQ(delta.call, calls);
        EXPECT_FALSE(delta.name.empty() || delta.id.empty());
        open = true;
        break;
      case Kind::kCallArguments:
        EXPECT_TRUE(open && delta.call == calls);
        break;
      case Kind::kCallEnd:
        EXPECT_TRUE(open && delta.call == calls);
        open = false;
        ++calls;
        break;
    }
  }
  EXPECT_FALSE(open);
}

// `part` can be had from `text` by leaving characters out.
bool IsPartOf(std::string_view part, std::string_view text) {
  size_t i = 0;
  for (char c : text) i += i < part.size() && part[i] == c;
  return i == part.size();
}

TEST(ParserRandom, AnythingIsCoveredHoweverItIsCut) {
  Rng rng(TestSeed());
  int with_calls = 0, with_reasoning = 0;
  for (int round = 0; round < 60'000; ++round) {
    ParserOptions options;
    options.formats.calls = Any(rng, kCallFormats);
    options.formats.reasoning = options.formats.calls == CallFormat::kHarmony
                                    ? ReasoningFormat::kHarmony
                                    : Any(rng, kReasoningFormats);
    options.in_reasoning = rng() % 8 == 0;
    options.show_control = rng() % 4 == 0;
    options.held_calls = rng() % 4 == 0;
    options.tools = {{"f", {"text"}}, {"g", {}}};
    const std::string text = Soup(rng);
    SCOPED_TRACE(text + " as " + std::string(Name(options.formats.calls)) + ", round " +
                 std::to_string(round));
    const bool control = rng() % 2 == 0;
    const auto pieces = Pieces(text, options.formats, control);
    const auto whole = ParseDeltas(options, pieces, [](size_t rest) { return rest; });
    ASSERT_EQ(ParseDeltas(options, pieces, [](size_t) { return 1; }), whole);
    ASSERT_EQ(ParseDeltas(options, pieces, [&](size_t) { return 1 + rng() % 9; }), whole);
    ExpectOrder(whole);
    std::string shown;
    for (const Delta& delta : whole) {
      if (delta.kind == Kind::kContent || delta.kind == Kind::kReasoning) shown += delta.text;
    }
    ASSERT_TRUE(IsPartOf(shown, text)) << shown;
    const Answer answer = Gather(whole);
    with_calls += !answer.calls.empty();
    with_reasoning += !answer.reasoning.empty();
    // Without markers that took effect nothing is left out.
    const bool plain = answer.calls.empty() && answer.reasoning.empty() &&
                       (!control || options.show_control) &&
                       options.formats.calls != CallFormat::kHarmony;
    bool has_reasoning_marker = options.in_reasoning;
    const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    for (std::string_view open : {"<think>", "[THINK]", "Here is my thought process:"}) {
      has_reasoning_marker = has_reasoning_marker || text.substr(first).starts_with(open);
    }
    if (plain && !has_reasoning_marker) {
      ASSERT_EQ(answer.content, text);
    }
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  EXPECT_GT(with_calls, 1000);
  EXPECT_GT(with_reasoning, 1000);
}

// --- answers that follow their format ---

std::string RandomText(Rng& rng) {
  static constexpr std::string_view kWords[] = {"sun",  "é",   "😀",  "1 < 2", "a,b", "\"quoted\"",
                                                "x\ny", "(f)", "to", "|",     ">"};
  std::string out = "T";
  for (uint64_t n = rng() % 6; n > 0; --n) out += " " + std::string(Any(rng, kWords));
  return out + ".";
}

std::string RandomJson(Rng& rng, int depth) {
  switch (rng() % (depth > 2 ? 4 : 6)) {
    case 0:
      return std::to_string(static_cast<int64_t>(rng() % 2000) - 1000);
    case 1:
      return rng() % 2 == 0 ? "true" : "null";
    case 2:
    case 3: {
      static constexpr std::string_view kTexts[] = {
          "", "</tool_call>", "{\"}", "\\", "line\nline", "é😀", "```", "<|call", "]]", "plain"};
      std::string out = "\"";
      AppendJsonEscaped(out, Any(rng, kTexts));
      return out + "\"";
    }
    case 4: {
      std::string out = "[";
      for (uint64_t n = rng() % 3; n > 0; --n)
        out += RandomJson(rng, depth + 1) + (n > 1 ? ", " : "");
      return out + "]";
    }
    default: {
      std::string out = "{";
      for (uint64_t n = rng() % 3; n > 0; --n)
        out +=
            "\"k" + std::to_string(n) + "\": " + RandomJson(rng, depth + 1) + (n > 1 ? ", " : "");
      return out + "}";
    }
  }
}

std::string RandomArguments(Rng& rng) {
  std::string out = "{";
  for (uint64_t n = rng() % 4; n > 0; --n)
    out += "\"p" + std::to_string(n) + "\": " + RandomJson(rng, 0) + (n > 1 ? ", " : "");
  return out + "}";
}

// `content`, then the calls, as a model of the family writes them.
std::string Written(CallFormat format, const std::string& content, const std::vector<Call>& calls) {
  std::string out = content;
  const auto object = [](const Call& c, const char* key) {
    return "{\"name\": \"" + c.name + "\", \"" + key + "\": " + c.arguments + "}";
  };
  const auto list = [&](const char* key) {
    std::string text = "[";
    for (size_t i = 0; i < calls.size(); ++i) text += (i > 0 ? ", " : "") + object(calls[i], key);
    return text + "]";
  };
  switch (format) {
    case CallFormat::kHermes:
    case CallFormat::kQwenXml:
      for (const Call& call : calls)
        out += "\n<tool_call>\n" + object(call, "arguments") + "\n</tool_call>";
      break;
    case CallFormat::kLlama:
      for (size_t i = 0; i < calls.size(); ++i)
        out += (i > 0 ? "; " : "\n<|python_tag|>") + object(calls[i], "parameters");
      break;
    case CallFormat::kMistral:
      if (!calls.empty()) out += "[TOOL_CALLS] " + list("arguments");
      break;
    case CallFormat::kMistralArgs:
      for (const Call& call : calls) out += "[TOOL_CALLS]" + call.name + "[ARGS]" + call.arguments;
      break;
    case CallFormat::kDeepSeek:
    case CallFormat::kDeepSeek31:
      if (calls.empty()) break;
      out += "<｜tool▁calls▁begin｜>";
      for (const Call& call : calls) {
        out += format == CallFormat::kDeepSeek31
                   ? "<｜tool▁call▁begin｜>" + call.name + "<｜tool▁sep｜>" + call.arguments +
                         "<｜tool▁call▁end｜>"
                   : "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + call.name + "\n```json\n" +
                         call.arguments + "\n```<｜tool▁call▁end｜>\n";
      }
      out += "<｜tool▁calls▁end｜>";
      break;
    case CallFormat::kGranite:
      if (!calls.empty()) out += "<|tool_call|>" + list("arguments");
      break;
    case CallFormat::kGemma:
    case CallFormat::kJson:
      if (!calls.empty()) out += "\n```json\n" + list("parameters") + "\n```";
      break;
    default:
      break;
  }
  return out;
}

TEST(ParserRandom, AnswersInTheirFormatComeBackExactly) {
  Rng rng(TestSeed());
  for (int round = 0; round < 20'000; ++round) {
    ParserOptions options;
    options.formats.calls = kCallFormats[1 + rng() % (std::size(kCallFormats) - 2)];
    options.formats.reasoning = rng() % 2 == 0 ? ReasoningFormat::kThink : ReasoningFormat::kNone;
    options.id_seed = round;
    Answer expected;
    if (rng() % 2 == 0) expected.content = RandomText(rng);
    for (uint64_t n = rng() % 4; n > 0; --n) {
      expected.calls.push_back(
          {CallId(options.formats.calls, round, static_cast<int>(expected.calls.size())),
           "tool_" + std::to_string(rng() % 3), RandomArguments(rng)});
    }
    std::string text = Written(options.formats.calls, expected.content, expected.calls);
    if (options.formats.reasoning == ReasoningFormat::kThink) {
      expected.reasoning = RandomText(rng);
      options.in_reasoning = rng() % 2 == 0;
      text =
          (options.in_reasoning ? "" : "<think>\n") + expected.reasoning + "\n</think>\n\n" + text;
    }
    const auto pieces = Pieces(text, options.formats, false);
    ASSERT_EQ(Gather(ParseDeltas(options, pieces, [&](size_t) { return 1 + rng() % 12; })),
              expected)
        << Name(options.formats.calls) << ", round " << round << ": " << text;
  }
}

}  // namespace
}  // namespace staffel::answer
