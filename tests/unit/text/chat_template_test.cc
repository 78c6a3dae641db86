#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "tests/unit/text/models.h"

namespace staffel {
namespace {

using Json = nlohmann::ordered_json;

const Json kHi = Json::parse(R"([{"role": "user", "content": "hi"}])");

std::unique_ptr<ChatTemplate> Parse(std::string_view source, SpecialTokens tokens = {}) {
  auto chat = ChatTemplate::Parse(source, std::move(tokens));
  EXPECT_TRUE(chat.ok()) << chat.status();
  return chat.ok() ? *std::move(chat) : nullptr;
}

std::string Render(const ChatTemplate& chat, const Json& messages,
                   const ChatOptions& options = {}) {
  const auto prompt = chat.Render(messages, options);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return prompt.ok() ? prompt->text : "";
}

Status Failure(const ChatTemplate& chat, const Json& messages, const ChatOptions& options = {}) {
  const auto prompt = chat.Render(messages, options);
  EXPECT_FALSE(prompt.ok()) << prompt->text;
  return prompt.status();
}

// The prompt with the caller's bytes in double angle quotes.
std::string Marked(const PromptText& prompt) {
  std::string out;
  size_t at = 0;
  for (const ByteRange& range : prompt.content) {
    out += prompt.text.substr(at, range.begin - at);
    out += "«" + prompt.text.substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return out + prompt.text.substr(at);
}

std::string RenderMarked(const ChatTemplate& chat, const Json& messages,
                         const ChatOptions& options = {}) {
  const auto prompt = chat.Render(messages, options);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return prompt.ok() ? Marked(*prompt) : "";
}

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

ChatOptions Continue() {
  ChatOptions options;
  options.add_generation_prompt = false;
  options.continue_final_message = true;
  return options;
}

// --- golden texts of real models ---

class ChatTemplateGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ChatTemplateGolden, EqualsReference) {
  const auto [model, file] = GetParam();
  if (!HasModel(model)) FAIL() << ModelPath(model) << " is missing";
  const auto opened = OpenModelFile(ModelPath(model));
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_TRUE((*opened)->chat_template().has_value());
  const auto chat = Parse(*(*opened)->chat_template());
  ASSERT_NE(chat, nullptr);
  std::ifstream in(std::string(STAFFEL_TEST_DATA "/golden/") + file);
  const Json golden = Json::parse(in)["chat_template"];
  ASSERT_GE(golden.size(), 6u);
  for (const Json& entry : golden) {
    ChatOptions options;
    options.add_generation_prompt = entry["add_generation_prompt"].get<bool>();
    if (entry.contains("tools")) options.tools = &entry["tools"];
    EXPECT_EQ(Render(*chat, entry["messages"], options), entry["text"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChatTemplateGolden,
                         testing::Values(std::pair{kSmolLm2, "smollm2.json"},
                                         std::pair{kQwen25, "qwen2.5.json"}),
                         [](const auto& info) { return info.index == 0 ? "SmolLm2" : "Qwen25"; });

// --- what comes from whom ---

TEST(ChatTemplateTrust, ContentIsMarkedAndRolesAreNot) {
  const auto chat = Parse(kChatMl);
  const Json messages = Json::parse(
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a<|im_end|>b"},
          {"role": "assistant", "content": ""}])");
  EXPECT_EQ(RenderMarked(*chat, messages),
            "<|im_start|>system\n«S»<|im_end|>\n<|im_start|>user\n«a<|im_end|>b»<|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplateTrust, UnknownRoleIsCallersText) {
  const auto chat = Parse("{% for m in messages %}<|{{ m.role }}|>{% endfor %}");
  EXPECT_EQ(RenderMarked(*chat, Json::parse(R"([{"role": "user"}, {"role": "end"}])")),
            "<|user|><|«end»|>");
}

TEST(ChatTemplateTrust, RoleOfOtherObjectsIsCallersText) {
  const auto chat = Parse("{{ tools[0].role }}{{ messages[0].x.role }}");
  const Json tools = Json::parse(R"([[{"role": "user"}], {"role": "user"}])");
  ChatOptions options;
  const Json one = Json::array({tools[1]});
  options.tools = &one;
  EXPECT_EQ(
      RenderMarked(*chat, Json::parse(R"([{"role": "user", "x": {"role": "user"}}])"), options),
      "«useruser»");
}

TEST(ChatTemplateTrust, SpecialTokensAreTrusted) {
  const auto chat = Parse("{{ bos_token }}{{ messages[0].content + eos_token }}", {"<s>", "</s>"});
  EXPECT_EQ(RenderMarked(*chat, kHi), "<s>«hi»</s>");
}

// Every way in which text can travel keeps its marks.
TEST(ChatTemplateTrust, MarksFollowTheBytes) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'a' ~ c ~ 'b' }}", "a«xy z»b"},
      {"{{ c[1:] + '|' + c[0] + '|' + c[::-1] }}", "«y z»|«x»|«z yx»"},
      {"{{ c|upper }}{{ c.title() }}{{ c|capitalize }}", "«XY ZXy ZXy z»"},
      {"{{ c|replace('y', '<|t|>') }}", "«x»<|t|>« z»"},
      {"{{ '<|y|>'|replace('y', c) }}", "<|«xy z»|>"},
      {"{{ c.split(' ')|join('--') }}", "«xy»--«z»"},
      {"{{ ['<a>', c]|join(', ') }}", "<a>, «xy z»"},
      {"{{ {'k': c}|tojson }}", "{\"k\": \"«xy z»\"}"},
      {"{{ messages[0]|tojson }}",
       "{\"«role»\": \"user\", \"«content»\": \"«xy z»\", \"«n»\": «3», \"«b»\": «true», "
       "\"«l»\": [«1.5», «null»]}"},
      {"{{ [c, 'k'] }}{{ messages[0].l }}", "['«xy z»', 'k'][«1.5», «None»]"},
      {"{{ messages[0].n + 1 }}{{ -messages[0].n }}{{ messages[0].n|float }}{{ 5 }}", "«4-33.0»5"},
      {"{{ '%s:%d' % (c, messages[0].n) }}", "«xy z»:«3»"},
      {"{{ '{}<{}>'.format(c, 'k') }}", "«xy z»<k>"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c) }}{{ m('k') }}", "<«xy z»><k>"},
      {"{% set s %}[{{ c }}]{% endset %}{{ s|trim('[') }}", "«xy z»]"},
      {"{% filter upper %}a{{ c }}b{% endfilter %}", "A«XY Z»B"},
      {"{% set ns = namespace(t='') %}{% for ch in c %}{% set ns.t = ns.t + ch + '.' %}{% endfor "
       "%}{{ ns.t }}",
       "«x».«y».« ».«z»."},
      {"{{ c|indent(2, true) }}{{ c|center(8) }}{{ c.ljust(6, '<') }}",
       "  «xy z»  «xy z»  «xy z»<<"},
      {"{{ c|e }}{{ c|string }}{{ c|list|join }}{{ c|reverse }}", "«xy zxy zxy zz yx»"},
      {"{{ c|length }}{{ c == 'xy z' }}{{ c|wordcount }}", "4True2"},
      {"{{ 'lit' if c else 'no' }}{{ c and 'lit' }}{{ c or 'lit' }}", "litlit«xy z»"},
      {"{{ kw }}{{ [kw, c]|first }}{{ c * 2 }}", "«K<|e|>K<|e|>xy zxy z»"},
      {"{{ (c ~ '<|e|>')[2:] }}{{ ('<|' ~ c)[:3] }}", "« z»<|e|><|«x»"}};
  const Json messages =
      Json::parse(R"([{"role": "user", "content": "xy z", "n": 3, "b": true, "l": [1.5, null]}])");
  const Json kwargs = Json::parse(R"({"kw": "K<|e|>"})");
  ChatOptions options;
  options.kwargs = &kwargs;
  for (const auto& [source, expected] : cases) {
    const auto chat = Parse("{% set c = messages[0].content %}" + std::string(source));
    ASSERT_NE(chat, nullptr);
    EXPECT_EQ(RenderMarked(*chat, messages, options), expected) << source;
  }
}

// --- requests as clients send them ---

TEST(ChatTemplate, NullAndAbsentContentAreEmpty) {
  const auto chat = Parse(kChatMl);
  std::set<std::string> texts;
  for (const char* content : {R"("content": "",)", R"("content": null,)", ""}) {
    texts.insert(Render(
        *chat, Json::parse(R"([{"role": "user", "content": "hi"}, {)" + std::string(content) +
                           R"("role": "assistant", "tool_calls": [{"id": "1", "type": "function",
                               "function": {"name": "f", "arguments": "{}"}}]},
                               {"role": "tool", "tool_call_id": "1", "content": "ok"}])")));
  }
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_NE(texts.begin()->find("<|im_start|>assistant\n<|im_end|>"), std::string::npos);
}

// Clients echo answers with fields that are null or empty.
TEST(ChatTemplate, EmptyFieldsAreAbsent) {
  const auto chat = Parse(
      "{% for m in messages %}{{ 'tool_calls' in m }}{{ m.name is defined }}{{ m.refusal is "
      "defined "
      "}};{% endfor %}");
  EXPECT_EQ(Render(*chat, Json::parse(R"([{"role": "user", "content": "a", "name": "n"},
                {"role": "assistant", "content": "b", "tool_calls": [], "refusal": null},
                {"role": "assistant", "content": "b", "tool_calls": null, "name": null}])")),
            "FalseTrueFalse;FalseFalseFalse;FalseFalseFalse;");
}

TEST(ChatTemplate, ArgumentsBecomeObjectsWhereTheyParse) {
  const auto chat = Parse(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ "
      "c.function.arguments|tojson }};{% endfor %}{% endfor %}");
  const auto render = [&](const char* arguments) {
    Json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
    return Render(*chat, Json::array({{{"role", "assistant"}, {"tool_calls", {call}}}}));
  };
  EXPECT_EQ(render(R"({"z": 1.0, "a": [true, null]})"), R"({"z": 1.0, "a": [true, null]};)");
  EXPECT_EQ(render(""), "{};");
  EXPECT_EQ(render("not json"), "\"not json\";");
  EXPECT_EQ(render("[1]"), "\"[1]\";");
  EXPECT_EQ(render("{\"a\":"), "\"{\\\"a\\\":\";");
}

// Templates of some models concatenate the arguments as text.
TEST(ChatTemplate, ArgumentsStayTextForTemplatesThatNeedText) {
  for (const char* use :
       {"{{ '<' + c.function.arguments + '>' }}", "<{{ c.function.arguments }}>"}) {
    const auto chat = Parse(StrCat("{% for m in messages %}{% for c in m.tool_calls or [] %}", use,
                                   "{% endfor %}{% endfor %}"));
    const Json call = {{"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}};
    EXPECT_EQ(Render(*chat, Json::array({{{"role", "assistant"}, {"tool_calls", {call}}}})),
              "<{\"a\": 1}>");
  }
}

TEST(ChatTemplate, PartsAreJoinedForTemplatesThatTakeText) {
  const auto chat = Parse(kChatMl);
  EXPECT_EQ(chat->content_form(), ContentForm::kString);
  const Json messages = Json::parse(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(Render(*chat, messages), "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n");
  const Json image = Json::parse(
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  EXPECT_EQ(Failure(*chat, image).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, PartsStayForTemplatesThatIterateThem) {
  const auto both = Parse(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
      "m.content %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}{% endif %}{% "
      "endfor %}");
  EXPECT_EQ(both->content_form(), ContentForm::kParts);
  const Json parts = Json::parse(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(Render(*both, parts), "[a][b]");
  EXPECT_EQ(Render(*both, kHi), "hi");
  // Through a macro, and without a case for text.
  const auto only = Parse(
      "{% macro show(content) %}{% for p in content %}[{{ p['text'] }}]{% endfor %}{% endmacro %}"
      "{% for m in messages %}{{ show(m.content) }}{% endfor %}");
  EXPECT_EQ(only->content_form(), ContentForm::kParts);
  EXPECT_EQ(Render(*only, parts), "[a][b]");
  EXPECT_EQ(Render(*only, kHi), "[hi]");
}

TEST(ChatTemplate, ToolsAreNoneWhenThereAreNone) {
  const auto chat = Parse("{{ tools is defined }}{{ tools is none }}{{ documents is none }}");
  EXPECT_TRUE(chat->uses_tools());
  EXPECT_FALSE(Parse(kChatMl)->uses_tools());
  const Json empty = Json::array();
  ChatOptions options;
  EXPECT_EQ(Render(*chat, kHi, options), "TrueTrueTrue");
  options.tools = &empty;
  EXPECT_EQ(Render(*chat, kHi, options), "TrueTrueTrue");
}

TEST(ChatTemplate, UnsetSpecialTokensAreUndefined) {
  const auto chat = Parse("{{ bos_token }}|{{ unk_token is defined }}|{{ pad_token }}", {"<s>"});
  EXPECT_EQ(Render(*chat, kHi), "<s>|False|");
}

TEST(ChatTemplate, KwargsAreVariables) {
  const auto chat = Parse(
      "{{ enable_thinking is defined and enable_thinking is false }}{{ date_string is defined }}");
  const Json kwargs = Json::parse(R"({"enable_thinking": false})");
  ChatOptions options;
  EXPECT_EQ(Render(*chat, kHi, options), "FalseFalse");
  options.kwargs = &kwargs;
  EXPECT_EQ(Render(*chat, kHi, options), "TrueFalse");
  for (const char* bad : {R"({"messages": []})", R"({"tools": 1})", R"([1])", "5",
                          R"({"add_generation_prompt": true})", R"({"range": 1})"}) {
    const Json reserved = Json::parse(bad);
    options.kwargs = &reserved;
    EXPECT_EQ(Failure(*chat, kHi, options).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ChatTemplate, TimeIsThatOfTheRequest) {
  const auto chat = Parse("{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%d %b %Y') }}");
  ChatOptions options;
  options.now.tm_year = 126;
  options.now.tm_mon = 1;
  options.now.tm_mday = 3;
  EXPECT_EQ(Render(*chat, kHi, options), "2026-02-03|03 Feb 2026");
  options.now.tm_mday = 4;
  EXPECT_EQ(Render(*chat, kHi, options), "2026-02-04|04 Feb 2026");
}

TEST(ChatTemplate, BadMessagesAreTheCallersMistake) {
  const auto chat = Parse(kChatMl);
  for (const char* bad :
       {"[]", "{}", "null", "[1]", "[{}]", R"([{"role": 1, "content": "x"}])",
        R"([{"role": "user", "content": 5}])", R"([{"role": "user", "content": {"a": 1}}])",
        R"([{"role": "user", "content": ["hi"]}])",
        R"([{"role": "user", "content": [{"type": "text"}]}])"}) {
    EXPECT_EQ(Failure(*chat, Json::parse(bad)).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  const Json bytes = Json::array({{{"role", "user"}, {"content", "\xff\xfe"}}});
  EXPECT_EQ(Failure(*chat, bytes).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, DeeplyNestedArgumentsStayText) {
  const auto chat = Parse(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments is string "
      "}}{% endfor %}{{ m.content }}{% endfor %}");
  const std::string arguments =
      "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  Json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
  const Json messages = Json::array({{{"role", "assistant"}, {"tool_calls", {call}}}});
  EXPECT_EQ(Render(*chat, messages), "True");
  EXPECT_EQ(Render(*chat, messages, Continue()), "True");
}

TEST(ChatTemplate, DeeplyNestedInputIsRefused) {
  const auto chat = Parse("{{ messages|tojson }}");
  for (const int depth : {90, 200, 5000, 100000}) {
    const std::string nested = std::string(static_cast<size_t>(depth), '[') + "1" +
                               std::string(static_cast<size_t>(depth), ']');
    const Json messages =
        Json::parse(R"([{"role": "user", "content": "hi", "x": )" + nested + "}]");
    const auto prompt = chat->Render(messages, {});
    EXPECT_EQ(prompt.ok(), depth < 100) << depth;
    EXPECT_EQ(absl::IsInvalidArgument(prompt.status()), depth >= 100) << prompt.status();
  }
}

// --- errors of templates ---

TEST(ChatTemplate, RaiseExceptionPassesItsMessageOn) {
  const auto chat = Parse(
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported <x>') "
      "}}{% endif %}{{ messages[0].content }}");
  const Status status = Failure(*chat, Json::parse(R"([{"role": "system", "content": "S"}])"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "System role not supported <x>");
  EXPECT_EQ(Render(*chat, kHi), "hi");
}

TEST(ChatTemplate, RuntimeErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{{ messages[5].content.foo.bar }}",
       "chat template, line 2: list object has no element 5"},
      {"\n\n{{ 1/0 }}", "chat template, line 3: division by zero"},
      {"{{ messages[0].content + 1 }}",
       "chat template, line 1: can only concatenate str (not \"int\") to str"}};
  for (const auto& [source, expected] : cases) {
    const auto chat = Parse(source);
    const Status status = Failure(*chat, kHi);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(std::string(status.message()), expected);
  }
}

TEST(ChatTemplate, BrokenTemplatesAreRefusedAtLoad) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% if x %}", "line 2"},
      {"{{ no_such_function() }}", "no function named 'no_such_function'"},
      {"\n\n{{ 'a'|no_such_filter }}", "line 3: there is no filter named 'no_such_filter'"},
      {"{{ 'a' is no_such_test }}", "no test named 'no_such_test'"},
      {"{% if true %}{% for m in messages %}{{ nope(m) }}{% endfor %}{% endif %}", "'nope'"},
      {"{{ lipsum() }}", "no function named 'lipsum'"},
      {"{% include 'x' %}", "unknown tag 'include'"},
      {"{{ 'a' }", "line 1"},
      {"{{ \xff }}", "UTF-8"},
      {"{% endfor %}", "unknown tag 'endfor'"}};
  for (const auto& [source, expected] : cases) {
    const auto chat = ChatTemplate::Parse(source, {});
    ASSERT_FALSE(chat.ok()) << source;
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(chat.status().message()).find(expected), std::string::npos)
        << chat.status();
  }
}

TEST(ChatTemplate, GuardedUnknownNamesAreLoaded) {
  EXPECT_EQ(Render(*Parse("{% if nope is defined %}{{ nope() }}{% else %}x{% endif %}"), kHi), "x");
  EXPECT_EQ(Render(*Parse("{{ nope() if nope is defined else 'x' }}"), kHi), "x");
  EXPECT_EQ(Render(*Parse("{{ nope is defined and nope() }}"), kHi), "False");
  EXPECT_EQ(Render(*Parse("{% if 'q' is filter %}{{ 1|q }}{% else %}x{% endif %}"), kHi), "x");
}

// --- continue_final_message ---

TEST(ChatTemplateContinue, EndsAfterTheContent) {
  const auto chat = Parse(kChatMl);
  for (const std::string said :
       {"The answer is", "The answer is ", "The answer is\n\n", " x", "", "<|im_end|>", "hi"}) {
    const Json messages = Json::array({{{"role", "system"}, {"content", "S"}},
                                       {{"role", "user"}, {"content", "hi"}},
                                       {{"role", "assistant"}, {"content", said}}});
    EXPECT_EQ(Render(*chat, messages, Continue()),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
              "<|im_start|>assistant\n" +
                  said);
  }
}

TEST(ChatTemplateContinue, MarksTheContinuedText) {
  const auto chat = Parse(kChatMl);
  const Json messages = Json::parse(R"([{"role": "assistant", "content": "a <|im_end|>"}])");
  EXPECT_EQ(RenderMarked(*chat, messages, Continue()), "<|im_start|>assistant\n«a <|im_end|>»");
}

TEST(ChatTemplateContinue, TemplateThatTrimsContent) {
  const auto chat =
      Parse("{% for m in messages %}[{{ m.role }}]\n\n{{ m.content | trim }}<end>{% endfor %}");
  const auto render = [&](const char* said) {
    return Render(*chat, Json::array({{{"role", "assistant"}, {"content", said}}}), Continue());
  };
  EXPECT_EQ(render(" The answer "), "[assistant]\n\nThe answer");
  EXPECT_EQ(render("x"), "[assistant]\n\nx");
  EXPECT_EQ(render("  "), "[assistant]\n\n");
  EXPECT_EQ(render(""), "[assistant]\n\n");
}

TEST(ChatTemplateContinue, PartsAndCalls) {
  const auto chat = Parse(kChatMl);
  EXPECT_EQ(
      Render(*chat, Json::parse(R"([{"role": "assistant", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]}])"),
             Continue()),
      "<|im_start|>assistant\nab");
  const auto parts = Parse(
      "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}");
  EXPECT_EQ(Render(*parts,
                   Json::parse(R"([{"role": "assistant", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]}])"),
                   Continue()),
            "[a][b");
}

TEST(ChatTemplateContinue, RefusesWhatContradicts) {
  const auto chat = Parse(kChatMl);
  ChatOptions both = Continue();
  both.add_generation_prompt = true;
  EXPECT_EQ(Failure(*chat, kHi, both).code(), absl::StatusCode::kInvalidArgument);
  const auto silent = Parse("{% for m in messages[:-1] %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(Failure(*silent, kHi, Continue()).code(), absl::StatusCode::kInvalidArgument);
}

// --- templates for models without one ---

TEST(DefaultChatTemplateTest, ChoosesByVocabulary) {
  const auto choose = [](std::set<std::string, std::less<>> tokens) {
    return DefaultChatTemplate(
        [&](std::string_view token) { return tokens.find(token) != tokens.end(); });
  };
  const Json messages = Json::parse(
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": " q "},
          {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}])");
  const auto render = [&](const Result<std::string_view>& source) {
    EXPECT_TRUE(source.ok()) << source.status();
    return RenderMarked(*Parse(source.value_or(""), {"<s>"}), messages);
  };
  EXPECT_EQ(render(choose({"<|im_start|>", "<|im_end|>"})),
            "<|im_start|>system\n«S»<|im_end|>\n<|im_start|>user\n« q »<|im_end|>\n"
            "<|im_start|>assistant\n«a»<|im_end|>\n<|im_start|>user\n«r»<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(render(choose({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})),
            "<s><|start_header_id|>system<|end_header_id|>\n\n«S»<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n«q»<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«a»<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n«r»<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(render(choose({"<start_of_turn>", "<end_of_turn>"})),
            "<s><start_of_turn>user\n«S»\n\n«q»<end_of_turn>\n<start_of_turn>model\n"
            "«a»<end_of_turn>\n<start_of_turn>user\n«r»<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(choose({"<|im_start|>"}).status().code(), absl::StatusCode::kFailedPrecondition);
}

// --- threads ---

TEST(ChatTemplate, ManyThreadsRenderAtOnce) {
  const auto chat = Parse(kChatMl);
  const std::string expected = Render(*chat, kHi);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; n++) {
        const auto prompt = chat->Render(kHi, {});
        ASSERT_TRUE(prompt.ok());
        ASSERT_EQ(prompt->text, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace staffel
