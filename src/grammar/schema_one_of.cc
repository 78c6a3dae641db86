// oneOf: exactly one alternative may be satisfied. A text of an automaton's choice satisfies one;
// that it satisfies no other has to be shown. What is tried: types, values of enum and const,
// bounds, patterns, and members that both need and that differ. "Disjoint" is only said where it
// holds.
#include <algorithm>
#include <string>

#include "grammar/schema_compiler.h"

namespace staffel::grammar {
namespace {

constexpr int kDepthMax = 6;

const JsonValue* Values(const Conjunction& conjunction, JsonValue& one) {
  for (const Conjunction::Part& part : conjunction.parts) {
    if (const JsonValue* list = part.schema->Find("enum")) return list;
    if (const JsonValue* constant = part.schema->Find("const")) {
      one.items = {*constant};
      return &one;
    }
  }
  return nullptr;
}

bool Requires(const Conjunction& conjunction, std::string_view name) {
  for (const Conjunction::Part& part : conjunction.parts) {
    const JsonValue* required = part.schema->Find("required");
    if (required == nullptr) continue;
    for (const JsonValue& item : required->items) {
      if (item.IsString() && item.text == name) return true;
    }
  }
  return false;
}

std::vector<std::string> Names(const Conjunction& conjunction) {
  std::vector<std::string> names;
  for (const Conjunction::Part& part : conjunction.parts) {
    if (const JsonValue* properties = part.schema->Find("properties")) {
      for (const auto& [name, value] : properties->members) names.push_back(name);
    }
    if (const JsonValue* required = part.schema->Find("required")) {
      for (const JsonValue& item : required->items) names.push_back(item.text);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// The part without a oneOf whose alternative is a part of its own: that it excludes others is what
// is to be shown.
const JsonValue& WithoutChosen(const Conjunction::Part& part, std::deque<JsonValue>& made) {
  if (!part.one_of_done) return *part.schema;
  JsonValue rest{.kind = JsonValue::Kind::kObject};
  for (const auto& member : part.schema->members) {
    if (member.first != "oneOf") rest.members.push_back(member);
  }
  return made.emplace_back(std::move(rest));
}

}  // namespace

// The conjunctions that a first anyOf or oneOf splits it into; itself if there is none.
Result<std::vector<Conjunction>> SchemaCompiler::Branches(const Conjunction& conjunction) {
  for (size_t i = 0; i < conjunction.parts.size(); ++i) {
    const Conjunction::Part& part = conjunction.parts[i];
    for (const bool one_of : {false, true}) {
      const JsonValue* list = part.schema->Find(one_of ? "oneOf" : "anyOf");
      if (list == nullptr || (one_of ? part.one_of_done : part.any_of_done)) continue;
      std::vector<Conjunction> branches;
      for (const JsonValue& item : list->items) {
        Conjunction branch = conjunction;
        (one_of ? branch.parts[i].one_of_done : branch.parts[i].any_of_done) = true;
        Schemas within = {part.schema};
        STAFFEL_RETURN_IF_ERROR(Expand(&item, branch, within));
        if (!branch.never) branches.push_back(std::move(branch));
      }
      return branches;
    }
  }
  return std::vector<Conjunction>{conjunction};
}

Result<bool> SchemaCompiler::Disjoint(const Conjunction& a, const Conjunction& b, int depth) {
  if (a.never || b.never) return true;
  if (depth > kDepthMax) return false;
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<Conjunction> of_a, Branches(a));
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<Conjunction> of_b, Branches(b));
  if (of_a.size() != 1 || of_b.size() != 1 || of_a[0].parts != a.parts ||
      of_b[0].parts != b.parts) {
    for (const Conjunction& x : of_a) {
      for (const Conjunction& y : of_b) {
        STAFFEL_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(x, y, depth + 1));
        if (!disjoint) return false;
      }
    }
    return true;
  }
  JsonValue one_a, one_b;
  const JsonValue* values_a = Values(a, one_a);
  const JsonValue* values_b = Values(b, one_b);
  if (values_a != nullptr || values_b != nullptr) {
    const JsonValue* values = values_a != nullptr ? values_a : values_b;
    const Conjunction& other = values_a != nullptr ? b : a;
    for (const JsonValue& value : values->items) {
      bool satisfies = true;
      for (const Conjunction::Part& part : other.parts) {
        if (!satisfies) break;
        STAFFEL_ASSIGN_OR_RETURN(satisfies, Validates(value, WithoutChosen(part, made_)));
      }
      if (satisfies) return false;
    }
    return true;
  }
  STAFFEL_ASSIGN_OR_RETURN(const uint8_t types_a, TypesOf(a));
  STAFFEL_ASSIGN_OR_RETURN(const uint8_t types_b, TypesOf(b));
  // Types that are implied only are the narrow reading, which the other alternative's texts need
  // not share: they count on the side whose own text is looked at. Both must say theirs.
  const auto stated = [](const Conjunction& c) {
    return std::any_of(c.parts.begin(), c.parts.end(), [](const Conjunction::Part& part) {
      return part.schema->Find("type") != nullptr;
    });
  };
  const uint8_t common = types_a & types_b;
  if (common == 0) return stated(a) && stated(b);
  if (common & (kNullType | kBoolType | kArrayType)) return false;
  if (common & kObjectType) {
    STAFFEL_ASSIGN_OR_RETURN(const bool disjoint, DisjointObjects(a, b, depth));
    if (!disjoint) return false;
  }
  if (common & kStringType) {
    STAFFEL_ASSIGN_OR_RETURN(const bool disjoint, DisjointStrings(a, b));
    if (!disjoint) return false;
  }
  if (common & (kIntegerType | kFractionType)) return DisjointNumbers(a, b);
  return true;
}

Result<bool> SchemaCompiler::DisjointObjects(const Conjunction& a, const Conjunction& b,
                                             int depth) {
  std::vector<std::string> names = Names(a);
  for (std::string& name : Names(b)) names.push_back(std::move(name));
  for (const std::string& name : names) {
    const bool in_a = Requires(a, name), in_b = Requires(b, name);
    if (!in_a && !in_b) continue;
    Conjunction of_a, of_b;
    STAFFEL_ASSIGN_OR_RETURN(const Schemas schemas_a, SchemasOfName(a, name));
    STAFFEL_ASSIGN_OR_RETURN(const Schemas schemas_b, SchemasOfName(b, name));
    STAFFEL_RETURN_IF_ERROR(ExpandAll(schemas_a, of_a));
    STAFFEL_RETURN_IF_ERROR(ExpandAll(schemas_b, of_b));
    // A member that one needs and the other forbids tells them apart, too.
    if (of_a.never || of_b.never) return true;
    if (!in_a || !in_b) continue;
    STAFFEL_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(of_a, of_b, depth + 1));
    if (disjoint) return true;
  }
  return false;
}

Result<bool> SchemaCompiler::DisjointStrings(const Conjunction& a, const Conjunction& b) {
  // Formats are annotations to other readers; they tell nothing apart.
  for (const Conjunction* c : {&a, &b}) {
    for (const Conjunction::Part& part : c->parts) {
      if (part.schema->Find("format") != nullptr) return false;
    }
  }
  STAFFEL_ASSIGN_OR_RETURN(const CharDfa texts_a, TextsOf(a));
  STAFFEL_ASSIGN_OR_RETURN(const CharDfa texts_b, TextsOf(b));
  STAFFEL_ASSIGN_OR_RETURN(const CharDfa both,
                           CharDfa::Intersect(texts_a, texts_b, pool_.limits().dfa_states));
  return both.IsEmpty();
}

Result<bool> SchemaCompiler::DisjointNumbers(const Conjunction& a, const Conjunction& b) const {
  STAFFEL_ASSIGN_OR_RETURN(const NumberBounds of_a, BoundsOf(a, false));
  STAFFEL_ASSIGN_OR_RETURN(const NumberBounds of_b, BoundsOf(b, false));
  const auto below = [](const NumberBounds& low, const NumberBounds& high) {
    if (!low.max || !high.min) return false;
    return *low.max < *high.min ||
           (*low.max == *high.min && (low.max_exclusive || high.min_exclusive));
  };
  return below(of_a, of_b) || below(of_b, of_a);
}

Result<bool> SchemaCompiler::RequireDiscriminator(std::vector<Conjunction>& alternatives) {
  if (alternatives.empty()) return true;
  for (const std::string& name : Names(alternatives[0])) {
    std::vector<Conjunction> members;
    for (const Conjunction& alternative : alternatives) {
      STAFFEL_ASSIGN_OR_RETURN(const Schemas schemas, SchemasOfName(alternative, name));
      if (schemas.empty()) break;
      STAFFEL_RETURN_IF_ERROR(ExpandAll(schemas, members.emplace_back()));
    }
    bool disjoint = members.size() == alternatives.size();
    for (size_t a = 0; disjoint && a < members.size(); ++a) {
      for (size_t b = a + 1; disjoint && b < members.size(); ++b) {
        STAFFEL_ASSIGN_OR_RETURN(disjoint, Disjoint(members[a], members[b], 0));
      }
    }
    if (!disjoint) continue;
    JsonValue names{.kind = JsonValue::Kind::kArray};
    names.items.push_back({.kind = JsonValue::Kind::kString, .text = name});
    JsonValue required{.kind = JsonValue::Kind::kObject};
    required.members.emplace_back("type",
                                  JsonValue{.kind = JsonValue::Kind::kString, .text = "object"});
    required.members.emplace_back("required", std::move(names));
    made_.push_back(std::move(required));
    for (Conjunction& alternative : alternatives) alternative.parts.push_back({&made_.back()});
    return true;
  }
  return false;
}

}  // namespace staffel::grammar
