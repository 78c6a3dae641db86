#include "grammar/json_schema.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/strings.h"
#include "grammar/schema_compiler.h"

namespace staffel::grammar {
namespace {

const absl::flat_hash_set<std::string>& SupportedKeywords() {
  static const auto* const set = new absl::flat_hash_set<std::string>{"$ref",
                                                                      "additionalItems",
                                                                      "additionalProperties",
                                                                      "allOf",
                                                                      "anyOf",
                                                                      "const",
                                                                      "dependentRequired",
                                                                      "enum",
                                                                      "exclusiveMaximum",
                                                                      "exclusiveMinimum",
                                                                      "format",
                                                                      "items",
                                                                      "maxItems",
                                                                      "maxLength",
                                                                      "maxProperties",
                                                                      "maximum",
                                                                      "minItems",
                                                                      "minLength",
                                                                      "minProperties",
                                                                      "minimum",
                                                                      "multipleOf",
                                                                      "not",
                                                                      "nullable",
                                                                      "oneOf",
                                                                      "pattern",
                                                                      "patternProperties",
                                                                      "prefixItems",
                                                                      "properties",
                                                                      "propertyNames",
                                                                      "required",
                                                                      "type",
                                                                      "unevaluatedItems",
                                                                      "unevaluatedProperties",
                                                                      "uniqueItems"};
  return *set;
}

// Keywords that say nothing about what is valid: draft 2020-12's annotations, and those of OpenAPI
// and editors.
const absl::flat_hash_set<std::string>& Annotations() {
  static const auto* const set = new absl::flat_hash_set<std::string>{"$anchor",
                                                                      "$comment",
                                                                      "$defs",
                                                                      "$id",
                                                                      "$schema",
                                                                      "$vocabulary",
                                                                      "contentEncoding",
                                                                      "contentMediaType",
                                                                      "contentSchema",
                                                                      "default",
                                                                      "definitions",
                                                                      "deprecated",
                                                                      "description",
                                                                      "discriminator",
                                                                      "example",
                                                                      "examples",
                                                                      "externalDocs",
                                                                      "id",
                                                                      "markdownDescription",
                                                                      "propertyOrdering",
                                                                      "readOnly",
                                                                      "title",
                                                                      "writeOnly",
                                                                      "xml",
                                                                      "enumDescriptions",
                                                                      "enumNames",
                                                                      "strict"};
  return *set;
}

std::string UnescapePointer(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else if (token[i] == '%' && i + 2 < token.size()) {
      const auto hex = [&](char c) {
        return c >= '0' && c <= '9'   ? c - '0'
               : c >= 'a' && c <= 'f' ? c - 'a' + 10
               : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                      : 0;
      };
      out += static_cast<char>(16 * hex(token[i + 1]) + hex(token[i + 2]));
      i += 2;
    } else {
      out += token[i];
    }
  }
  return out;
}

std::string EscapePointer(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

// The way from `from` to `to`, in reverse order of tokens; false: not within.
bool FindPath(const JsonValue& from, const JsonValue* to, std::vector<std::string>& path) {
  if (&from == to) return true;
  for (size_t i = 0; i < from.items.size(); ++i) {
    if (FindPath(from.items[i], to, path)) {
      path.push_back(StrCat(i));
      return true;
    }
  }
  for (const auto& [key, value] : from.members) {
    if (FindPath(value, to, path)) {
      path.push_back(EscapePointer(key));
      return true;
    }
  }
  return false;
}

const JsonValue* FindAnchor(const JsonValue& from, std::string_view anchor) {
  if (const JsonValue* own = from.Find("$anchor"); own != nullptr && own->IsString()) {
    if (own->text == anchor) return &from;
  }
  for (const JsonValue& item : from.items) {
    if (const JsonValue* found = FindAnchor(item, anchor)) return found;
  }
  for (const auto& [key, value] : from.members) {
    if (const JsonValue* found = FindAnchor(value, anchor)) return found;
  }
  return nullptr;
}

}  // namespace

std::string SchemaCompiler::PointerOf(const JsonValue* schema) const {
  std::vector<std::string> path;
  std::string pointer = "#";
  if (!FindPath(root_, schema, path)) return pointer;
  for (size_t i = path.size(); i-- > 0;) StrAppend(pointer, "/", path[i]);
  return pointer;
}

Status SchemaCompiler::Error(const JsonValue* schema, std::string_view keyword,
                             std::string_view what) const {
  return absl::InvalidArgumentError(
      StrCat("the schema cannot be used: \"", keyword, "\" at ", PointerOf(schema), " ", what));
}

Status SchemaCompiler::CheckKeywords(const JsonValue& schema) const {
  for (const auto& [keyword, value] : schema.members) {
    if (SupportedKeywords().contains(keyword) || Annotations().contains(keyword) ||
        keyword.starts_with("x-")) {
      continue;
    }
    return Error(&schema, keyword, "is not supported");
  }
  return absl::OkStatus();
}

Result<const JsonValue*> SchemaCompiler::Resolve(const JsonValue& schema,
                                                 const std::string& reference) const {
  std::string_view rest = reference;
  if (const JsonValue* id = root_.Find("$id"); id != nullptr && id->IsString()) {
    if (!id->text.empty() && rest.starts_with(id->text)) rest.remove_prefix(id->text.size());
    if (rest.empty()) return &root_;
  }
  if (!rest.starts_with('#')) {
    return Error(&schema, "$ref", StrCat("points outside of the schema (", reference, ")"));
  }
  rest.remove_prefix(1);
  const JsonValue* place = &root_;
  if (!rest.empty() && rest[0] != '/') {
    place = FindAnchor(root_, rest);
    rest = "";
  }
  while (place != nullptr && !rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string token = UnescapePointer(rest.substr(0, end));
    rest.remove_prefix(end);
    if (place->IsArray()) {
      size_t index = 0;
      for (char c : token)
        index = c < '0' || c > '9' ? place->items.size() : index * 10 + (c - '0');
      place = !token.empty() && token.size() < 7 && index < place->items.size()
                  ? &place->items[index]
                  : nullptr;
    } else {
      place = place->Find(token);
    }
  }
  if (place == nullptr) {
    return Error(&schema, "$ref", StrCat("points to nothing (", reference, ")"));
  }
  return place;
}

Status SchemaCompiler::Expand(const JsonValue* schema, Conjunction& to, Schemas& within) {
  if (schema->kind == JsonValue::Kind::kBool) {
    to.never |= !schema->boolean;
    return absl::OkStatus();
  }
  if (!schema->IsObject()) {
    return absl::InvalidArgumentError(StrCat("the schema cannot be used: what stands at ",
                                             PointerOf(schema), " is no object or boolean"));
  }
  if (std::find(within.begin(), within.end(), schema) != within.end()) {
    return Error(schema, "$ref", "leads back to itself without anything in between");
  }
  for (const Conjunction::Part& part : to.parts) {
    if (part.schema == schema) return absl::OkStatus();
  }
  if (within.size() > static_cast<size_t>(pool_.limits().schema_depth)) {
    return Error(schema, "$ref", "is nested too deeply");
  }
  STAFFEL_RETURN_IF_ERROR(CheckKeywords(*schema));
  to.parts.push_back({schema});
  within.push_back(schema);
  if (const JsonValue* reference = schema->Find("$ref")) {
    if (!reference->IsString()) return Error(schema, "$ref", "must be a string");
    STAFFEL_ASSIGN_OR_RETURN(const JsonValue* target, Resolve(*schema, reference->text));
    STAFFEL_RETURN_IF_ERROR(Expand(target, to, within));
  }
  if (const JsonValue* all = schema->Find("allOf")) {
    if (!all->IsArray()) return Error(schema, "allOf", "must be an array");
    for (const JsonValue& item : all->items) STAFFEL_RETURN_IF_ERROR(Expand(&item, to, within));
  }
  within.pop_back();
  return absl::OkStatus();
}

Status SchemaCompiler::ExpandAll(const Schemas& schemas, Conjunction& to) {
  Schemas within;
  for (const JsonValue* schema : schemas) STAFFEL_RETURN_IF_ERROR(Expand(schema, to, within));
  return absl::OkStatus();
}

Status SchemaCompiler::CollectInPlace(const JsonValue& schema, Schemas& to) const {
  if (!schema.IsObject() || std::find(to.begin(), to.end(), &schema) != to.end()) {
    return absl::OkStatus();
  }
  to.push_back(&schema);
  if (const JsonValue* reference = schema.Find("$ref"); reference && reference->IsString()) {
    STAFFEL_ASSIGN_OR_RETURN(const JsonValue* target, Resolve(schema, reference->text));
    STAFFEL_RETURN_IF_ERROR(CollectInPlace(*target, to));
  }
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* list = schema.Find(keyword);
    if (list == nullptr) continue;
    for (const JsonValue& item : list->items) {
      STAFFEL_RETURN_IF_ERROR(CollectInPlace(item, to));
    }
  }
  return absl::OkStatus();
}

Status SchemaCompiler::CheckUnevaluated(const Conjunction& conjunction, const JsonValue& schema,
                                        std::string_view keyword) const {
  Schemas in_place;
  STAFFEL_RETURN_IF_ERROR(CollectInPlace(schema, in_place));
  for (const Conjunction::Part& part : conjunction.parts) {
    if (std::find(in_place.begin(), in_place.end(), part.schema) == in_place.end()) {
      return Error(&schema, keyword,
                   "is supported only in a schema that brings all others for its value with allOf, "
                   "anyOf, oneOf or $ref");
    }
  }
  return absl::OkStatus();
}

Result<ExprId> SchemaCompiler::CompileAll(const Schemas& schemas) {
  Conjunction conjunction;
  STAFFEL_RETURN_IF_ERROR(ExpandAll(schemas, conjunction));
  return Compile(conjunction);
}

Result<ExprId> SchemaCompiler::Compile(const Conjunction& conjunction) {
  if (conjunction.never) return pool_.Never();
  if (conjunction.parts.empty()) return terms_.AnyValue();
  auto [found, added] = memo_.emplace(conjunction.parts, Memo{});
  Memo& memo = found->second;
  if (!added) {
    if (memo.expr >= 0) return memo.expr;
    if (memo.rule < 0) memo.rule = pool_.NewRule(PointerOf(conjunction.parts[0].schema));
    return pool_.Rule(memo.rule);
  }
  if (depth_ >= pool_.limits().schema_depth) {
    return absl::InvalidArgumentError(StrCat("the schema nests more than ",
                                             pool_.limits().schema_depth,
                                             " subschemas; make it flatter"));
  }
  STAFFEL_RETURN_IF_ERROR(pool_.status());
  ++depth_;
  STAFFEL_ASSIGN_OR_RETURN(ExprId expr, CompileNew(conjunction));
  --depth_;
  if (memo.rule >= 0) {
    pool_.Define(memo.rule, expr);
    expr = pool_.Rule(memo.rule);
  } else {
    expr = pool_.Share(expr, "a subschema");
  }
  memo.expr = expr;
  return expr;
}

Result<ExprId> SchemaCompiler::CompileNew(const Conjunction& conjunction) {
  for (size_t i = 0; i < conjunction.parts.size(); ++i) {
    const Conjunction::Part& part = conjunction.parts[i];
    if (!part.any_of_done && part.schema->Find("anyOf") != nullptr) {
      return CompileAlternatives(conjunction, i, false);
    }
    if (!part.one_of_done && part.schema->Find("oneOf") != nullptr) {
      return CompileAlternatives(conjunction, i, true);
    }
  }
  if (++leaves_ > pool_.limits().schema_combinations) {
    return absl::ResourceExhaustedError(StrCat("the schema has more than ",
                                               pool_.limits().schema_combinations,
                                               " subschemas and combinations of alternatives"));
  }
  return CompileLeaf(conjunction);
}

Result<ExprId> SchemaCompiler::CompileAlternatives(const Conjunction& conjunction, size_t part,
                                                   bool one_of) {
  const JsonValue* schema = conjunction.parts[part].schema;
  const std::string_view keyword = one_of ? "oneOf" : "anyOf";
  const JsonValue* list = schema->Find(keyword);
  if (!list->IsArray() || list->items.empty()) {
    return Error(schema, keyword, "must be an array of schemas");
  }
  std::vector<Conjunction> alternatives;
  for (const JsonValue& item : list->items) {
    Conjunction alternative = conjunction;
    (one_of ? alternative.parts[part].one_of_done : alternative.parts[part].any_of_done) = true;
    Schemas within = {schema};
    STAFFEL_RETURN_IF_ERROR(Expand(&item, alternative, within));
    if (!alternative.never) alternatives.push_back(std::move(alternative));
  }
  if (one_of) {
    bool disjoint = true;
    for (size_t a = 0; disjoint && a < alternatives.size(); ++a) {
      for (size_t b = a + 1; disjoint && b < alternatives.size(); ++b) {
        STAFFEL_ASSIGN_OR_RETURN(disjoint, Disjoint(alternatives[a], alternatives[b], 0));
      }
    }
    if (!disjoint) {
      STAFFEL_ASSIGN_OR_RETURN(disjoint, RequireDiscriminator(alternatives));
    }
    if (!disjoint) {
      return Error(schema, "oneOf",
                   "has alternatives that may both be satisfied; use anyOf, or a required property "
                   "with a const in each");
    }
  }
  std::vector<ExprId> choices;
  for (const Conjunction& alternative : alternatives) {
    STAFFEL_ASSIGN_OR_RETURN(const ExprId choice, Compile(alternative));
    choices.push_back(choice);
  }
  return pool_.Choice(choices);
}

Result<ExprId> SchemaCompiler::CompileLeaf(const Conjunction& conjunction) {
  for (const Conjunction::Part& part : conjunction.parts) {
    if (part.schema->Find("enum") != nullptr || part.schema->Find("const") != nullptr) {
      return CompileValues(conjunction, part.schema);
    }
  }
  STAFFEL_ASSIGN_OR_RETURN(const uint8_t types, TypesOf(conjunction));
  std::vector<ExprId> choices;
  const auto add = [&](Result<ExprId> choice) -> Status {
    if (choice.ok()) choices.push_back(*choice);
    return choice.status();
  };
  if (types & kNullType) choices.push_back(pool_.Literal("null"));
  if (types & kBoolType) choices.push_back(terms_.AnyBool());
  if (types & (kIntegerType | kFractionType)) {
    STAFFEL_RETURN_IF_ERROR(add(CompileNumber(conjunction, (types & kFractionType) == 0)));
  }
  if (types & kStringType) STAFFEL_RETURN_IF_ERROR(add(CompileString(conjunction)));
  if (types & kArrayType) STAFFEL_RETURN_IF_ERROR(add(CompileArray(conjunction)));
  if (types & kObjectType) STAFFEL_RETURN_IF_ERROR(add(CompileObject(conjunction)));
  return pool_.Choice(choices);
}

Result<ExprId> SchemaCompiler::CompileValues(const Conjunction& conjunction,
                                             const JsonValue* source) {
  Schemas values;
  if (const JsonValue* constant = source->Find("const")) {
    values.push_back(constant);
  } else {
    const JsonValue* list = source->Find("enum");
    if (!list->IsArray() || list->items.empty()) {
      return Error(source, "enum", "must be an array of values");
    }
    for (const JsonValue& item : list->items) values.push_back(&item);
  }
  // The list itself needs no check of each of its values against all of them.
  const bool alone = source->Find("const") == nullptr;
  JsonValue others;
  others.kind = JsonValue::Kind::kObject;
  for (const auto& member : source->members) {
    const bool of_list = alone && member.first == "enum";
    if (!of_list && !Annotations().contains(member.first)) others.members.push_back(member);
  }
  std::vector<ExprId> choices;
  for (const JsonValue* value : values) {
    STAFFEL_ASSIGN_OR_RETURN(bool valid, Validates(*value, others));
    for (const Conjunction::Part& part : conjunction.parts) {
      if (!valid) break;
      if (part.schema == source) continue;
      STAFFEL_ASSIGN_OR_RETURN(valid, Validates(*value, *part.schema));
    }
    if (valid) choices.push_back(terms_.Constant(*value));
  }
  return pool_.Choice(choices);
}

Result<RuleId> SchemaCompiler::Run(std::string_view text) {
  STAFFEL_ASSIGN_OR_RETURN(root_, ParseJson(text, pool_.limits()));
  STAFFEL_ASSIGN_OR_RETURN(const ExprId expr, CompileAll({&root_}));
  const RuleId rule = pool_.NewRule("the schema");
  pool_.Define(rule, expr);
  return rule;
}

Result<RuleId> ParseJsonSchema(ExprPool& pool, std::string_view schema, JsonSpace space) {
  return SchemaCompiler(pool, space).Run(schema);
}

RuleId AnyJsonObject(ExprPool& pool, JsonSpace space) {
  const RuleId rule = pool.NewRule("a JSON object");
  pool.Define(rule, JsonTerms(pool, space).AnyObject());
  return rule;
}

}  // namespace staffel::grammar
