#include "text/jinja/json_values.h"

#include <algorithm>

#include "text/jinja/error.h"

namespace staffel::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDepthMax = 100;  // half of what a template may build from it

[[noreturn]] void FailInput(const std::string& message) {
  throw TemplateError(message, TemplateError::Reason::kInput);
}

bool IsDeeperThan(const Json& json, int levels) {
  if (!json.is_structured()) return false;
  if (levels == 0) return true;
  return std::any_of(json.begin(), json.end(),
                     [&](const Json& item) { return IsDeeperThan(item, levels - 1); });
}

size_t CountBytes(const Json& json, int level) {
  if (level > kDepthMax) {
    FailInput(StrCat("messages or tools are nested deeper than ", kDepthMax, " levels"));
  }
  size_t bytes = sizeof(Value);
  if (json.is_string()) bytes += sizeof(String) + json.get_ref<const std::string&>().size();
  if (json.is_array()) {
    for (const Json& item : json) bytes += CountBytes(item, level + 1);
  }
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      bytes += sizeof(String) + key.size() + 2 * sizeof(Value) + CountBytes(value, level + 1);
    }
  }
  return bytes;
}

Value FromString(Runtime& runtime, const std::string& bytes, bool content) {
  if (ValidUtf8Prefix(bytes) != bytes.size()) FailInput("messages and tools must be valid UTF-8");
  return runtime.MakeString(content ? CallerText(bytes) : TemplateText(bytes));
}

Value Convert(Runtime& runtime, const Json& json, IsTrustedField is_trusted, int level) {
  constexpr bool kContent = true;
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>(), kContent);
    case Json::value_t::number_integer:
      return Value::Integer(json.get<int64_t>(), kContent);
    case Json::value_t::number_unsigned:
      return Value::Integer(json.get<uint64_t>(), kContent);
    case Json::value_t::number_float:
      return Value::Float(json.get<double>(), kContent);
    case Json::value_t::string:
      return FromString(runtime, json.get_ref<const std::string&>(), kContent);
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(Convert(runtime, item, is_trusted, level + 1));
      return runtime.MakeList(std::move(items));
    }
    case Json::value_t::object: {
      constexpr int kMessageLevel = 1;
      std::vector<Dict::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) {
        const bool trusted = is_trusted != nullptr && level == kMessageLevel && value.is_string() &&
                             is_trusted(key, value.get_ref<const std::string&>());
        entries.emplace_back(
            FromString(runtime, key, kContent),
            trusted ? FromString(runtime, value.get_ref<const std::string&>(), !kContent)
                    : Convert(runtime, value, is_trusted, level + 1));
      }
      return runtime.MakeDict(std::move(entries));
    }
    default:
      return Value::None(kContent);
  }
}

}  // namespace

bool IsNestedTooDeeply(const Json& json) { return IsDeeperThan(json, kDepthMax); }

size_t JsonBytes(const Json& json) { return CountBytes(json, 0); }

Value FromJson(Runtime& runtime, const Json& json, IsTrustedField is_trusted) {
  return Convert(runtime, json, is_trusted, 0);
}

}  // namespace staffel::jinja
