#include "tests/unit/grammar/schema_maker.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/grammar/validator.h"

namespace staffel::grammar {

using Json = nlohmann::ordered_json;

class SchemaMaker::Impl {
 public:
  explicit Impl(uint64_t seed) : random_(seed) {}

  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  bool Chance(int percent) { return Below(100) < percent; }

  Json Schema() {
    Json schema = Any(0);
    if (schema.is_object() && Chance(40)) {
      schema["$defs"]["leaf"] = Any(3);
      schema["$defs"]["tree"] =
          Json{{"type", "object"},
               {"properties",
                {{"v", {{"$ref", "#/$defs/leaf"}}},
                 {"kids", {{"type", "array"}, {"items", {{"$ref", "#/$defs/tree"}}}}}}},
               {"required", {"v"}}};
      has_defs_ = true;
    }
    return schema;
  }

  Json Any(int depth) {
    switch (Below(depth >= 3 ? 7 : 12)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return Integer();
      case 2:
        return Number();
      case 3:
      case 4:
        return String();
      case 5:
        return {{"enum", {Text(), Below(100), nullptr, Chance(50)}}};
      case 6:
        return {{"const", Chance(50) ? Json(Text()) : Json{{"k", {Below(9), Text()}}}}};
      case 7:
      case 8:
        return Object(depth);
      case 9:
        return Array(depth);
      case 10: {
        Json schema = {{"anyOf", Json::array()}};
        for (int i = 1 + Below(3); i >= 0; --i) schema["anyOf"].push_back(Any(depth + 1));
        return schema;
      }
      default:
        return {{"allOf", {Object(depth), {{"type", "object"}, {"minProperties", 1}}}}};
    }
  }

  std::string Text() {
    static const std::vector<std::string> kParts = {
        "a", "b", "z",   " ", "\"", "\\", "\n", "/", "\xC3\xA9", "\xF0\x9F\x98\x80",
        "1", "-", "\x01"};
    std::string text;
    for (int n = Below(5); n > 0; --n) text += kParts[Below(static_cast<int>(kParts.size()))];
    return text;
  }

  // A value by the schema, members in the grammar's order; nothing where this maker gives up.
  std::optional<Json> Instance(const Json& schema, const Json& root, int depth = 0) {
    if (depth > 12) return std::nullopt;
    if (schema.contains("$ref")) {
      return Instance(root.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))),
                      root, depth + 1);
    }
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("enum"))
      return schema["enum"][Below(static_cast<int>(schema["enum"].size()))];
    if (schema.contains("anyOf")) {
      return Instance(schema["anyOf"][Below(static_cast<int>(schema["anyOf"].size()))], root,
                      depth + 1);
    }
    if (schema.contains("allOf")) {
      std::optional<Json> value = Instance(schema["allOf"][0], root, depth + 1);
      if (value && value->empty()) return std::nullopt;
      return value;
    }
    const std::string type = schema["type"];
    if (type == "boolean") return Chance(50);
    if (type == "integer" || type == "number") return NumberBy(schema);
    if (type == "string") return StringBy(schema);
    if (type == "array") return ArrayBy(schema, root, depth);
    return ObjectBy(schema, root, depth);
  }

 private:
  Json Integer() {
    Json schema = {{"type", "integer"}};
    const int low = Below(2000) - 1000;
    if (Chance(50)) schema[Chance(70) ? "minimum" : "exclusiveMinimum"] = low;
    if (Chance(50)) schema[Chance(70) ? "maximum" : "exclusiveMaximum"] = low + 20 + Below(500);
    if (Chance(20)) schema["multipleOf"] = 1 + Below(9);
    return schema;
  }
  Json Number() {
    Json schema = {{"type", "number"}};
    const int low = Below(400) - 200;
    if (Chance(50)) schema[Chance(70) ? "minimum" : "exclusiveMinimum"] = low / 8.0;
    if (Chance(50))
      schema[Chance(70) ? "maximum" : "exclusiveMaximum"] = (low + 4 + Below(99)) / 8.0;
    if (Chance(10)) schema["multipleOf"] = 0.5;
    return schema;
  }
  Json String() {
    Json schema = {{"type", "string"}};
    const int low = Below(6);
    if (Chance(40)) schema["minLength"] = low;
    if (Chance(40)) schema["maxLength"] = low + Below(70);
    if (Chance(25)) schema["pattern"] = Patterns()[Below(static_cast<int>(Patterns().size()))];
    if (schema.contains("pattern")) {
      schema.erase("minLength");
      if (schema.contains("maxLength")) schema["maxLength"] = 12 + Below(9);
    }
    return schema;
  }
  static const std::vector<std::string>& Patterns() {
    static const std::vector<std::string> patterns = {"^[a-z]+$",    "^a|b$",       "[0-9]{2}",
                                                      "^(ab|c)*d?$", "^[^a-y\"]*$", "z"};
    return patterns;
  }
  // A text for each of Patterns().
  static const std::vector<std::string>& Fitting() {
    static const std::vector<std::string> texts = {"abc",    "xyzb",         "a12\nb",
                                                   "ababcd", "\n\xC3\xA9Z1", "\\z\""};
    return texts;
  }
  Json Object(int depth) {
    Json schema = {{"type", "object"}};
    const int count = Below(5);
    for (int i = 0; i < count; ++i) {
      const std::string name =
          Chance(80) ? std::string(1, static_cast<char>('a' + Below(9))) : Text();
      schema["properties"][name] =
          has_defs_ && Chance(15) ? Json{{"$ref", "#/$defs/tree"}} : Any(depth + 1);
    }
    if (count > 0) {
      schema["required"] = Json::array();
      for (const auto& [name, value] : schema["properties"].items()) {
        if (Chance(50)) schema["required"].push_back(name);
      }
    }
    if (Chance(30)) schema["additionalProperties"] = Chance(50) ? Json(Chance(50)) : Any(depth + 1);
    if (Chance(10)) schema["patternProperties"]["^x"] = Any(depth + 1);
    if (Chance(10)) schema["propertyNames"] = {{"maxLength", 3}};
    if (Chance(10)) schema["maxProperties"] = 1 + Below(4);
    return schema;
  }
  Json Array(int depth) {
    Json schema = {{"type", "array"}, {"items", Any(depth + 1)}};
    const int low = Below(3);
    if (Chance(30)) schema["prefixItems"] = {Any(depth + 1), Any(depth + 1)};
    if (Chance(50)) schema["minItems"] = low;
    if (Chance(50)) schema["maxItems"] = low + Below(4);
    return schema;
  }

  std::optional<Json> NumberBy(const Json& schema) {
    for (int i = 0; i < 200; ++i) {
      const int whole = Below(3000) - 1500;
      const Json value =
          schema["type"] == "integer" || Chance(30) ? Json(whole) : Json(whole / 16.0);
      if (IsValid(value, schema, schema)) return value;
    }
    return std::nullopt;
  }
  std::optional<Json> StringBy(const Json& schema) {
    for (int i = 0; i < 50; ++i) {
      std::string text = Text();
      if (schema.contains("pattern")) {
        for (size_t p = 0; p < Patterns().size(); ++p) {
          if (schema["pattern"] == Patterns()[p]) text = Fitting()[p];
        }
      }
      if (IsValid(text, schema, schema)) return text;
    }
    return std::nullopt;
  }
  std::optional<Json> ArrayBy(const Json& schema, const Json& root, int depth) {
    const int low = schema.value("minItems", 0);
    const int count = low + Below(std::max(1, schema.value("maxItems", low + 3) - low + 1));
    Json value = Json::array();
    for (int i = 0; i < count; ++i) {
      const bool prefixed = schema.contains("prefixItems") && i < 2;
      const auto item =
          Instance(prefixed ? schema["prefixItems"][i] : schema["items"], root, depth + 1);
      if (!item) return std::nullopt;
      value.push_back(*item);
    }
    return value;
  }
  std::optional<Json> ObjectBy(const Json& schema, const Json& root, int depth) {
    Json value = Json::object();
    if (schema.contains("properties")) {
      for (const auto& [name, own] : schema["properties"].items()) {
        bool required = false;
        for (const auto& needed : schema["required"]) required |= needed == name;
        if (!required && Chance(50)) continue;
        const auto member = Instance(own, root, depth + 1);
        if (!member && required) return std::nullopt;
        if (member) value[name] = *member;
      }
    }
    const bool open = schema.contains("additionalProperties") || !schema.contains("properties");
    if (open && Chance(50)) {
      const Json further = schema.value("additionalProperties", Json(true));
      if (further.is_object()) {
        if (const auto member = Instance(further, root, depth + 1)) value["new\n"] = *member;
      } else if (further.get<bool>()) {
        value["new\n"] = {1, "x", nullptr};
      }
    }
    // Patterns of names and what they say were not looked at above.
    if (!IsValid(value, schema, root)) return std::nullopt;
    if (schema.contains("patternProperties") && !schema.contains("additionalProperties")) {
      for (const auto& [name, member] : value.items()) {
        if (name[0] != 'x' &&
            !(schema.contains("properties") && schema["properties"].contains(name))) {
          return std::nullopt;
        }
      }
    }
    return value;
  }

  std::mt19937_64 random_;
  bool has_defs_ = false;
};

SchemaMaker::SchemaMaker(uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}
SchemaMaker::~SchemaMaker() = default;
Json SchemaMaker::Schema() { return impl_->Schema(); }
std::optional<Json> SchemaMaker::Instance(const Json& schema, const Json& root) {
  return impl_->Instance(schema, root);
}

std::shared_ptr<const Vocabulary> WalkVocabulary() {
  VocabularySpec spec;
  for (int b = 0; b < 256; ++b) spec.token_bytes.emplace_back(1, static_cast<char>(b));
  for (const char* piece :
       {"\":", "\",", "\"}", "\"]", "},", "]}", "true", "null", "ab", "\\\"", "\\n", "\xC3\xA9",
        "\xF0\x9F", "\x98\x80\"", "12", "0.5", ", \"", ": ", "\n  \""}) {
    spec.token_bytes.emplace_back(piece);
  }
  spec.token_bytes.emplace_back();
  spec.end_tokens = {static_cast<TokenId>(spec.token_bytes.size()) - 1};
  return *Vocabulary::Make(std::move(spec));
}

}  // namespace staffel::grammar
