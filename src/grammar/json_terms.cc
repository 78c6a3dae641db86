#include "grammar/json_terms.h"

#include <vector>

#include "grammar/number_range.h"

namespace staffel::grammar {
namespace {

constexpr int kIndentMax = 16;  // spaces or tabs after a line feed

}  // namespace

JsonTerms::JsonTerms(ExprPool& pool, JsonSpace space) : pool_(pool) {
  space_ = pool.Empty();
  colon_ = pool.Literal(":");
  comma_ = pool.Literal(",");
  if (space == JsonSpace::kNone) return;
  const ExprId blank = pool.Literal(" ");
  const ExprId indent = pool.Repeat(pool.Chars(CharSet::Of(" \t"), Encoding::kRaw), 0, kIndentMax);
  const RuleId rule = pool.NewRule("JSON white space");
  pool.Define(rule,
              pool.Choice({pool.Empty(), blank, pool.Sequence({pool.Literal("\n"), indent})}));
  space_ = pool.Rule(rule);
  colon_ = pool.Sequence({colon_, pool.Optional(blank)});
  comma_ = pool.Sequence({comma_, space_});
}

ExprId JsonTerms::StringChar() { return pool_.Chars(CharSet::All(), Encoding::kJson); }

ExprId JsonTerms::AnyString() {
  return pool_.Share(Quoted(pool_.Repeat(StringChar(), 0, kUnbounded)), "a JSON string");
}

ExprId JsonTerms::AnyNumber() { return pool_.Share(AnyNumberExpr(pool_), "a JSON number"); }

ExprId JsonTerms::AnyInteger() { return pool_.Share(AnyIntegerExpr(pool_), "a JSON integer"); }

ExprId JsonTerms::AnyBool() {
  return pool_.Choice({pool_.Literal("true"), pool_.Literal("false")});
}

ExprId JsonTerms::AnyValue() {
  if (any_value_ < 0) {
    any_value_ = pool_.NewRule("a JSON value");
    pool_.Define(any_value_, pool_.Choice({pool_.Literal("null"), AnyBool(), AnyNumber(),
                                           AnyString(), AnyArray(), AnyObject()}));
  }
  return pool_.Rule(any_value_);
}

ExprId JsonTerms::AnyObject() {
  if (any_object_ < 0) {
    any_object_ = pool_.NewRule("a JSON object");
    const ExprId member = pool_.Share(Member(AnyString(), AnyValue()), "a member");
    const ExprId more = pool_.Repeat(pool_.Sequence({comma_, member}), 0, kUnbounded);
    pool_.Define(any_object_, Braces(pool_.Optional(pool_.Sequence({member, more, space_}))));
  }
  return pool_.Rule(any_object_);
}

ExprId JsonTerms::AnyArray() {
  if (any_array_ < 0) {
    any_array_ = pool_.NewRule("a JSON array");
    const ExprId value = AnyValue();
    const ExprId more = pool_.Repeat(pool_.Sequence({comma_, value}), 0, kUnbounded);
    pool_.Define(any_array_, Brackets(pool_.Optional(pool_.Sequence({value, more, space_}))));
  }
  return pool_.Rule(any_array_);
}

ExprId JsonTerms::Enclosed(std::string_view open, ExprId content, std::string_view close) {
  return pool_.Sequence({pool_.Literal(open), space_, content, pool_.Literal(close)});
}

ExprId JsonTerms::Braces(ExprId content) { return Enclosed("{", content, "}"); }

ExprId JsonTerms::Brackets(ExprId content) { return Enclosed("[", content, "]"); }

ExprId JsonTerms::Constant(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      return pool_.Literal("null");
    case JsonValue::Kind::kBool:
      return pool_.Literal(value.boolean ? "true" : "false");
    case JsonValue::Kind::kNumber:
      return pool_.Literal(value.text);
    case JsonValue::Kind::kString:
      return pool_.Literal(QuoteJson(value.text));
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      break;
  }
  const bool array = value.kind == JsonValue::Kind::kArray;
  std::vector<ExprId> parts;
  for (const JsonValue& item : value.items) {
    if (!parts.empty()) parts.push_back(comma_);
    parts.push_back(Constant(item));
  }
  for (const auto& [key, member] : value.members) {
    if (!parts.empty()) parts.push_back(comma_);
    parts.push_back(Member(pool_.Literal(QuoteJson(key)), Constant(member)));
  }
  if (!parts.empty()) parts.push_back(space_);
  const ExprId content = pool_.Sequence(parts);
  return array ? Brackets(content) : Braces(content);
}

}  // namespace staffel::grammar
