// Arguments of calls as Qwen3-Coder writes them: see ValueForm::kXml.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "grammar/json_schema.h"
#include "grammar/schema_compiler.h"
#include "grammar/trigger_text.h"

namespace staffel::grammar {
namespace {

constexpr std::string_view kMemberBegin = "<parameter=";
constexpr std::string_view kMemberEnd = "</parameter>";

// Whoever reads the text tells strings by the same rule (answer::ToolSignature).
bool IsDeclaredString(const JsonValue& root, const std::string& name) {
  const JsonValue* properties = root.Find("properties");
  const JsonValue* member = properties == nullptr ? nullptr : properties->Find(name);
  const JsonValue* type = member == nullptr ? nullptr : member->Find("type");
  return type != nullptr && type->IsString() && type->text == "string";
}

}  // namespace

Result<ExprId> SchemaCompiler::CompileXmlMember(const Conjunction& conjunction,
                                                const std::string& name) {
  const JsonValue* root = conjunction.parts[0].schema;
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return c == '>' || static_cast<uint8_t>(c) < ' '; })) {
    return Error(root, "properties", StrCat("has a name that this format cannot write: ", name));
  }
  STAFFEL_ASSIGN_OR_RETURN(const Schemas schemas, SchemasOfName(conjunction, name));
  ExprId value = pool_.Never();
  if (!IsDeclaredString(root_, name)) {
    // No JSON has a line feed in front of "<": the end marker is not mistaken.
    STAFFEL_ASSIGN_OR_RETURN(value, CompileAll(schemas));
  } else {
    Conjunction own;
    STAFFEL_RETURN_IF_ERROR(ExpandAll(schemas, own));
    for (const Conjunction::Part& part : own.parts) {
      for (const std::string_view keyword : {"anyOf", "oneOf", "not"}) {
        if (part.schema->Find(keyword) != nullptr)
          return Error(part.schema, keyword, "is not supported for strings in this call format");
      }
    }
    STAFFEL_ASSIGN_OR_RETURN(const CharDfa texts, TextsOf(own));
    STAFFEL_ASSIGN_OR_RETURN(CharDfa raw,
                             CharDfa::Intersect(texts, UntilTrigger({std::string(kMemberEnd)}, -1),
                                                pool_.limits().dfa_states));
    value = pool_.Share(pool_.Dfa(std::make_shared<const CharDfa>(std::move(raw)), Encoding::kRaw),
                        "a text");
  }
  if (value == pool_.Never()) return value;
  return pool_.Sequence({pool_.Literal(StrCat(kMemberBegin, name, ">\n")), value,
                         pool_.Literal(StrCat("\n", kMemberEnd, "\n"))});
}

Result<RuleId> SchemaCompiler::RunXml(std::string_view text) {
  STAFFEL_ASSIGN_OR_RETURN(root_, ParseJson(text, pool_.limits()));
  Conjunction conjunction;
  STAFFEL_RETURN_IF_ERROR(ExpandAll({&root_}, conjunction));
  const RuleId rule = pool_.NewRule("the parameters");
  if (conjunction.parts.empty() || conjunction.never) {
    pool_.Define(rule, conjunction.never ? pool_.Never() : pool_.Empty());
    return rule;
  }
  for (const Conjunction::Part& part : conjunction.parts) {
    for (const std::string_view keyword : {"anyOf", "oneOf", "not", "enum", "const"}) {
      if (part.schema->Find(keyword) != nullptr)
        return Error(part.schema, keyword, "is not supported for all arguments together");
    }
  }
  STAFFEL_ASSIGN_OR_RETURN(const uint8_t types, TypesOf(conjunction));
  if ((types & kObjectType) == 0)
    return Error(conjunction.parts[0].schema, "type", "must be object: arguments are one");
  STAFFEL_ASSIGN_OR_RETURN(const ObjectShape shape, ShapeOf(conjunction));
  std::vector<ExprId> members;
  int required_count = 0;
  for (const std::string& name : shape.names) {
    const bool required = shape.required.at(name);
    STAFFEL_ASSIGN_OR_RETURN(const ExprId member, CompileXmlMember(conjunction, name));
    if (member == pool_.Never() && !required) continue;
    required_count += required ? 1 : 0;
    members.push_back(required ? member : pool_.Optional(member));
  }
  const bool counted = shape.min > required_count ||
                       (shape.max != kUnbounded && shape.max < static_cast<int>(members.size()));
  if (counted) {
    return Error(conjunction.parts[0].schema,
                 shape.min > required_count ? "minProperties" : "maxProperties",
                 "is not supported for the arguments in this call format");
  }
  pool_.Define(rule, pool_.Sequence(members));
  return rule;
}

Result<RuleId> ParseXmlSchema(ExprPool& pool, std::string_view schema, JsonSpace space) {
  return SchemaCompiler(pool, space).RunXml(schema);
}

}  // namespace staffel::grammar
