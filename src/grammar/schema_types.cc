#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/strings.h"
#include "grammar/formats.h"
#include "grammar/regex.h"
#include "grammar/schema_compiler.h"

namespace staffel::grammar {
namespace {

constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kTypeNames = {{
    {"null", kNullType},
    {"boolean", kBoolType},
    {"integer", kIntegerType},
    {"number", kIntegerType | kFractionType},
    {"string", kStringType},
    {"array", kArrayType},
    {"object", kObjectType},
}};

// Keywords that speak of one type only.
constexpr std::array<std::pair<std::string_view, uint8_t>, 23> kTypeOfKeyword = {{
    {"properties", kObjectType},
    {"required", kObjectType},
    {"additionalProperties", kObjectType},
    {"patternProperties", kObjectType},
    {"propertyNames", kObjectType},
    {"minProperties", kObjectType},
    {"maxProperties", kObjectType},
    {"dependentRequired", kObjectType},
    {"unevaluatedProperties", kObjectType},
    {"items", kArrayType},
    {"prefixItems", kArrayType},
    {"minItems", kArrayType},
    {"maxItems", kArrayType},
    {"uniqueItems", kArrayType},
    {"unevaluatedItems", kArrayType},
    {"minimum", kIntegerType | kFractionType},
    {"maximum", kIntegerType | kFractionType},
    {"exclusiveMinimum", kIntegerType | kFractionType},
    {"exclusiveMaximum", kIntegerType | kFractionType},
    {"multipleOf", kIntegerType | kFractionType},
    {"minLength", kStringType},
    {"maxLength", kStringType},
    {"pattern", kStringType},
}};

uint8_t TypeNamed(std::string_view name) {
  for (const auto& [known, types] : kTypeNames) {
    if (known == name) return types;
  }
  return 0;
}

// OpenAPI's formats of integers.
struct IntegerFormat {
  std::string_view name, min, max;
};
constexpr std::array<IntegerFormat, 8> kIntegerFormats = {{
    {"int8", "-128", "127"},
    {"int16", "-32768", "32767"},
    {"int32", "-2147483648", "2147483647"},
    {"int64", "-9223372036854775808", "9223372036854775807"},
    {"uint8", "0", "255"},
    {"uint16", "0", "65535"},
    {"uint32", "0", "4294967295"},
    {"uint64", "0", "18446744073709551615"},
}};

const IntegerFormat* FindIntegerFormat(std::string_view name) {
  for (const IntegerFormat& format : kIntegerFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

Decimal ToDecimal(std::string_view digits) {
  Decimal decimal;
  decimal.negative = digits.starts_with('-');
  if (decimal.negative) digits.remove_prefix(1);
  if (digits != "0") decimal.whole = digits;
  return decimal;
}

}  // namespace

Result<uint8_t> SchemaCompiler::TypesOf(const Conjunction& conjunction) const {
  uint8_t types = kAllTypes, implied = 0, excluded = 0;
  bool stated = false;
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue& schema = *part.schema;
    if (const JsonValue* type = schema.Find("type")) {
      uint8_t own = 0;
      std::vector<const JsonValue*> names = {type};
      if (type->IsArray()) {
        names.clear();
        for (const JsonValue& item : type->items) names.push_back(&item);
      }
      for (const JsonValue* name : names) {
        const uint8_t named = name->IsString() ? TypeNamed(name->text) : 0;
        if (named == 0) return Error(&schema, "type", "names no type of JSON");
        own |= named;
      }
      if (const JsonValue* nullable = schema.Find("nullable"); nullable && nullable->boolean) {
        own |= kNullType;
      }
      types &= own;
      stated = true;
    }
    for (const auto& [keyword, of] : kTypeOfKeyword) {
      if (schema.Find(keyword) != nullptr) implied |= of;
    }
    if (const JsonValue* format = schema.Find("format"); format && format->IsString()) {
      implied |= FindIntegerFormat(format->text) ? kIntegerType : kStringType;
    }
    if (const JsonValue* none = schema.Find("not")) {
      if (none->kind == JsonValue::Kind::kBool) {
        if (none->boolean) excluded = kAllTypes;
        continue;
      }
      const JsonValue* type = none->Find("type");
      const bool types_alone = none->members.empty() || (none->members.size() == 1 && type);
      if (!types_alone) return Error(&schema, "not", "is supported with \"type\" alone");
      if (type == nullptr) excluded = kAllTypes;  // not {}
      if (type == nullptr) continue;
      std::vector<const JsonValue*> names = {type};
      if (type->IsArray()) {
        names.clear();
        for (const JsonValue& item : type->items) names.push_back(&item);
      }
      for (const JsonValue* name : names) {
        const uint8_t named = name->IsString() ? TypeNamed(name->text) : 0;
        if (named == 0) return Error(&schema, "not", "names no type of JSON");
        // Texts of numbers without a fraction cannot be told from others by their type alone.
        excluded |= named == kIntegerType ? kIntegerType | kFractionType : named;
      }
    }
  }
  if (!stated && implied != 0) types = implied;
  return static_cast<uint8_t>(types & ~excluded);
}

Result<std::optional<int>> SchemaCompiler::Count(const JsonValue& schema,
                                                 std::string_view keyword) const {
  const JsonValue* value = schema.Find(keyword);
  if (value == nullptr) return std::nullopt;
  if (!value->IsNumber() || !value->number.IsInteger() || value->number.negative) {
    return Error(&schema, keyword, "must be an integer of 0 or more");
  }
  if (value->number.whole.size() > 9) {
    return Error(&schema, keyword, "is supported up to 999999999");
  }
  return value->number.whole.empty() ? 0 : std::stoi(value->number.whole);
}

Result<std::pair<int, int>> SchemaCompiler::CountBounds(const Conjunction& conjunction,
                                                        std::string_view least,
                                                        std::string_view most) const {
  int min = 0, max = kUnbounded;
  for (const Conjunction::Part& part : conjunction.parts) {
    STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> own_min, Count(*part.schema, least));
    STAFFEL_ASSIGN_OR_RETURN(const std::optional<int> own_max, Count(*part.schema, most));
    min = std::max(min, own_min.value_or(0));
    if (own_max) max = max == kUnbounded ? *own_max : std::min(max, *own_max);
  }
  return std::pair(min, max);
}

Result<NumberBounds> SchemaCompiler::BoundsOf(const Conjunction& conjunction, bool integer) const {
  NumberBounds bounds{.integer = integer};
  const auto raise_min = [&](const Decimal& value, bool exclusive) {
    if (bounds.min && (value < *bounds.min || (value == *bounds.min && !exclusive))) return;
    bounds.min = value;
    bounds.min_exclusive = exclusive;
  };
  const auto lower_max = [&](const Decimal& value, bool exclusive) {
    if (bounds.max && (value > *bounds.max || (value == *bounds.max && !exclusive))) return;
    bounds.max = value;
    bounds.max_exclusive = exclusive;
  };
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue& schema = *part.schema;
    for (const std::string_view keyword :
         {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
      const JsonValue* value = schema.Find(keyword);
      if (value == nullptr) continue;
      const bool minimum = keyword == "minimum" || keyword == "exclusiveMinimum";
      if (value->kind == JsonValue::Kind::kBool && keyword.starts_with("exclusive")) {
        // Draft 4: a flag beside minimum or maximum.
        const JsonValue* bound = schema.Find(minimum ? "minimum" : "maximum");
        if (value->boolean && bound != nullptr && bound->IsNumber()) {
          minimum ? raise_min(bound->number, true) : lower_max(bound->number, true);
        }
        continue;
      }
      if (!value->IsNumber()) return Error(&schema, keyword, "must be a number");
      if (keyword == "multipleOf") {
        if (value->number.negative || value->number.IsZero()) {
          return Error(&schema, keyword, "must be above 0");
        }
        bounds.multiples_of.push_back(value->number);
      } else if (minimum) {
        raise_min(value->number, keyword == "exclusiveMinimum");
      } else {
        lower_max(value->number, keyword == "exclusiveMaximum");
      }
    }
    const JsonValue* format = schema.Find("format");
    if (format == nullptr || !format->IsString()) continue;
    if (const IntegerFormat* known = FindIntegerFormat(format->text)) {
      raise_min(ToDecimal(known->min), false);
      lower_max(ToDecimal(known->max), false);
    }
  }
  return bounds;
}

Result<ExprId> SchemaCompiler::CompileNumber(const Conjunction& conjunction, bool integer) {
  STAFFEL_ASSIGN_OR_RETURN(const NumberBounds bounds, BoundsOf(conjunction, integer));
  if (bounds.unbounded()) return integer ? terms_.AnyInteger() : terms_.AnyNumber();
  Result<ExprId> number = BoundedNumber(pool_, bounds);
  if (!number.ok() && absl::IsInvalidArgument(number.status())) {
    return absl::InvalidArgumentError(StrCat(
        "the schema cannot be used: at ", PointerOf(conjunction.parts[0].schema), ", ",
        std::string_view(number.status().message().data(), number.status().message().size())));
  }
  return number;
}

Result<std::vector<SchemaCompiler::TextPattern>> SchemaCompiler::PatternsOf(
    const Conjunction& conjunction) const {
  std::vector<TextPattern> patterns;
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue& schema = *part.schema;
    if (const JsonValue* pattern = schema.Find("pattern")) {
      if (!pattern->IsString()) return Error(&schema, "pattern", "must be a string");
      patterns.push_back({pattern->text, false});
    }
    if (const JsonValue* format = schema.Find("format")) {
      if (!format->IsString()) return Error(&schema, "format", "must be a string");
      if (FindIntegerFormat(format->text)) continue;
      const std::optional<std::string_view> known = FormatPattern(format->text);
      if (!known) return Error(&schema, "format", StrCat("is not supported (", format->text, ")"));
      if (!known->empty()) patterns.push_back({std::string(*known), true});
    }
  }
  std::sort(patterns.begin(), patterns.end());
  patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
  return patterns;
}

Result<std::shared_ptr<const CharDfa>> SchemaCompiler::PatternDfa(const TextPattern& pattern) {
  std::shared_ptr<const CharDfa>& dfa = pattern_dfas_[pattern];
  if (dfa != nullptr) return dfa;
  STAFFEL_ASSIGN_OR_RETURN(
      const ExprId expr,
      ParseRegex(pool_, pattern.pattern, pattern.whole ? RegexMatch::kFull : RegexMatch::kSearch,
                 Encoding::kRaw));
  STAFFEL_ASSIGN_OR_RETURN(CharDfa made, ToDfa(pool_, expr));
  dfa = std::make_shared<const CharDfa>(std::move(made));
  return dfa;
}

Result<CharDfa> SchemaCompiler::TextsOf(const Conjunction& conjunction) {
  if (conjunction.never) return CharDfa(std::vector<CharDfa::State>{});
  STAFFEL_ASSIGN_OR_RETURN(const auto bounds, CountBounds(conjunction, "minLength", "maxLength"));
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<TextPattern> patterns, PatternsOf(conjunction));
  CharDfa texts = CharDfa::AllTexts();
  for (const TextPattern& pattern : patterns) {
    STAFFEL_ASSIGN_OR_RETURN(const std::shared_ptr<const CharDfa> dfa, PatternDfa(pattern));
    STAFFEL_ASSIGN_OR_RETURN(texts, CharDfa::Intersect(texts, *dfa, pool_.limits().dfa_states));
  }
  if (bounds.first > 0 || bounds.second != kUnbounded) {
    if (std::max(bounds.first, bounds.second) > pool_.limits().dfa_states) {
      return absl::ResourceExhaustedError(
          StrCat("the schema cannot be used: at ", PointerOf(conjunction.parts[0].schema),
                 ", a pattern beside a length of more than ", pool_.limits().dfa_states,
                 " needs too many states"));
    }
    STAFFEL_ASSIGN_OR_RETURN(texts,
                             CharDfa::Intersect(texts, CharDfa::Length(bounds.first, bounds.second),
                                                pool_.limits().dfa_states));
  }
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue* constant = part.schema->Find("const");
    const JsonValue* list = part.schema->Find("enum");
    if (constant == nullptr && list == nullptr) continue;
    std::vector<ExprId> words;
    if (constant != nullptr && constant->IsString()) words.push_back(pool_.Literal(constant->text));
    for (size_t i = 0; constant == nullptr && i < list->items.size(); ++i) {
      if (list->items[i].IsString()) words.push_back(pool_.Literal(list->items[i].text));
    }
    STAFFEL_ASSIGN_OR_RETURN(const CharDfa known, ToDfa(pool_, pool_.Choice(words)));
    STAFFEL_ASSIGN_OR_RETURN(texts, CharDfa::Intersect(texts, known, pool_.limits().dfa_states));
  }
  return texts;
}

Result<ExprId> SchemaCompiler::CompileString(const Conjunction& conjunction) {
  STAFFEL_ASSIGN_OR_RETURN(const auto bounds, CountBounds(conjunction, "minLength", "maxLength"));
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<TextPattern> patterns, PatternsOf(conjunction));
  const bool any_length = bounds.first == 0 && bounds.second == kUnbounded;
  if (bounds.second != kUnbounded && bounds.second < bounds.first) return pool_.Never();
  if (patterns.empty()) {
    if (any_length) return terms_.AnyString();
    return terms_.Quoted(pool_.Repeat(terms_.StringChar(), bounds.first, bounds.second));
  }
  if (patterns.size() == 1 && any_length) {
    const RegexMatch match = patterns[0].whole ? RegexMatch::kFull : RegexMatch::kSearch;
    STAFFEL_ASSIGN_OR_RETURN(const ExprId content,
                             ParseRegex(pool_, patterns[0].pattern, match, Encoding::kJson));
    return pool_.Share(terms_.Quoted(content), "a string with a pattern");
  }
  STAFFEL_ASSIGN_OR_RETURN(CharDfa texts, TextsOf(conjunction));
  return terms_.Quoted(
      pool_.Dfa(std::make_shared<const CharDfa>(std::move(texts)), Encoding::kJson));
}

Result<ExprId> SchemaCompiler::CompileArray(const Conjunction& conjunction) {
  STAFFEL_ASSIGN_OR_RETURN(auto bounds, CountBounds(conjunction, "minItems", "maxItems"));
  size_t prefix_count = 0;
  bool closed = false, has_items = false;
  struct Items {
    Schemas prefix;
    const JsonValue* rest = nullptr;
  };
  std::vector<Items> parts;
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue& schema = *part.schema;
    if (const JsonValue* unique = schema.Find("uniqueItems"); unique && unique->boolean) {
      if (bounds.second == kUnbounded || bounds.second > 1) {
        return Error(&schema, "uniqueItems", "is not supported");
      }
    }
    if (const JsonValue* rest = schema.Find("unevaluatedItems")) {
      if (rest->kind != JsonValue::Kind::kBool) {
        return Error(&schema, "unevaluatedItems", "is supported as a boolean only");
      }
      closed |= !rest->boolean;
      STAFFEL_RETURN_IF_ERROR(CheckUnevaluated(conjunction, schema, "unevaluatedItems"));
    }
    Items items;
    const JsonValue* prefix = schema.Find("prefixItems");
    items.rest = schema.Find("items");
    if (prefix == nullptr && items.rest != nullptr && items.rest->IsArray()) {  // before 2020-12
      prefix = items.rest;
      items.rest = schema.Find("additionalItems");
    }
    if (prefix != nullptr) {
      if (!prefix->IsArray()) return Error(&schema, "prefixItems", "must be an array of schemas");
      for (const JsonValue& item : prefix->items) items.prefix.push_back(&item);
    }
    prefix_count = std::max(prefix_count, items.prefix.size());
    has_items |= items.rest != nullptr;
    parts.push_back(std::move(items));
  }
  const auto element = [&](size_t i) -> Result<ExprId> {
    Schemas schemas;
    for (const Items& items : parts) {
      if (i < items.prefix.size()) {
        schemas.push_back(items.prefix[i]);
      } else if (items.rest != nullptr) {
        schemas.push_back(items.rest);
      }
    }
    return CompileAll(schemas);
  };
  auto& [min, max] = bounds;
  const auto end_at = [&](size_t count) {
    const int own = static_cast<int>(count);
    max = max == kUnbounded ? own : std::min(max, own);
  };
  std::vector<ExprId> prefix;
  while (prefix.size() < prefix_count) {
    STAFFEL_ASSIGN_OR_RETURN(const ExprId item, element(prefix.size()));
    if (item == pool_.Never()) end_at(prefix.size());
    prefix.push_back(item);
  }
  ExprId rest = pool_.Never();
  if (!closed || has_items) {
    STAFFEL_ASSIGN_OR_RETURN(rest, element(prefix_count));
  }
  if (rest == pool_.Never()) end_at(prefix_count);
  if (max != kUnbounded && max < min) return pool_.Never();
  if (max == 0) return terms_.Brackets(pool_.Empty());

  // From the end: what may follow the items so far.
  const int known = static_cast<int>(prefix_count);
  ExprId tail = pool_.Empty();
  const int begin = std::max(known, 1);  // items from here on have a comma and are alike
  if (max == kUnbounded || max > begin) {
    tail = pool_.Repeat(pool_.Sequence({terms_.comma(), rest}), std::max(0, min - begin),
                        max == kUnbounded ? kUnbounded : max - begin);
  }
  for (int i = known - 1; i > 0; --i) {
    if (max != kUnbounded && i >= max) continue;
    tail = pool_.Sequence({terms_.comma(), prefix[i], tail});
    if (i >= min) tail = pool_.Optional(tail);
  }
  const ExprId first = known > 0 ? prefix[0] : rest;
  const ExprId content = pool_.Sequence({first, tail, terms_.space()});
  return terms_.Brackets(min == 0 ? pool_.Optional(content) : content);
}

}  // namespace staffel::grammar
