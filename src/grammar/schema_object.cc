#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/strings.h"
#include "grammar/schema_compiler.h"

namespace staffel::grammar {
namespace {

// Subsets of patternProperties are told apart; more patterns than this would be too many subsets.
constexpr size_t kPatternsMax = 6;
constexpr int kCountedMembersMax = 20'000;  // of declared members times counts

}  // namespace

Result<SchemaCompiler::ObjectShape> SchemaCompiler::ShapeOf(const Conjunction& conjunction) {
  ObjectShape shape;
  bool says_further = false, has_properties = false, closed = false;
  const auto declare = [&](const std::string& name, bool required) {
    auto [found, added] = shape.required.emplace(name, required);
    if (added) shape.names.push_back(name);
    found->second |= required;
  };
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue& schema = *part.schema;
    if (const JsonValue* properties = schema.Find("properties")) {
      if (!properties->IsObject()) return Error(&schema, "properties", "must be an object");
      for (const auto& [name, value] : properties->members) declare(name, false);
      has_properties = true;
    }
    says_further |= schema.Find("additionalProperties") != nullptr ||
                    schema.Find("patternProperties") != nullptr;
    if (const JsonValue* rest = schema.Find("unevaluatedProperties")) {
      if (rest->kind != JsonValue::Kind::kBool) {
        return Error(&schema, "unevaluatedProperties", "is supported as a boolean only");
      }
      says_further = true;
      closed |= !rest->boolean;
      STAFFEL_RETURN_IF_ERROR(CheckUnevaluated(conjunction, schema, "unevaluatedProperties"));
    }
    if (const JsonValue* names = schema.Find("propertyNames")) shape.name_schemas.push_back(names);
  }
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue* required = part.schema->Find("required");
    if (required == nullptr || required->kind == JsonValue::Kind::kBool)
      continue;  // draft 3's flag
    if (!required->IsArray()) return Error(part.schema, "required", "must be an array of names");
    for (const JsonValue& name : required->items) {
      if (!name.IsString()) return Error(part.schema, "required", "must be an array of names");
      declare(name.text, true);
    }
  }
  shape.open = !closed && (says_further || !has_properties);
  STAFFEL_ASSIGN_OR_RETURN(const auto bounds,
                           CountBounds(conjunction, "minProperties", "maxProperties"));
  shape.min = bounds.first;
  shape.max = bounds.second;
  STAFFEL_RETURN_IF_ERROR(CheckDependencies(conjunction, shape));
  return shape;
}

Status SchemaCompiler::CheckDependencies(const Conjunction& conjunction,
                                         const ObjectShape& shape) const {
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue* dependent = part.schema->Find("dependentRequired");
    if (dependent == nullptr) continue;
    for (const auto& [name, needed] : dependent->members) {
      for (const JsonValue& need : needed.items) {
        const auto found = shape.required.find(need.text);
        if (found != shape.required.end() && found->second) continue;
        return Error(part.schema, "dependentRequired",
                     "is supported only where \"required\" has what it asks for");
      }
    }
  }
  return absl::OkStatus();
}

// Every subschema that speaks of the member `name`.
Result<SchemaCompiler::Schemas> SchemaCompiler::SchemasOfName(const Conjunction& conjunction,
                                                              const std::string& name) {
  Schemas schemas;
  for (const Conjunction::Part& part : conjunction.parts) {
    bool spoken_of = false;
    if (const JsonValue* properties = part.schema->Find("properties")) {
      if (const JsonValue* own = properties->Find(name)) {
        schemas.push_back(own);
        spoken_of = true;
      }
    }
    if (const JsonValue* patterns = part.schema->Find("patternProperties")) {
      for (const auto& [pattern, schema] : patterns->members) {
        STAFFEL_ASSIGN_OR_RETURN(const auto dfa, PatternDfa({pattern, false}));
        if (!dfa->Accepts(name)) continue;
        schemas.push_back(&schema);
        spoken_of = true;
      }
    }
    const JsonValue* rest = part.schema->Find("additionalProperties");
    if (!spoken_of && rest != nullptr) schemas.push_back(rest);
  }
  return schemas;
}

// A member whose name is not declared: for each set of patterns that names may match, those names
// with what these patterns, or additionalProperties, say of the value.
Result<ExprId> SchemaCompiler::CompileFurtherMember(const Conjunction& conjunction,
                                                    const ObjectShape& shape) {
  struct Pattern {
    size_t part;
    const JsonValue* schema;
    std::shared_ptr<const CharDfa> dfa;
  };
  std::vector<Pattern> patterns;
  for (size_t p = 0; p < conjunction.parts.size(); ++p) {
    const JsonValue* own = conjunction.parts[p].schema->Find("patternProperties");
    if (own == nullptr) continue;
    if (!own->IsObject()) {
      return Error(conjunction.parts[p].schema, "patternProperties", "must be an object");
    }
    for (const auto& [pattern, schema] : own->members) {
      STAFFEL_ASSIGN_OR_RETURN(auto dfa, PatternDfa({pattern, false}));
      patterns.push_back({p, &schema, std::move(dfa)});
    }
    if (patterns.size() > kPatternsMax) {
      return Error(conjunction.parts[p].schema, "patternProperties",
                   StrCat("is supported with up to ", kPatternsMax, " patterns"));
    }
  }
  const int64_t limit = pool_.limits().dfa_states;
  std::vector<std::string_view> declared(shape.names.begin(), shape.names.end());
  CharDfa names = CharDfa::AllBut(declared);
  bool any_name = declared.empty() && patterns.empty() && shape.name_schemas.empty();
  if (!shape.name_schemas.empty()) {
    Conjunction of_names;
    STAFFEL_RETURN_IF_ERROR(ExpandAll(shape.name_schemas, of_names));
    for (const Conjunction::Part& part : of_names.parts) {
      for (const std::string_view keyword : {"anyOf", "oneOf", "not"}) {
        if (part.schema->Find(keyword) == nullptr) continue;
        return Error(part.schema, keyword, "is not supported within propertyNames");
      }
    }
    STAFFEL_ASSIGN_OR_RETURN(const CharDfa allowed, TextsOf(of_names));
    STAFFEL_ASSIGN_OR_RETURN(names, CharDfa::Intersect(names, allowed, limit));
  }
  std::vector<ExprId> members;
  for (unsigned chosen = 0; chosen < 1u << patterns.size(); ++chosen) {
    Schemas schemas;
    std::vector<bool> spoken_of(conjunction.parts.size());
    CharDfa keys = names;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const bool matches = chosen >> i & 1;
      STAFFEL_ASSIGN_OR_RETURN(
          keys, CharDfa::Intersect(keys, matches ? *patterns[i].dfa : patterns[i].dfa->Complement(),
                                   limit));
      if (!matches) continue;
      schemas.push_back(patterns[i].schema);
      spoken_of[patterns[i].part] = true;
    }
    if (keys.IsEmpty() || (chosen == 0 && !shape.open)) {
      bool named_by_rest = false;
      for (const Conjunction::Part& part : conjunction.parts) {
        named_by_rest |= part.schema->Find("additionalProperties") != nullptr;
      }
      if (keys.IsEmpty() || !named_by_rest) continue;
    }
    for (size_t p = 0; p < conjunction.parts.size(); ++p) {
      const JsonValue* rest = conjunction.parts[p].schema->Find("additionalProperties");
      if (rest != nullptr && !spoken_of[p]) schemas.push_back(rest);
      // Where patterns are given and nothing else, other names are left out.
      if (rest == nullptr && !spoken_of[p] &&
          conjunction.parts[p].schema->Find("patternProperties") != nullptr) {
        schemas.push_back(&made_.emplace_back(JsonValue{.kind = JsonValue::Kind::kBool}));
      }
    }
    STAFFEL_ASSIGN_OR_RETURN(const ExprId value, CompileAll(schemas));
    const ExprId key =
        any_name
            ? terms_.AnyString()
            : pool_.Share(terms_.Quoted(pool_.Dfa(std::make_shared<const CharDfa>(std::move(keys)),
                                                  Encoding::kJson)),
                          "a further name");
    members.push_back(terms_.Member(key, value));
  }
  return pool_.Share(pool_.Choice(members), "a further member");
}

Result<ExprId> SchemaCompiler::CompileObject(const Conjunction& conjunction) {
  STAFFEL_ASSIGN_OR_RETURN(const ObjectShape shape, ShapeOf(conjunction));
  std::vector<Entry> entries;
  for (const std::string& name : shape.names) {
    const bool required = shape.required.at(name);
    STAFFEL_ASSIGN_OR_RETURN(const Schemas schemas, SchemasOfName(conjunction, name));
    ExprId value = pool_.Never();
    bool name_allowed = true;
    const JsonValue name_value{.kind = JsonValue::Kind::kString, .text = name};
    for (const JsonValue* names : shape.name_schemas) {
      STAFFEL_ASSIGN_OR_RETURN(const bool valid, Validates(name_value, *names));
      name_allowed &= valid;
    }
    if (name_allowed) {
      STAFFEL_ASSIGN_OR_RETURN(value, CompileAll(schemas));
    }
    if (value == pool_.Never()) {
      if (required) return pool_.Never();
      continue;
    }
    entries.push_back({terms_.Member(pool_.Literal(QuoteJson(name)), value), required});
  }
  STAFFEL_ASSIGN_OR_RETURN(const ExprId further, CompileFurtherMember(conjunction, shape));
  const int declared = static_cast<int>(entries.size());
  if (shape.min > declared + 1 && further != pool_.Never()) {
    // Names of further members may be equal, and equal ones count once.
    return Error(conjunction.parts[0].schema, "minProperties",
                 "is supported up to one more than there are declared properties");
  }
  if (shape.max != kUnbounded && shape.max < shape.min) return pool_.Never();
  const int64_t counts = std::max(shape.min, std::min(shape.max, declared)) + 1;
  if (counts * declared > kCountedMembersMax && (shape.min > 0 || shape.max != kUnbounded)) {
    return Error(conjunction.parts[0].schema, shape.min > 0 ? "minProperties" : "maxProperties",
                 "beside so many properties needs too many states");
  }
  return terms_.Braces(ObjectContent(entries, further, shape.min, shape.max));
}

// Members behind the declared ones, `count` of which there are.
ExprId SchemaCompiler::FurtherMembers(ExprId further, int count, int min, int max) {
  const int least = std::max(0, min - count);
  const int most = max == kUnbounded ? kUnbounded : max - count;
  if (most != kUnbounded && most < least) return pool_.Never();
  const ExprId with_comma = pool_.Sequence({terms_.comma(), further});
  if (count > 0) return pool_.Sequence({pool_.Repeat(with_comma, least, most), terms_.space()});
  if (further == pool_.Never() || most == 0) return least == 0 ? pool_.Empty() : pool_.Never();
  const ExprId some = pool_.Sequence(
      {further,
       pool_.Repeat(with_comma, std::max(0, least - 1), most == kUnbounded ? kUnbounded : most - 1),
       terms_.space()});
  return least == 0 ? pool_.Optional(some) : some;
}

// A chain of rules (i, c): the declared members from i on, c of those before having been written. c
// matters up to where it no longer tells anything apart.
ExprId SchemaCompiler::ObjectContent(const std::vector<Entry>& entries, ExprId further, int min,
                                     int max) {
  const int count = static_cast<int>(entries.size());
  const int counted_to = std::max({1, min, max == kUnbounded ? 0 : max});
  std::vector<ExprId> next;  // of i + 1, for each c
  for (int c = 0; c <= std::min(count, counted_to); ++c) {
    next.push_back(FurtherMembers(further, c, min, max));
  }
  for (int i = count - 1; i >= 0; --i) {
    std::vector<ExprId> own;
    for (int c = 0; c <= std::min(i, counted_to); ++c) {
      std::vector<ExprId> choices;
      const bool room = max == kUnbounded || c < max;
      const auto follow = [&](ExprId expr) {
        // An optional member's rest is reached in two ways.
        return entries[i].required ? expr : pool_.Share(expr, "the rest of an object");
      };
      if (room) {
        const ExprId rest = follow(next[std::min(c + 1, counted_to)]);
        choices.push_back(c == 0 ? pool_.Sequence({entries[i].member, rest})
                                 : pool_.Sequence({terms_.comma(), entries[i].member, rest}));
      }
      if (!entries[i].required) choices.push_back(follow(next[c]));
      own.push_back(pool_.Choice(choices));
    }
    next = std::move(own);
  }
  return next[0];
}

}  // namespace staffel::grammar
