#include "server/api/tool_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/strings.h"

namespace staffel::api {
namespace {

bool IsFunction(const Json& tool) {
  return tool.is_object() && tool.contains("type") && tool["type"] == "function" &&
         tool.contains("function") && tool["function"].is_object() &&
         tool["function"].contains("name") && tool["function"]["name"].is_string();
}

const std::string& NameOf(const Json& tool) {
  return tool["function"]["name"].get_ref<const std::string&>();
}

bool Has(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return NameOf(tool) == name; });
}

// "auto", "none" or "required".
void ReadMode(FieldReader& reader, const std::string& mode, ToolChoice& choice) {
  if (mode == "none") {
    choice.tools = Json();
  } else if (mode == "required") {
    choice.required = true;
  } else if (mode != "auto") {
    reader.Fail("tool_choice", StrCat("'tool_choice' is '", mode.substr(0, 40),
                                      "'; it must be none, auto, required, a function, or "
                                      "allowed_tools"));
  }
}

void Unknown(FieldReader& reader, const std::string& name) {
  reader.Fail("tool_choice",
              StrCat("'tool_choice' names '", name.substr(0, 64), "', which is none of 'tools'"));
}

void ReadAllowed(FieldReader& reader, const Json& object, ToolChoice& choice) {
  const auto allowed = object.find("allowed_tools");
  if (allowed == object.end() || !allowed->is_object() || !allowed->contains("tools") ||
      !(*allowed)["tools"].is_array()) {
    return reader.Fail(
        "tool_choice",
        "'tool_choice' of the type allowed_tools must have allowed_tools with tools");
  }
  Json kept = Json::array();
  for (const Json& tool : (*allowed)["tools"]) {
    if (!IsFunction(tool))
      return reader.Fail("tool_choice", "'tool_choice' must name tools of the type function");
    if (!Has(choice.tools, NameOf(tool))) return Unknown(reader, NameOf(tool));
  }
  for (const Json& tool : choice.tools) {
    if (Has((*allowed)["tools"], NameOf(tool))) kept.push_back(tool);
  }
  choice.tools = std::move(kept);
  const Json mode = allowed->value("mode", Json("auto"));
  if (mode != "auto" && mode != "required")
    return reader.Fail("tool_choice", "'tool_choice.allowed_tools.mode' must be auto or required");
  ReadMode(reader, mode.get<std::string>(), choice);
}

void ReadObject(FieldReader& reader, const Json& object, ToolChoice& choice) {
  const Json type = object.value("type", Json());
  if (type == "allowed_tools") return ReadAllowed(reader, object, choice);
  if (!IsFunction(object)) {
    return reader.Fail("tool_choice",
                       "'tool_choice' must be {'type': 'function', 'function': {'name'}}");
  }
  choice.named = NameOf(object);
  choice.required = true;
  choice.parallel = false;
  if (!Has(choice.tools, choice.named)) Unknown(reader, choice.named);
}

}  // namespace

ToolChoice ReadToolChoice(FieldReader& reader) {
  ToolChoice choice;
  const Json* tools = reader.Array("tools");
  if (tools != nullptr) {
    for (size_t i = 0; i < tools->size(); i++) {
      if (IsFunction((*tools)[i])) {
        const Json strict = (*tools)[i]["function"].value("strict", Json());
        if (strict.is_null() || strict.is_boolean()) continue;
        const std::string field = StrCat("tools[", i, "].function.strict");
        reader.Fail(field, StrCat("'", field, "' must be true or false, it is ", TypeName(strict)));
        return choice;
      }
      reader.Fail(StrCat("tools[", i, "]"),
                  StrCat("'tools[", i,
                         "]' must be {'type': 'function', 'function': {'name', 'parameters'}}"));
      return choice;
    }
    if (!tools->empty()) choice.tools = *tools;
  }
  choice.parallel = reader.Bool("parallel_tool_calls").value_or(true);
  const Json* wish = reader.Get("tool_choice");
  if (wish == nullptr || !reader.ok()) return choice;
  if (!wish->is_string() && !wish->is_object()) {
    reader.Fail("tool_choice",
                StrCat("'tool_choice' must be a string or an object, it is ", TypeName(*wish)));
  } else if (choice.tools.is_null() && *wish != "none" && *wish != "auto") {
    reader.Fail("tool_choice", "'tool_choice' is only allowed with 'tools'");
  } else if (wish->is_string()) {
    ReadMode(reader, wish->get<std::string>(), choice);
  } else {
    ReadObject(reader, *wish, choice);
  }
  return choice;
}

std::vector<answer::ToolSignature> SignaturesOf(const Json& tools) {
  std::vector<answer::ToolSignature> signatures;
  for (const Json& tool : tools) {
    answer::ToolSignature& signature = signatures.emplace_back();
    signature.name = NameOf(tool);
    const auto parameters = tool["function"].find("parameters");
    if (parameters == tool["function"].end() || !parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    for (const auto& [name, schema] : properties->items()) {
      if (schema.is_object() && schema.value("type", Json()) == "string")
        signature.string_parameters.push_back(name);
    }
  }
  return signatures;
}

const std::string& ToolName(const Json& tool) { return NameOf(tool); }

bool IsStrict(const Json& tool) { return tool["function"].value("strict", Json()) == true; }

bool HasStrictTool(const Json& tools) { return std::any_of(tools.begin(), tools.end(), IsStrict); }

}  // namespace staffel::api
