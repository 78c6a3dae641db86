#include "server/api/call_grammar.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "answer/call_form.h"
#include "base/strings.h"

namespace staffel::api {
namespace {

using grammar::GrammarSpec;

// A marker that is a control token, by its name; others as text.
std::string Spell(const Tokenizer& tokenizer, std::string_view marker) {
  const auto tokens = tokenizer.Encode(marker, /*parse_special=*/true, /*add_bos=*/false);
  if (tokens.size() != 1 || !tokenizer.IsControl(tokens[0])) return std::string(marker);
  return grammar::NamedTokenBytes(tokenizer.TokenBytes(tokens[0], /*special=*/true));
}

bool IsWritable(std::string_view name) {
  return !name.empty() && name.size() <= 256 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

// Any arguments. The members of an object that is no JSON are those that the schema declares.
std::string LooseSchema(const Json& parameters) {
  Json loose = {{"type", "object"}, {"properties", Json::object()}};
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object()) return loose.dump();
  for (const auto& [name, schema] : properties->items()) {
    const bool text = schema.is_object() && schema.value("type", Json()) == "string";
    loose["properties"][name] = text ? Json{{"type", "string"}} : Json::object();
  }
  return loose.dump();
}

std::string SchemaOf(const Json& tool, bool held, bool xml) {
  const Json& function = tool["function"];
  const auto given = function.find("parameters");
  if (given == function.end() || !given->is_object()) return R"({"type":"object"})";
  if (held) return given->dump();
  return xml ? LooseSchema(*given) : R"({"type":"object"})";
}

}  // namespace

Result<GrammarSpec> CallGrammar(const ToolChoice& choice, answer::CallFormat format,
                                const Tokenizer& tokenizer) {
  if (format == answer::CallFormat::kNone) {
    return absl::InvalidArgumentError(
        "calls of this model are not told from text (--tool-call-format none)");
  }
  const auto spell = [&](std::string_view marker) { return Spell(tokenizer, marker); };
  const answer::CallForm form = answer::FormOf(format, spell);
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kTags;
  spec.tag_required = choice.required;
  spec.single_tag = form.single || !choice.parallel;
  spec.leading_tags = form.leads && !choice.required;
  spec.list_begin = form.list_begin;
  spec.list_separator = form.list_separator;
  spec.list_end = form.list_end;
  spec.triggers = form.triggers;
  for (const Json& tool : choice.tools) {
    const std::string& name = ToolName(tool);
    if (!choice.named.empty() && name != choice.named) continue;
    if (!IsWritable(name)) {
      return absl::InvalidArgumentError(
          StrCat("the function's name '", name.substr(0, 64),
                 "' must have 1 to 256 letters, digits and _ - . : / to be called here"));
    }
    spec.tags.push_back({StrCat(form.begin, form.json_name ? Json(name).dump() : name, form.middle),
                         SchemaOf(tool, choice.required || IsStrict(tool), form.xml), form.end,
                         form.xml ? grammar::ValueForm::kXml : grammar::ValueForm::kJson});
  }
  return spec;
}

void AddBeginning(const answer::ParserOptions& parser, const Tokenizer& tokenizer,
                  GrammarSpec* spec) {
  const auto spell = [&](std::string_view marker) { return Spell(tokenizer, marker); };
  const answer::ReasoningForm reasoning = answer::FormOf(parser.formats.reasoning, spell);
  spec->reasoning_begin = reasoning.begin;
  spec->reasoning_end = reasoning.end;
  spec->reasoning_open = parser.in_reasoning;
  const bool harmony = parser.formats.calls == answer::CallFormat::kHarmony ||
                       parser.formats.reasoning == answer::ReasoningFormat::kHarmony;
  if (harmony) spec->text_begin = answer::FormOf(answer::CallFormat::kHarmony, spell).text_begin;
}

}  // namespace staffel::api
