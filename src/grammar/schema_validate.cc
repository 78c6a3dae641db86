#include <algorithm>
#include <string>

#include "base/strings.h"
#include "grammar/char_set.h"
#include "grammar/schema_compiler.h"

namespace staffel::grammar {
namespace {

int CodePoints(std::string_view text) {
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

uint8_t TypeOf(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      return kNullType;
    case JsonValue::Kind::kBool:
      return kBoolType;
    case JsonValue::Kind::kNumber:
      return value.number.IsInteger() ? kIntegerType : kFractionType;
    case JsonValue::Kind::kString:
      return kStringType;
    case JsonValue::Kind::kArray:
      return kArrayType;
    case JsonValue::Kind::kObject:
      return kObjectType;
  }
  return 0;
}

bool TypeIs(const JsonValue& value, std::string_view name) {
  const uint8_t type = TypeOf(value);
  return (name == "null" && type == kNullType) || (name == "boolean" && type == kBoolType) ||
         (name == "integer" && type == kIntegerType) || (name == "number" && value.IsNumber()) ||
         (name == "string" && type == kStringType) || (name == "array" && type == kArrayType) ||
         (name == "object" && type == kObjectType);
}

bool OneOfTypes(const JsonValue& value, const JsonValue& type) {
  if (type.IsString()) return TypeIs(value, type.text);
  return std::any_of(type.items.begin(), type.items.end(),
                     [&](const JsonValue& name) { return TypeIs(value, name.text); });
}

}  // namespace

Result<bool> SchemaCompiler::Validates(const JsonValue& value, const JsonValue& schema, int depth) {
  if (schema.kind == JsonValue::Kind::kBool) return schema.boolean;
  if (depth > pool_.limits().schema_depth) {
    return Error(&schema, "enum", "has a value whose check is nested too deeply");
  }
  STAFFEL_RETURN_IF_ERROR(CheckKeywords(schema));
  for (const std::string_view keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
    if (schema.Find(keyword) == nullptr) continue;
    Schemas in_place;
    STAFFEL_RETURN_IF_ERROR(CollectInPlace(schema, in_place));
    if (in_place.size() > 1) {
      return Error(&schema, keyword, "is not supported here beside allOf, anyOf, oneOf or $ref");
    }
  }
  const auto any_equal = [&](const JsonValue& list) {
    return std::any_of(list.items.begin(), list.items.end(),
                       [&](const JsonValue& item) { return JsonEqual(item, value); });
  };
  if (const JsonValue* reference = schema.Find("$ref"); reference && reference->IsString()) {
    STAFFEL_ASSIGN_OR_RETURN(const JsonValue* target, Resolve(schema, reference->text));
    STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(value, *target, depth + 1));
    if (!valid) return false;
  }
  if (const JsonValue* type = schema.Find("type")) {
    const JsonValue* nullable = schema.Find("nullable");
    const bool null_too = nullable != nullptr && nullable->boolean;
    if (!OneOfTypes(value, *type) && !(null_too && value.kind == JsonValue::Kind::kNull)) {
      return false;
    }
  }
  if (const JsonValue* constant = schema.Find("const"); constant && !JsonEqual(*constant, value)) {
    return false;
  }
  if (const JsonValue* list = schema.Find("enum"); list && !any_equal(*list)) return false;
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* list = schema.Find(keyword);
    if (list == nullptr) continue;
    size_t valid_count = 0;
    for (const JsonValue& item : list->items) {
      STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(value, item, depth + 1));
      valid_count += valid;
    }
    if (keyword == "allOf"   ? valid_count < list->items.size()
        : keyword == "anyOf" ? valid_count == 0
                             : valid_count != 1) {
      return false;
    }
  }
  if (const JsonValue* none = schema.Find("not")) {
    STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(value, *none, depth + 1));
    if (valid) return false;
  }
  switch (value.kind) {
    case JsonValue::Kind::kNumber:
      return ValidatesNumber(value, schema);
    case JsonValue::Kind::kString:
      return ValidatesString(value, schema);
    case JsonValue::Kind::kArray:
      return ValidatesArray(value, schema, depth);
    case JsonValue::Kind::kObject:
      return ValidatesObject(value, schema, depth);
    default:
      return true;
  }
}

Result<bool> SchemaCompiler::ValidatesNumber(const JsonValue& value,
                                             const JsonValue& schema) const {
  Conjunction alone;
  alone.parts.push_back({&schema});
  STAFFEL_ASSIGN_OR_RETURN(const NumberBounds bounds, BoundsOf(alone, false));
  return bounds.Contains(value.number);
}

Result<bool> SchemaCompiler::ValidatesString(const JsonValue& value, const JsonValue& schema) {
  STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> least, Count(schema, "minLength"));
  STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> most, Count(schema, "maxLength"));
  const int length = CodePoints(value.text);
  if (length < least.value_or(0) || (most && length > *most)) return false;
  const JsonValue* pattern = schema.Find("pattern");
  if (pattern == nullptr) return true;
  STAFFEL_ASSIGN_OR_RETURN(const auto dfa, PatternDfa({pattern->text, false}));
  return dfa->Accepts(value.text);
}

Result<bool> SchemaCompiler::ValidatesArray(const JsonValue& value, const JsonValue& schema,
                                            int depth) {
  STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> least, Count(schema, "minItems"));
  STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> most, Count(schema, "maxItems"));
  const int count = static_cast<int>(value.items.size());
  if (count < least.value_or(0) || (most && count > *most)) return false;
  const JsonValue* prefix = schema.Find("prefixItems");
  const JsonValue* rest = schema.Find("items");
  if (prefix == nullptr && rest != nullptr && rest->IsArray()) {
    prefix = rest;
    rest = schema.Find("additionalItems");
  }
  if (const JsonValue* closed = schema.Find("unevaluatedItems"); closed && rest == nullptr) {
    rest = closed;
  }
  for (size_t i = 0; i < value.items.size(); ++i) {
    const bool in_prefix = prefix != nullptr && i < prefix->items.size();
    const JsonValue* own = in_prefix ? &prefix->items[i] : rest;
    if (own == nullptr) continue;
    STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(value.items[i], *own, depth + 1));
    if (!valid) return false;
  }
  const JsonValue* unique = schema.Find("uniqueItems");
  if (unique == nullptr || !unique->boolean) return true;
  for (size_t i = 0; i < value.items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (JsonEqual(value.items[i], value.items[j])) return false;
    }
  }
  return true;
}

Result<bool> SchemaCompiler::ValidatesObject(const JsonValue& value, const JsonValue& schema,
                                             int depth) {
  Conjunction alone;
  alone.parts.push_back({&schema});
  STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> least, Count(schema, "minProperties"));
  STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> most, Count(schema, "maxProperties"));
  const int count = static_cast<int>(value.members.size());
  if (count < least.value_or(0) || (most && count > *most)) return false;
  if (const JsonValue* required = schema.Find("required")) {
    for (const JsonValue& name : required->items) {
      if (value.Find(name.text) == nullptr) return false;
    }
  }
  if (const JsonValue* dependent = schema.Find("dependentRequired")) {
    for (const auto& [name, needed] : dependent->members) {
      if (value.Find(name) == nullptr) continue;
      for (const JsonValue& need : needed.items) {
        if (value.Find(need.text) == nullptr) return false;
      }
    }
  }
  for (const auto& [name, member] : value.members) {
    STAFFEL_ASSIGN_OR_RETURN(Schemas schemas, SchemasOfName(alone, name));
    const JsonValue* rest = schema.Find("unevaluatedProperties");
    if (schemas.empty() && rest != nullptr) schemas.push_back(rest);
    for (const JsonValue* own : schemas) {
      STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(member, *own, depth + 1));
      if (!valid) return false;
    }
    if (const JsonValue* names = schema.Find("propertyNames")) {
      const JsonValue name_value{.kind = JsonValue::Kind::kString, .text = name};
      STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(name_value, *names, depth + 1));
      if (!valid) return false;
    }
  }
  return true;
}

}  // namespace staffel::grammar
