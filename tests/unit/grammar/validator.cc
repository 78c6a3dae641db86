#include "validator.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>

namespace staffel::grammar {
namespace {

using Json = nlohmann::ordered_json;

bool HasType(const Json& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  }
  return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
         (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

// Without regard to the order of members.
bool Equal(const Json& a, const Json& b) {
  return nlohmann::json::parse(a.dump()) == nlohmann::json::parse(b.dump());
}

bool Matches(const std::string& text, const Json& pattern) {
  return std::regex_search(text, std::regex(pattern.get<std::string>()));
}

size_t CodePoints(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool ValidNumber(double value, const Json& schema) {
  if (schema.contains("minimum") && value < schema["minimum"].get<double>()) return false;
  if (schema.contains("maximum") && value > schema["maximum"].get<double>()) return false;
  if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"].get<double>()) {
    return false;
  }
  if (schema.contains("exclusiveMaximum") && value >= schema["exclusiveMaximum"].get<double>()) {
    return false;
  }
  if (!schema.contains("multipleOf")) return true;
  const double quotient = value / schema["multipleOf"].get<double>();
  return std::abs(quotient - std::round(quotient)) < 1e-6 * std::max(1.0, std::abs(quotient));
}

bool ValidArray(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("minItems") && value.size() < schema["minItems"]) return false;
  if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return false;
  const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (i < prefix && !IsValid(value[i], schema["prefixItems"][i], root)) return false;
    if (i >= prefix && schema.contains("items") && !IsValid(value[i], schema["items"], root)) {
      return false;
    }
  }
  return true;
}

bool ValidObject(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("minProperties") && value.size() < schema["minProperties"]) return false;
  if (schema.contains("maxProperties") && value.size() > schema["maxProperties"]) return false;
  if (schema.contains("required")) {
    for (const auto& name : schema["required"]) {
      if (!value.contains(name.get<std::string>())) return false;
    }
  }
  for (const auto& [name, member] : value.items()) {
    bool known = false;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      known = true;
      if (!IsValid(member, schema["properties"][name], root)) return false;
    }
    if (schema.contains("patternProperties")) {
      for (const auto& [pattern, own] : schema["patternProperties"].items()) {
        if (!Matches(name, pattern)) continue;
        known = true;
        if (!IsValid(member, own, root)) return false;
      }
    }
    if (!known && schema.contains("additionalProperties") &&
        !IsValid(member, schema["additionalProperties"], root)) {
      return false;
    }
    if (schema.contains("propertyNames") && !IsValid(Json(name), schema["propertyNames"], root)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool IsValid(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const std::string ref = schema["$ref"];
    if (!IsValid(value, root.at(Json::json_pointer(ref.substr(1))), root)) return false;
  }
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(),
                     [&](const Json& type) { return HasType(value, type); })) {
      return false;
    }
  }
  if (schema.contains("const") && !Equal(schema["const"], value)) return false;
  if (schema.contains("enum") &&
      std::none_of(schema["enum"].begin(), schema["enum"].end(),
                   [&](const Json& item) { return Equal(item, value); })) {
    return false;
  }
  const auto valid_count = [&](const char* keyword) {
    return std::count_if(schema[keyword].begin(), schema[keyword].end(),
                         [&](const Json& item) { return IsValid(value, item, root); });
  };
  if (schema.contains("allOf") &&
      valid_count("allOf") < static_cast<int64_t>(schema["allOf"].size())) {
    return false;
  }
  if (schema.contains("anyOf") && valid_count("anyOf") == 0) return false;
  if (schema.contains("oneOf") && valid_count("oneOf") != 1) return false;
  if (value.is_number() && !ValidNumber(value.get<double>(), schema)) return false;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (schema.contains("minLength") && CodePoints(text) < schema["minLength"]) return false;
    if (schema.contains("maxLength") && CodePoints(text) > schema["maxLength"]) return false;
    if (schema.contains("pattern") && !Matches(text, schema["pattern"])) return false;
  }
  if (value.is_array()) return ValidArray(value, schema, root);
  if (value.is_object()) return ValidObject(value, schema, root);
  return true;
}

}  // namespace staffel::grammar
