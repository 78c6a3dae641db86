// What each format's texts become, whole and cut at every character, with markers that are control
// tokens and with markers that are plain text.
#include "answer/parser.h"

#include <gtest/gtest.h>

#include "tests/unit/answer/parse.h"

namespace staffel::answer {
namespace {

using Call = std::pair<std::string, std::string>;  // name and arguments

struct Expected {
  std::string content, reasoning;
  std::vector<Call> calls;
  bool operator==(const Expected&) const = default;
};

void PrintTo(const Expected& e, std::ostream* out) {
  *out << "content \"" << e.content << "\", reasoning \"" << e.reasoning << "\"";
  for (const auto& [name, arguments] : e.calls) *out << ", call " << name << " " << arguments;
}

Expected Simple(const Answer& answer) {
  Expected out = {answer.content, answer.reasoning, {}};
  for (const auto& call : answer.calls) out.calls.emplace_back(call.name, call.arguments);
  return out;
}

class Format {
 public:
  explicit Format(CallFormat calls, ReasoningFormat reasoning = ReasoningFormat::kNone) {
    options_.formats = {calls, reasoning};
    options_.tools = {{"f", {"text"}}, {"g", {}}};
  }
  Format& InReasoning() {
    options_.in_reasoning = true;
    return *this;
  }

  void Gives(std::string_view text, const Expected& expected) const {
    for (bool control : {false, true}) {
      const auto pieces = Pieces(text, options_.formats, control);
      const auto whole = ParseDeltas(options_, pieces, [](size_t rest) { return rest; });
      EXPECT_EQ(Simple(Gather(whole)), expected) << text << (control ? " (control)" : "");
      const auto cut = ParseDeltas(options_, pieces, [](size_t) { return 1; });
      EXPECT_EQ(cut, whole) << text << (control ? " (control)" : "");
    }
  }
  // Where markers that are control tokens and no part of a call vanish.
  void GivesAsControl(std::string_view text, const Expected& expected) const {
    const auto pieces = Pieces(text, options_.formats, true);
    EXPECT_EQ(Simple(Gather(ParseDeltas(options_, pieces, [](size_t) { return 1; }))), expected)
        << text;
  }
  void GivesAsText(std::string_view text, const Expected& expected) const {
    const auto pieces = Pieces(text, options_.formats, false);
    EXPECT_EQ(Simple(Gather(ParseDeltas(options_, pieces, [](size_t) { return 1; }))), expected)
        << text;
  }

 private:
  ParserOptions options_;
};

TEST(Parser, TextWithoutFormatsStaysAsItIs) {
  const Format none(CallFormat::kNone);
  none.Gives(" \n<think>x</think>\n<tool_call>{\"name\": \"f\"} \n",
             {" \n<think>x</think>\n<tool_call>{\"name\": \"f\"} \n", "", {}});
  none.Gives("", {});
}

TEST(Parser, Hermes) {
  const Format hermes(CallFormat::kHermes);
  hermes.Gives(
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": "
      "\"}\\\"\"}]}}\n</tool_call>",
      {"", "", {{"f", "{\"a\": [1, {\"b\": \"}\\\"\"}]}"}}});
  hermes.Gives(
      "I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
      "{\"name\": \"unknown\", \"arguments\": {\"x\": null}}\n</tool_call>\n Done.\n",
      {"I look.Done.\n", "", {{"f", "{}"}, {"unknown", "{\"x\": null}"}}});
  // Arguments before the name, as text, absent; further members.
  hermes.Gives("<tool_call>{\"arguments\":{\"a\":1},\"name\":\"f\"}</tool_call>",
               {"", "", {{"f", "{\"a\":1}"}}});
  hermes.Gives(
      "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}</tool_call>",
      {"", "", {{"f", "{\"a\": \"\xC3\xA9\"}"}}});
  hermes.Gives("<tool_call>{\"name\": \"f\"}</tool_call>", {"", "", {{"f", "{}"}}});
  hermes.Gives(
      "<tool_call>{\"id\": \"7\", \"name\": \"f\", \"parameters\": {}, \"x\": [1]}</tool_call>",
      {"", "", {{"f", "{}"}}});
  hermes.Gives(
      "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
      "{}}]</tool_call>",
      {"", "", {{"f", "{}"}, {"g", "{}"}}});
  // A closing brace or the end marker left out.
  hermes.Gives("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>x",
               {"x", "", {{"f", "{\"a\": 1}"}}});
  hermes.Gives("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
               {"", "", {{"f", "{\"a\": 1}"}}});
}

TEST(Parser, WhatIsNoCallIsContentAsItStands) {
  const Format hermes(CallFormat::kHermes);
  for (const char* text :
       {"<tool_call>", "<tool_call>\nI will call f.\n</tool_call>\n",
        "a <tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", "<tool_call>{\"name\": \"f",
        "<tool_call>{\"name\": \"f\", \"arguments\": ", "x </tool_call> y", "<tool_cal>{}",
        "< <tool <tool_", "a {\"name\": \"f\", \"arguments\": {}}",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"not json\"}</tool_call>",
        "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"name\": \"a b\", \"arguments\": {}}"}) {
    hermes.GivesAsText(text, {text, "", {}});
  }
  hermes.GivesAsText("<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
                     {"<tool_call>", "", {{"f", "{}"}}});
}

TEST(Parser, BegunCallsKeepWhatTheModelWrites) {
  const Format hermes(CallFormat::kHermes);
  hermes.Gives("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut he",
               {"", "", {{"f", "{\"a\": \"cut he"}}});
  hermes.Gives("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": <b>]}}\n</tool_call>\nwell",
               {"well", "", {{"f", "{\"a\": <b>]}}\n"}}});
  hermes.Gives("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}} no tag",
               {"no tag", "", {{"f", "{\"a\": 1}"}}});
  Format(CallFormat::kLlama)
      .Gives("{\"name\": \"f\", \"parameters\": {\"a\": ]} and so on",
             {"", "", {{"f", "{\"a\": ]} and so on"}}});
}

// Models that are asked for calls with markers may forget these.
TEST(Parser, AnAnswerThatIsNothingButCallsNeedsNoMarkers) {
  const std::string f = "{\"name\": \"f\", \"arguments\": {\"text\": \"x\"}}";
  const std::string g = "{\"name\": \"g\", \"parameters\": {}}";
  const Call call_f = {"f", "{\"text\": \"x\"}"}, call_g = {"g", "{}"};
  for (CallFormat format : {CallFormat::kHermes, CallFormat::kQwenXml, CallFormat::kMistral,
                            CallFormat::kGranite, CallFormat::kDeepSeek}) {
    const Format marked(format);
    marked.Gives(f, {"", "", {call_f}});
    marked.Gives(" \n" + f + "\n", {"", "", {call_f}});
    marked.Gives(f + "\n" + g, {"", "", {call_f, call_g}});
    marked.Gives("[" + f + ", " + g + "]", {"", "", {call_f, call_g}});
    marked.Gives("```json\n" + f + "\n```", {"", "", {call_f}});
    marked.Gives("```\n" + f + "\n```\n", {"", "", {call_f}});
    for (const std::string& text :
         {"Like this: " + f, f + " is a call.", "```json\n" + f + "\n```\nThat is a call.",
          "\n[" + f, f.substr(0, f.size() - 1), std::string("{\"name\": \"f\"}"),
          std::string("{\"name\": \"unknown\", \"arguments\": {}}"),
          std::string("{\"name\": \"f\", \"age\": 5, \"arguments\": {}}"),
          std::string("{\"name\": \"f\", \"arguments\": {\"text\": "),
          std::string("{\"name\": \"f\", \"arguments\": {\"text\": \"x\",}}"),
          std::string("[1, 2]"), std::string("{\"a\": 1}"), std::string("```json\n{\"a\": 1}\n```"),
          std::string("``"), std::string("```python\nf()\n```"), std::string(2000, ' ') + f}) {
      marked.GivesAsText(text, {text, "", {}});
    }
  }
  Format(CallFormat::kHermes, ReasoningFormat::kThink)
      .Gives("<think>hm</think>\n\n" + f, {"", "hm", {call_f}});
  Format(CallFormat::kLlama, ReasoningFormat::kThink)
      .Gives("<think>hm</think>" + g, {"", "hm", {call_g}});
}

// What cannot become such an answer any more is given out at once.
TEST(Parser, OnlyWhatMayBeNothingButCallsIsHeldBack) {
  ParserOptions options;
  options.formats.calls = CallFormat::kHermes;
  options.tools = {{"f", {}}};
  const std::pair<const char*, bool> cases[] = {{"{\"name\": \"f\", \"arguments\": {\"a\": ", true},
                                                {"```json\n{\"na", true},
                                                {"  ", true},
                                                {"{\"title\": \"x", false},
                                                {"Hello", false},
                                                {"```py", false},
                                                {"[1", false}};
  for (const auto& [text, held] : cases) {
    auto parser = MakeParser(options);
    std::vector<Delta> deltas;
    parser->Push(text, false, &deltas);
    EXPECT_EQ(deltas.empty(), held) << text;
  }
}

// Where a grammar writes the calls, nothing else is one.
TEST(Parser, HeldCallsHaveTheirPlace) {
  ParserOptions options;
  options.tools = {{"f", {}}};
  options.held_calls = true;
  const std::string f = "{\"name\": \"f\", \"arguments\": {}}";
  const auto calls = [&](CallFormat format, const std::string& text) {
    options.formats.calls = format;
    return Gather(
               ParseDeltas(options, Pieces(text, options.formats, false), [](size_t) { return 1; }))
        .calls.size();
  };
  for (CallFormat format : {CallFormat::kJson, CallFormat::kLlama, CallFormat::kGemma}) {
    EXPECT_EQ(calls(format, f), 1u);
    EXPECT_EQ(calls(format, " \n" + f), 1u);
    EXPECT_EQ(calls(format, "So:\n" + f), 0u);
    EXPECT_EQ(calls(format, "```json\n" + f + "\n```"), 0u);
  }
  EXPECT_EQ(calls(CallFormat::kHermes, f), 0u);
  EXPECT_EQ(calls(CallFormat::kHermes, "So:\n<tool_call>" + f + "</tool_call>"), 1u);
}

TEST(Parser, QwenXml) {
  const Format xml(CallFormat::kQwenXml);
  xml.Gives(
      "Let me "
      "see.\n<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n12\n</"
      "parameter>\n"
      "<parameter=list>\n[1, \"<b>\"]\n</parameter>\n<parameter=free>\ntwo\nlines "
      "\"quoted\"\n</parameter>\n</function>\n</tool_call>",
      {"Let me see.",
       "",
       {{"f",
         "{\"text\": \"12\", \"n\": 12, \"list\": [1, \"<b>\"], \"free\": \"two\\nlines "
         "\\\"quoted\\\"\"}"}}});
  // An end marker within JSON.
  xml.Gives(
      "<function=g>\n<parameter=l>\n[\"</parameter>\", 1]\n</parameter>\n<parameter=m>[\"a\"]</"
      "parameter>\n<parameter=s>\"</parameter>\"</parameter>\n</function>",
      {"", "", {{"g", "{\"l\": [\"</parameter>\", 1], \"m\": [\"a\"], \"s\": \"</parameter>\"}"}}});
  xml.Gives("<function=g>\n<parameter=l>\n[\"a</parameter>\n</function>",
            {"", "", {{"g", "{\"l\": \"[\\\"a\"}"}}});
  xml.Gives("<function=g>\n</function>", {"", "", {{"g", "{}"}}});
  xml.Gives("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
            {"", "", {{"f", "{}"}}});
  xml.Gives("<tool_call>\n<function=f>\n<parameter=text>\ncut off",
            {"", "", {{"f", "{\"text\": \"cut off"}}});
  xml.GivesAsText("<tool_call><function=f><parameter=n>1</parameter>stray</tool_call>",
                  {"stray</tool_call>", "", {{"f", "{\"n\": 1}"}}});
}

TEST(Parser, Llama) {
  const Format llama(CallFormat::kLlama);
  llama.Gives("{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}",
              {"", "", {{"f", "{\"a\": \"x\"}"}}});
  llama.Gives("<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
              {"", "", {{"f", "{}"}}});
  llama.Gives(
      "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
      {"", "", {{"f", "{}"}, {"g", "{}"}}});
  llama.Gives("I call:\n{\"name\": \"f\", \"parameters\": {}}", {"I call:", "", {{"f", "{}"}}});
  // Other tools, other objects, calls within a line: text.
  for (const char* text :
       {"{\"name\": \"unknown\", \"parameters\": {}}", "{\"name\": \"f\"}",
        "{\"name\": \"f\", \"age\": 3, \"parameters\": {}}",
        "say {\"name\": \"f\", \"parameters\": {}}", "{\"a\": 1}", "[1, 2]", "{"}) {
    llama.Gives(text, {text, "", {}});
  }
  llama.GivesAsControl("<|python_tag|>print(1)", {"print(1)", "", {}});
  llama.GivesAsText("<|python_tag|>print(1)", {"<|python_tag|>print(1)", "", {}});
}

TEST(Parser, Mistral) {
  for (CallFormat format : {CallFormat::kMistral, CallFormat::kMistralArgs}) {
    const Format mistral(format);
    mistral.Gives(
        "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}, "
        "{\"name\": \"g\", \"arguments\": {}}]",
        {"", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
    mistral.Gives("Well.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
                  {"Well.", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
    mistral.Gives("[TOOL_CALLS]f{\"a\": 1}", {"", "", {{"f", "{\"a\": 1}"}}});
    mistral.GivesAsControl("[TOOL_CALLS] none", {" none", "", {}});
  }
  EXPECT_EQ(CallId(CallFormat::kMistral, 1, 0).size(), 9u);
}

TEST(Parser, DeepSeek) {
  const std::string begin = "<｜tool▁calls▁begin｜>", call = "<｜tool▁call▁begin｜>",
                    sep = "<｜tool▁sep｜>", end = "<｜tool▁call▁end｜>",
                    close = "<｜tool▁calls▁end｜>";
  const Format v3(CallFormat::kDeepSeek, ReasoningFormat::kThink);
  v3.Gives("<think>\nHm.\n</think>\n\n" + begin + call + "function" + sep +
               "f\n```json\n{\"a\": 1}\n```" + end + "\n" + call + "function" + sep +
               "g\n```json\n{}\n```" + end + close,
           {"", "Hm.", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
  const Format v31(CallFormat::kDeepSeek31);
  v31.Gives(
      "So:" + begin + call + "f" + sep + "{\"a\": 1}" + end + call + "g" + sep + "{}" + end + close,
      {"So:", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
  v31.Gives(begin + call + "f" + sep + "{\"a\": ?" + end + close, {"", "", {{"f", "{\"a\": ?"}}});
  v31.GivesAsControl(begin + call + "f" + end + "x", {"fx", "", {}});
}

TEST(Parser, Gemma) {
  const Format gemma(CallFormat::kGemma);
  gemma.Gives("```tool_code\nf(a=1, text='it\\'s', l=[True, None, (1.5, -2)], d={'k': \"v\"})\n```",
              {"",
               "",
               {{"f",
                 "{\"a\": 1, \"text\": \"it's\", \"l\": [true, null, [1.5, -2]], \"d\": {\"k\": "
                 "\"v\"}}"}}});
  gemma.Gives("Sure.\n```tool_code\nf()\ng(x=2)\n```\nDone",
              {"Sure.Done", "", {{"f", "{}"}, {"g", "{\"x\": 2}"}}});
  gemma.Gives("[f(a=1), g()]", {"", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
  gemma.Gives("{\"name\": \"f\", \"parameters\": {\"a\": 1}}", {"", "", {{"f", "{\"a\": 1}"}}});
  gemma.Gives("```json\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```",
              {"", "", {{"f", "{\"a\": 1}"}}});
  for (const char* text :
       {"```tool_code\nprint(f(a=1))\n```", "```json\n{\"a\": 1}\n```\n", "[1, 2]",
        "```tool_code\nf(1)\n```", "```python\nf(a=1)\n```", "[f(a=1"}) {
    gemma.Gives(text, {text, "", {}});
  }
}

TEST(Parser, Granite) {
  const Format granite(CallFormat::kGranite, ReasoningFormat::kGranite);
  granite.Gives(
      "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
      "\"arguments\": {}}]",
      {"", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
  granite.Gives("<tool_call>[{\"name\": \"f\", \"arguments\": {}}]", {"", "", {{"f", "{}"}}});
  granite.Gives("Here is my thought process: It is so.\n\nHere is my response:\n\nYes.",
                {"Yes.", "It is so.", {}});
  granite.Gives("<think>So.</think>\n<response>Yes.\n</response>\n", {"Yes.", "So.", {}});
}

TEST(Parser, Json) {
  const Format json(CallFormat::kJson);
  json.Gives("{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", \"parameters\": {}}",
             {"", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}});
  json.Gives("[{\"name\": \"f\", \"arguments\": {}}]", {"", "", {{"f", "{}"}}});
  json.Gives("```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n", {"", "", {{"f", "{}"}}});
  json.Gives("<tool_call>{\"name\": \"x\", \"arguments\": {}}</tool_call>",
             {"", "", {{"x", "{}"}}});
  json.Gives("[{\"name\": \"f\", \"arguments\": {}}, 5]", {", 5]", "", {{"f", "{}"}}});
  json.Gives("{\"name\": \"Ann\", \"age\": 5}", {"{\"name\": \"Ann\", \"age\": 5}", "", {}});
}

TEST(Parser, Think) {
  const Format think(CallFormat::kHermes, ReasoningFormat::kThink);
  think.Gives("<think>\nHm, <b>.\n\nSo.\n</think>\n\nYes.\n", {"Yes.\n", "Hm, <b>.\n\nSo.", {}});
  think.Gives("\n<think>\n\n</think>\n\nYes", {"Yes", "", {}});
  think.Gives("<think>cut", {"", "cut", {}});
  think.GivesAsText(
      "<think>a <tool_call>{\"name\": \"f\", \"arguments\": "
      "{}}</tool_call></think><tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
      {"", "a <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", {{"g", "{}"}}});
  think.GivesAsText("Yes <think>no</think>", {"Yes <think>no</think>", "", {}});
  think.GivesAsText(" <thin", {" <thin", "", {}});
  const Format opened = Format(CallFormat::kNone, ReasoningFormat::kThink).InReasoning();
  opened.GivesAsText("Hm.\n</think>\n\nYes </think>", {"Yes </think>", "Hm.", {}});
  opened.Gives("<think>\nHm.</think>Yes", {"Yes", "Hm.", {}});
  Format(CallFormat::kNone, ReasoningFormat::kMistral)
      .Gives("[THINK]Hm.[/THINK]Yes", {"Yes", "Hm.", {}});
}

// Where the markers are control tokens, text that spells one ends nothing.
TEST(Parser, HarmonyMarkersAsTextAreText) {
  ParserOptions options;
  options.formats = {CallFormat::kHarmony, ReasoningFormat::kHarmony};
  options.tools = {{"f", {}}};
  const std::vector<TextPiece> pieces = {{"<|channel|>", true},
                                         {"commentary to=functions.f ", false},
                                         {"<|message|>", true},
                                         {"{\"a\": \"<|end|><|call|>\"}", false},
                                         {"<|call|>", true}};
  for (size_t size : {size_t{1}, size_t{100}}) {
    EXPECT_EQ(Simple(Gather(ParseDeltas(options, pieces, [&](size_t) { return size; }))),
              (Expected{"", "", {{"f", "{\"a\": \"<|end|><|call|>\"}"}}}));
  }
}

TEST(Parser, Harmony) {
  const Format harmony(CallFormat::kHarmony, ReasoningFormat::kHarmony);
  harmony.Gives(
      "<|channel|>analysis<|message|>Hm. 1 < "
      "2<|end|><|start|>assistant<|channel|>final<|message|>Yes.\n",
      {"Yes.\n", "Hm. 1 < 2", {}});
  harmony.Gives(
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
      {"", "Hm.", {{"f", "{\"a\": 1}"}}});
  harmony.Gives("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\":",
                {"", "", {{"f", "{\"a\":"}}});
  harmony.Gives(" to=functions.f<|channel|>commentary<|message|><|call|>", {"", "", {{"f", "{}"}}});
  harmony.Gives(
      "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.g<|message|>{}<|end|>"
      "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
      {"I look.", "", {{"g", "{}"}, {"f", "{}"}}});
  harmony.Gives("Plain text.", {"Plain text.", "", {}});
  harmony.GivesAsControl("<|channel|>final", {"final", "", {}});
  Format(CallFormat::kNone, ReasoningFormat::kHarmony)
      .Gives("<|channel|>commentary to=functions.f<|message|>{}<|call|>", {"{}", "", {}});
}

TEST(Parser, ControlTokensAreShownOnRequest) {
  ParserOptions options;
  options.formats.calls = CallFormat::kLlama;
  options.show_control = true;
  const auto pieces = Pieces("<|python_tag|>print(1)", options.formats, true);
  EXPECT_EQ(Gather(ParseDeltas(options, pieces, [](size_t) { return 1; })).content,
            "<|python_tag|>print(1)");
}

TEST(Parser, ArgumentsComeAsTheyAreWritten) {
  ParserOptions options;
  options.formats.calls = CallFormat::kHermes;
  auto parser = MakeParser(options);
  std::vector<Delta> deltas;
  parser->Push("<tool_call>{\"name\": \"f\", \"arguments\": {\"a", false, &deltas);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].kind, Delta::Kind::kCallBegin);
  EXPECT_EQ(deltas[0].name, "f");
  EXPECT_EQ(deltas[0].id, CallId(CallFormat::kHermes, 0, 0));
  EXPECT_EQ(deltas[1].text, "{\"a");
  deltas.clear();
  parser->Push("\": 1", false, &deltas);
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].text, "\": 1");
}

TEST(Parser, IdsDiffer) {
  EXPECT_NE(CallId(CallFormat::kHermes, 1, 0), CallId(CallFormat::kHermes, 1, 1));
  EXPECT_NE(CallId(CallFormat::kHermes, 1, 0), CallId(CallFormat::kHermes, 2, 0));
  EXPECT_EQ(CallId(CallFormat::kHermes, 1, 0).size(), 29u);
}

}  // namespace
}  // namespace staffel::answer
