#include "server/api/openapi.h"

#include <cmath>

#include "base/strings.h"

namespace staffel::api {
namespace {

std::string_view TypeOf(FieldKind kind) {
  switch (kind) {
    case FieldKind::kBool:
      return "boolean";
    case FieldKind::kInt:
      return "integer";
    case FieldKind::kNumber:
      return "number";
    case FieldKind::kString:
      return "string";
    case FieldKind::kArray:
      return "array";
    case FieldKind::kObject:
      return "object";
    case FieldKind::kMixed:
      return "";
  }
  return "";
}

void AddBound(Json& schema, const char* name, double bound, bool integer) {
  if (!std::isfinite(bound) || std::abs(bound) >= 9e18) return;
  integer ? schema[name] = static_cast<int64_t>(bound) : schema[name] = bound;
}

Json PropertiesOf(std::span<const Field> fields);

// null is always taken: it counts as absent.
Json SchemaOf(const Field& field) {
  if (field.use == FieldUse::kRefused || field.use == FieldUse::kIgnored) {
    return {{"description", field.use == FieldUse::kIgnored ? StrCat("Ignored. ", field.note)
                                                            : StrCat("Refused: ", field.note)},
            {"x-use", field.use == FieldUse::kIgnored ? "ignored" : "refused"}};
  }
  if (field.use == FieldUse::kNeutral) {
    return {{"enum", Json::array({Json::parse(field.fallback), nullptr})},
            {"default", Json::parse(field.fallback)},
            {"description", "Not supported: only the value that changes nothing is taken."}};
  }
  Json schema = Json::object();
  const std::string_view type = TypeOf(field.kind);
  if (!type.empty()) {
    schema["type"] = Json::array({type, "null"});
  } else if (!field.schema.empty()) {
    schema = {{"anyOf", Json::array({Json::parse(field.schema), {{"type", "null"}}})}};
  }
  AddBound(schema, "minimum", field.min, field.kind == FieldKind::kInt);
  AddBound(schema, "maximum", field.max, field.kind == FieldKind::kInt);
  if (!field.fallback.empty()) schema["default"] = Json::parse(field.fallback);
  if (!field.members.empty()) schema["properties"] = PropertiesOf(field.members);
  schema["description"] = field.note;
  return schema;
}

Json PropertiesOf(std::span<const Field> fields) {
  Json properties = Json::object();
  for (const Field& field : fields) properties[std::string(field.name)] = SchemaOf(field);
  return properties;
}

Json BodyOf(const RouteDoc& route) {
  Json properties = Json::object(), required = Json::array();
  for (const auto& fields : {route.fields, route.shared_fields}) {
    for (const Field& field : fields) {
      properties[std::string(field.name)] = SchemaOf(field);
      if (field.use == FieldUse::kRequired) required.push_back(field.name);
    }
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return {{"required", true}, {"content", {{"application/json", {{"schema", std::move(schema)}}}}}};
}

Json AnswersOf(const RouteDoc& route) {
  Json content = {{"application/json", {{"schema", {{"type", Json::parse(route.answer_type)}}}}}};
  // Readers of the document differ in whether this is the schema of a stream or of an event in it.
  if (route.streams) {
    content[std::string(route.stream_type)] = {{"schema", {{"description", "events or lines"}}}};
  }
  const Json error = route.error_schema.empty() ? Json{{"$ref", "#/components/schemas/Error"}}
                                                : Json::parse(route.error_schema);
  return {
      {"200", {{"description", "the answer"}, {"content", std::move(content)}}},
      {"default",
       {{"description", "an error"}, {"content", {{"application/json", {{"schema", error}}}}}}}};
}

Json Components() {
  return Json::parse(R"({
    "schemas": {"Error": {"type": "object", "required": ["error"], "properties": {"error": {
      "type": "object", "required": ["message", "type"], "properties": {
        "message": {"type": "string"}, "type": {"type": "string"},
        "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}}},
    "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"},
                        "key": {"type": "apiKey", "in": "header", "name": "x-api-key"}}})");
}

}  // namespace

std::string OpenApiDocument(std::span<const RouteDoc> routes, std::string_view version) {
  Json paths = Json::object();
  for (const RouteDoc& route : routes) {
    Json operation = {{"summary", route.summary}};
    const size_t brace = route.path.find('{');
    if (brace != std::string_view::npos) {
      const std::string_view name = route.path.substr(brace + 1, route.path.find('}') - brace - 1);
      operation["parameters"] = Json::array({{{"name", name},
                                              {"in", "path"},
                                              {"required", true},
                                              {"schema", {{"type", "string"}, {"minLength", 1}}}}});
    }
    if (!route.fields.empty()) operation["requestBody"] = BodyOf(route);
    operation["responses"] = AnswersOf(route);
    const bool get = route.method == "GET";
    paths[std::string(route.path)][get ? "get" : "post"] = std::move(operation);
  }
  const Json document = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "staffel"}, {"version", version}}},
      {"paths", std::move(paths)},
      {"components", Components()},
      {"security",
       Json::array({Json::object(), {{"bearer", Json::array()}}, {{"key", Json::array()}}})}};
  return document.dump(1);
}

}  // namespace staffel::api
