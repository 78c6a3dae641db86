// From a JSON Schema to rules. What a place of the text must satisfy is a conjunction of
// subschemas: those that $ref, allOf and several keywords put together. One conjunction is compiled
// once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "grammar/expr.h"
#include "grammar/json_terms.h"
#include "grammar/json_value.h"
#include "grammar/number_range.h"
#include "staffel/status.h"

namespace staffel::grammar {

enum JsonTypes : uint8_t {
  kNullType = 1,
  kBoolType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // numbers that are no integers
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127,
};

struct Conjunction {
  struct Part {
    const JsonValue* schema;  // an object
    // Alternatives of the part that were chosen already, their choice being a part of its own.
    bool any_of_done = false, one_of_done = false;
    auto operator<=>(const Part&) const = default;
  };
  std::vector<Part> parts;  // in the order in which they were met
  bool never = false;       // a false among them
};

class SchemaCompiler {
 public:
  SchemaCompiler(ExprPool& pool, JsonSpace space) : pool_(pool), terms_(pool, space) {}

  Result<RuleId> Run(std::string_view text);
  // The members of an object, as ValueForm::kXml writes them.
  Result<RuleId> RunXml(std::string_view text);

 private:
  using Schemas = std::vector<const JsonValue*>;

  // json_schema.cc: what belongs together.
  Status Error(const JsonValue* schema, std::string_view keyword, std::string_view what) const;
  std::string PointerOf(const JsonValue* schema) const;
  Status CheckKeywords(const JsonValue& schema) const;
  Result<const JsonValue*> Resolve(const JsonValue& schema, const std::string& reference) const;
  Status Expand(const JsonValue* schema, Conjunction& to, Schemas& within);
  Status ExpandAll(const Schemas& schemas, Conjunction& to);
  Result<ExprId> CompileAll(const Schemas& schemas);
  // All of the conjunction must come from `schema`, which has unevaluated...: what others say is
  // not evaluated for it.
  Status CheckUnevaluated(const Conjunction& conjunction, const JsonValue& schema,
                          std::string_view keyword) const;
  // Adds the subschemas that speak of the same value.
  Status CollectInPlace(const JsonValue& schema, Schemas& to) const;
  Result<ExprId> Compile(const Conjunction& conjunction);
  Result<ExprId> CompileNew(const Conjunction& conjunction);
  Result<ExprId> CompileAlternatives(const Conjunction& conjunction, size_t part, bool one_of);
  Result<ExprId> CompileLeaf(const Conjunction& conjunction);
  Result<ExprId> CompileValues(const Conjunction& conjunction, const JsonValue* source);

  // schema_types.cc: values of one type.
  Result<uint8_t> TypesOf(const Conjunction& conjunction) const;
  Result<std::optional<int>> Count(const JsonValue& schema, std::string_view keyword) const;
  Result<std::pair<int, int>> CountBounds(const Conjunction& conjunction, std::string_view least,
                                          std::string_view most) const;
  Result<NumberBounds> BoundsOf(const Conjunction& conjunction, bool integer) const;
  Result<ExprId> CompileNumber(const Conjunction& conjunction, bool integer);
  // Patterns that a string must match, each with how; formats included.
  struct TextPattern {
    std::string pattern;
    bool whole;
    auto operator<=>(const TextPattern&) const = default;
  };
  Result<std::vector<TextPattern>> PatternsOf(const Conjunction& conjunction) const;
  Result<std::shared_ptr<const CharDfa>> PatternDfa(const TextPattern& pattern);
  // All texts that the conjunction allows, as a DFA. InvalidArgument: it has alternatives.
  Result<CharDfa> TextsOf(const Conjunction& conjunction);
  Result<ExprId> CompileString(const Conjunction& conjunction);
  Result<ExprId> CompileArray(const Conjunction& conjunction);

  // schema_object.cc
  struct ObjectShape {
    std::vector<std::string> names;                   // declared, in order
    absl::flat_hash_map<std::string, bool> required;  // of each declared name
    Schemas name_schemas;                             // propertyNames
    bool open = true;                                 // names that nothing speaks of are allowed
    int min = 0, max = kUnbounded;
  };
  Result<ObjectShape> ShapeOf(const Conjunction& conjunction);
  Status CheckDependencies(const Conjunction& conjunction, const ObjectShape& shape) const;
  Result<Schemas> SchemasOfName(const Conjunction& conjunction, const std::string& name);
  Result<ExprId> CompileFurtherMember(const Conjunction& conjunction, const ObjectShape& shape);
  Result<ExprId> CompileObject(const Conjunction& conjunction);
  struct Entry {
    ExprId member;
    bool required;
  };
  ExprId ObjectContent(const std::vector<Entry>& entries, ExprId further, int min, int max);
  ExprId FurtherMembers(ExprId further, int count, int min, int max);

  // schema_xml.cc
  Result<ExprId> CompileXmlMember(const Conjunction& conjunction, const std::string& name);

  // schema_validate.cc: whether a value satisfies a schema, formats aside.
  Result<bool> Validates(const JsonValue& value, const JsonValue& schema, int depth = 0);
  Result<bool> ValidatesNumber(const JsonValue& value, const JsonValue& schema) const;
  Result<bool> ValidatesString(const JsonValue& value, const JsonValue& schema);
  Result<bool> ValidatesArray(const JsonValue& value, const JsonValue& schema, int depth);
  Result<bool> ValidatesObject(const JsonValue& value, const JsonValue& schema, int depth);

  // schema_one_of.cc: whether no value satisfies both.
  Result<bool> Disjoint(const Conjunction& a, const Conjunction& b, int depth);
  Result<bool> DisjointObjects(const Conjunction& a, const Conjunction& b, int depth);
  Result<bool> DisjointStrings(const Conjunction& a, const Conjunction& b);
  Result<bool> DisjointNumbers(const Conjunction& a, const Conjunction& b) const;
  Result<std::vector<Conjunction>> Branches(const Conjunction& conjunction);
  // Makes alternatives exclude each other by requiring a property that tells them apart.
  Result<bool> RequireDiscriminator(std::vector<Conjunction>& alternatives);

  struct Memo {
    ExprId expr = -1;  // -1: being compiled
    RuleId rule = -1;  // given when it was met within itself
  };

  ExprPool& pool_;
  JsonTerms terms_;
  JsonValue root_;
  std::map<std::vector<Conjunction::Part>, Memo> memo_;
  std::map<TextPattern, std::shared_ptr<const CharDfa>> pattern_dfas_;
  std::deque<JsonValue> made_;  // schemas that the compiler adds
  int depth_ = 0;
  int64_t leaves_ = 0;
};

}  // namespace staffel::grammar
