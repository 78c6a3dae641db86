#include "grammar/gbnf.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support.h"

namespace staffel::grammar {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string source;
  std::vector<std::string> accepted, refused;
};

TEST(Gbnf, AcceptsAndRefuses) {
  const std::vector<Case> cases = {
      {R"(root ::= "a" | "b" "c")", {"a", "bc"}, {"b", "abc", ""}},
      {"root ::= item+\nitem ::= [a-z]+ \"\\n\" # an item\n", {"ab\n", "a\nb\n"}, {"", "a"}},
      {"# comment\nroot ::=\n  \"x\" |\n  \"y\"\n", {"x", "y"}, {"xy"}},
      {"root ::= \"x\"\n  other\nother ::= \"y\"?", {"x", "xy"}, {"y"}},
      {R"(root ::= "a"{2} "b"{1,} "c"{0,2})", {"aab", "aabbcc"}, {"ab", "aa", "aabccc"}},
      {R"(root ::= "\"" [^"\\\x7F\x00-\x1F]* "\"")", {"\"ab\"", "\"\""}, {"\"a", "\"\n\""}},
      {R"(root ::= [\u00e9\U0001F600] .)", {"\xC3\xA9x", "\xF0\x9F\x98\x80\n"}, {"ex", "\xC3\xA9"}},
      {R"(root ::= "[" (root ("," root)*)? "]")", {"[]", "[[],[[]]]"}, {"[", "[]]", "[,]"}},
      {R"(root ::= a-b "."
a-b ::= "x" a-b | "")",
       {".", "xxx."},
       {"x"}},
      {R"(root ::= ("a" | "b")* "c")", {"c", "abac"}, {"ab"}},
      {R"(root ::= "" )", {""}, {"a"}},
      {R"g(root ::= e
e ::= t (("+" | "-") t)*
t ::= [0-9]+ | "(" e ")")g",
       {"1+2", "(1-(2+30))"},
       {"1+", "(1"}},
      {R"(root ::= "b" root "b" | "a")", {"a", "bab", "bbabb"}, {"ba", "bba"}},
      // Ambiguous: many ways to read a text.
      {R"(root ::= s
s ::= "a" s s | "")",
       {"", "aaaa"},
       {"b"}},
  };
  for (const Case& test : cases) {
    auto automaton = MakeAutomaton(GbnfSpec(test.source));
    ASSERT_TRUE(automaton.ok()) << test.source << ": " << automaton.status();
    for (const std::string& text : test.accepted) {
      EXPECT_TRUE(Accepts(*automaton, text)) << test.source << " must take '" << text << "'";
    }
    for (const std::string& text : test.refused) {
      EXPECT_FALSE(Accepts(*automaton, text)) << test.source << " must refuse '" << text << "'";
    }
  }
}

TEST(Gbnf, RefusesWithAReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"root ::= root", "left recursion"},
      {"root ::= x", "does not define"},
      {"root ::= a \"x\"\na ::= b?\nb ::= root", "left recursion"},
      {"root ::= \"x\"? root | \"y\"", "left recursion"},
      {"a ::= \"x\"", "no rule \"root\""},
      {"", "no rule \"root\""},
      {"root ::= \"a\" a\na ::= \"x\" a", "no text at all"},
      {"root ::= \"a", "no end"},
      {"root ::= [a", "no \"]\""},
      {"root ::= (\"a\"", "no \")\""},
      {"root ::= \"a\" )", "not expected"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
      {"root ::= \"a\"{3,1}", "out of order"},
      {"root ::= \"a\"{x}", "repetition"},
      {"root := \"a\"", "\"::=\" is missing"},
      {"root ::= \"\\q\"", "unknown"},
      {"root ::= [z-a]", "out of order"},
      {"root ::= \"\\uD800\"", "no character"},
      {"\"a\"", "begin with its name"},
  };
  for (const auto& [source, message] : cases) {
    const auto grammar = Compile(GbnfSpec(source));
    ASSERT_FALSE(grammar.ok()) << source;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << source;
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << source;
  }
  EXPECT_FALSE(
      Compile(GbnfSpec("root ::= " + std::string(5000, '(') + "\"a\"" + std::string(5000, ')')))
          .ok());
}

// Right recursion needs no stack; nesting does, and may be deep.
TEST(Gbnf, LongAndDeepTexts) {
  auto list = MakeAutomaton(GbnfSpec("root ::= \"x\" root | \".\""));
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(Accepts(*list, std::string(100'000, 'x') + "."));
  auto nested = MakeAutomaton(GbnfSpec("root ::= \"(\" root \")\" | \"\""));
  ASSERT_TRUE(nested.ok());
  EXPECT_TRUE(Accepts(*nested, std::string(20'000, '(') + std::string(20'000, ')')));
  EXPECT_FALSE(Accepts(*nested, std::string(20'000, '(') + std::string(19'999, ')')));
}

TEST(Choice, IsOneOfTheTexts) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kChoice;
  spec.choices = {"red", "redder", "green", "r", "\xC3\xA9"};
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok());
  for (const std::string& choice : spec.choices) EXPECT_TRUE(Accepts(*automaton, choice));
  for (const char* text : {"", "re", "redd", "greenx", "e"}) {
    EXPECT_FALSE(Accepts(*automaton, text)) << text;
  }
  spec.choices = {};
  EXPECT_FALSE(Compile(spec).ok());
  for (int i = 0; i < 100'000; ++i) spec.choices.push_back("choice " + std::to_string(i * 7919));
  auto large = MakeAutomaton(spec);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_TRUE(Accepts(*large, spec.choices[4711]));
  EXPECT_FALSE(Accepts(*large, "choice 1"));
}

TEST(Tags, FreeTextAndCalls) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.triggers = {"<call"};
  spec.tags = {
      {"<call=f>", R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})",
       "</call>"},
      {"<call=g>", R"({"type":"array","items":{"type":"boolean"}})", "</call>"}};
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const char* text : {"", "free text < with <cal and no call", "so: <call=f>{\"a\":1}</call>",
                           "<call=g>[true]</call>and<call=f>{\"a\":2}</call> done",
                           "<<<ca<call=g>[]</call>\xC3\xA9"}) {
    EXPECT_TRUE(Accepts(*automaton, text)) << text;
  }
  for (const char* text :
       {"<call", "<call=h>", "<call=f>{}</call>", "<call=f>{\"a\":1}", "x\xC3"}) {
    EXPECT_FALSE(Accepts(*automaton, text)) << text;
  }
  spec.tag_required = true;
  auto required = MakeAutomaton(spec);
  ASSERT_TRUE(required.ok());
  EXPECT_FALSE(Accepts(*required, ""));
  EXPECT_FALSE(Accepts(*required, "x<call=g>[]</call>"));
  EXPECT_TRUE(Accepts(*required, "<call=g>[]</call><call=g>[]</call>"));
  spec.single_tag = true;
  EXPECT_FALSE(Accepts(*MakeAutomaton(spec), "<call=g>[]</call><call=g>[]</call>"));
  spec.tag_required = false;
  EXPECT_TRUE(Accepts(*MakeAutomaton(spec), "x<call=g>[]</call>"));
  EXPECT_FALSE(Accepts(*MakeAutomaton(spec), "x<call=g>[]</call>y"));
  spec.triggers = {"<tool"};
  EXPECT_FALSE(Compile(spec).ok());
}

TEST(Tags, Lists) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.triggers = {"[CALLS]"};
  spec.tags = {{"f(", R"({"type":"integer"})", ")"}, {"g(", R"({"type":"boolean"})", ")"}};
  spec.list_begin = "[CALLS] [";
  spec.list_separator = ", ";
  spec.list_end = "]";
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const char* text : {"", "text", "[CALLS] [f(1)]", "a[CALLS] [f(1), g(true)]b"}) {
    EXPECT_TRUE(Accepts(*automaton, text)) << text;
  }
  for (const char* text : {"[CALLS]", "[CALLS] []", "[CALLS] [f(1)", "[CALLS] [f(1),g(true)]"}) {
    EXPECT_FALSE(Accepts(*automaton, text)) << text;
  }
  spec.tag_required = true;
  EXPECT_TRUE(Accepts(*MakeAutomaton(spec), "[CALLS] [f(1), f(2)]"));
  EXPECT_FALSE(Accepts(*MakeAutomaton(spec), "a[CALLS] [f(1)]"));
  spec.single_tag = true;
  EXPECT_TRUE(Accepts(*MakeAutomaton(spec), "[CALLS] [f(1)]"));
  EXPECT_FALSE(Accepts(*MakeAutomaton(spec), "[CALLS] [f(1), f(2)]"));
  spec.tag_required = false;
  spec.triggers = {"f("};
  EXPECT_FALSE(Compile(spec).ok());
}

TEST(Tags, ControlTokensAreNoText) {
  const std::string call = NamedTokenBytes("<|call|>"), say = NamedTokenBytes("<|say|>");
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.triggers = {call};
  spec.tags = {{call + "f", R"({"type":"integer"})", ""}};
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Accepts(*automaton, "a <|call|> b" + call + "f1" + "c"));
  EXPECT_FALSE(Accepts(*automaton, call + "g1"));
  EXPECT_FALSE(Accepts(*automaton, "a" + say));
  spec.text_begin = say;
  auto either = MakeAutomaton(spec);
  EXPECT_TRUE(Accepts(*either, say + "text"));
  EXPECT_TRUE(Accepts(*either, call + "f1"));
  EXPECT_FALSE(Accepts(*either, "text"));
  EXPECT_FALSE(Accepts(*either, "text" + call + "f1"));
}

// Text and tags are told apart at the beginning.
TEST(Tags, Leading) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.triggers = {"{", "["};
  spec.leading_tags = true;
  spec.tags = {{"{\"f\": ", R"({"type":"integer"})", "}"}};
  spec.list_separator = "; ";
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const char* text :
       {"", " \n", "text", " a {\"g\"}\n{[", "{\"f\": 1}", "{\"f\": 1}; {\"f\": 2}"}) {
    EXPECT_TRUE(Accepts(*automaton, text)) << text;
  }
  for (const char* text : {"{", " {\"f\": 1}", "\n[1]", "{\"f\": 1} text", "a\xFF"}) {
    EXPECT_FALSE(Accepts(*automaton, text)) << text;
  }
  spec.triggers = {"{{"};
  EXPECT_FALSE(Compile(spec).ok());
}

TEST(Tags, OrJson) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.triggers = {"<c>"};
  spec.tags = {{"<c>", R"({"type":"integer"})", "</c>"}};
  spec.source = R"({"type":"object","properties":{"a":{"const":1}},"required":["a"]})";
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Accepts(*automaton, "<c>5</c><c>6</c>"));
  EXPECT_TRUE(Accepts(*automaton, "{\"a\": 1}"));
  EXPECT_FALSE(Accepts(*automaton, "text"));
  EXPECT_FALSE(Accepts(*automaton, "{\"a\": 1}<c>5</c>"));
}

TEST(Tags, XmlMembers) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.tag_required = true;
  spec.tags = {{"<function=f>\n", R"({"type":"object","properties":{
                   "text":{"type":"string"},
                   "short":{"type":"string","maxLength":2},
                   "unit":{"type":"string","enum":["C","F"]},
                   "list":{"type":"array","items":{"type":"string"}},
                   "maybe":{"anyOf":[{"type":"string"},{"type":"null"}]}},
                 "required":["text","list"]})",
                "</function>", ValueForm::kXml}};
  auto automaton = MakeAutomaton(spec);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  const auto member = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const auto call = [](const std::string& members) {
    return "<function=f>\n" + members + "</function>";
  };
  const std::string text = member("text", "a\n\"<b>\" </paramete"),
                    list = member("list", "[\"</parameter>\"]");
  EXPECT_TRUE(Accepts(*automaton, call(text + list)));
  EXPECT_TRUE(Accepts(*automaton, call(member("text", "") + list)));
  EXPECT_TRUE(Accepts(*automaton, call(text + member("short", "ab") + member("unit", "F") + list +
                                       member("maybe", "\"x\""))));
  EXPECT_FALSE(Accepts(*automaton, call(text)));
  EXPECT_FALSE(Accepts(*automaton, call(list + text)));
  EXPECT_FALSE(Accepts(*automaton, call(text + member("short", "abc") + list)));
  EXPECT_FALSE(Accepts(*automaton, call(text + member("unit", "K") + list)));
  EXPECT_FALSE(Accepts(*automaton, call(text + list + member("maybe", "x"))));
  EXPECT_FALSE(Accepts(*automaton, call(member("text", "</parameter>") + list)));
  for (const char* schema :
       {R"({"type":"string"})", R"({"anyOf":[{"type":"object"}]})",
        R"({"type":"object","properties":{"a>":{"type":"string"}}})",
        R"({"type":"object","properties":{"a":{"type":"string"}},"minProperties":1})",
        R"({"type":"object","properties":{"a":{"type":"string","anyOf":[{"minLength":1}]}}})",
        R"({"type":"object","properties":{"a":{"uniqueThings":true}}})"}) {
    spec.tags[0].schema = schema;
    EXPECT_FALSE(Compile(spec).ok()) << schema;
  }
  spec.tags[0].schema = "{}";
  EXPECT_TRUE(Accepts(*MakeAutomaton(spec), call("")));
}

TEST(Reasoning, StandsInFrontOfAnyGrammar) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kChoice;
  spec.choices = {"yes", "no"};
  spec.reasoning_end = "</think>";
  EXPECT_FALSE(Compile(spec).ok());
  spec.reasoning_begin = "<think>";
  auto optional = MakeAutomaton(spec);
  ASSERT_TRUE(optional.ok()) << optional.status();
  for (const char* text : {"yes", "<think>a < b </thin></think>no", "<think></think>\n\nyes"}) {
    EXPECT_TRUE(Accepts(*optional, text)) << text;
  }
  for (const char* text : {"", "<think>yes", "a</think>yes", "<think></think>yes</think>"}) {
    EXPECT_FALSE(Accepts(*optional, text)) << text;
  }
  spec.reasoning_open = true;
  auto open = MakeAutomaton(spec);
  EXPECT_TRUE(Accepts(*open, "\nhm</think>yes"));
  EXPECT_FALSE(Accepts(*open, "yes"));
  spec.text_begin = "> ";
  EXPECT_TRUE(Accepts(*MakeAutomaton(spec), "hm</think>> yes"));
}

}  // namespace
}  // namespace staffel::grammar
