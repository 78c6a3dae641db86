#include "server/api/fields.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "server/anthropic/fields.h"
#include "server/api/openapi.h"
#include "server/llama/fields.h"
#include "server/ollama/fields.h"
#include "server/openai/fields.h"
#include "server/tgi/fields.h"
#include "server/tokenize/routes.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

std::vector<RouteDoc> AllRoutes() {
  std::vector<RouteDoc> routes;
  for (const auto& front : {openai::RouteDocs(), anthropic::RouteDocs(), llama::RouteDocs(),
                            ollama::RouteDocs(), tgi::RouteDocs(), tokenize::RouteDocs()})
    routes.insert(routes.end(), front.begin(), front.end());
  return routes;
}

// A field, and the field whose member it is, if any.
struct Sent : Field {
  std::string_view object;

  std::string Quoted() const {
    return object.empty() ? StrCat("'", name, "'") : StrCat("'", object, ".", name, "'");
  }
  std::string Member(std::string_view value) const {
    const std::string member = StrCat("\"", name, "\":", value);
    return object.empty() ? member : StrCat("\"", object, "\":{", member, "}");
  }
};

std::vector<Sent> FieldsOf(const RouteDoc& route) {
  std::vector<Sent> fields;
  for (const auto& table : {route.fields, route.shared_fields}) {
    for (const Field& field : table) {
      fields.push_back({field, ""});
      for (const Field& member : field.members) fields.push_back({member, field.name});
    }
  }
  return fields;
}

// A body that the route takes, without and with one more field.
std::string BodyOf(std::string_view path, const std::string& member) {
  std::string body = "{";
  if (path == "/v1/completions" || path == "/tokenize" || path.starts_with("/completion") ||
      path == "/api/generate" || path == "/api/embeddings") {
    body += R"("prompt":"a")";
  } else if (path == "/infill") {
    body += R"("input_prefix":"a","input_suffix":"b")";
  } else if (path == "/v1/responses" || path == "/v1/embeddings" || path == "/api/embed") {
    body += R"("input":"a")";
  } else if (path == "/generate" || path == "/generate_stream" || path == "/") {
    body += R"("inputs":"a")";
  } else if (path.starts_with("/embedding")) {
    body += R"("content":"a")";
  } else if (path == "/detokenize") {
    body += R"("tokens":[65])";
  } else {
    body += R"("messages":[{"role":"user","content":"a"}])";
    if (path == "/v1/messages" && member.find("\"max_tokens\"") != 0) body += R"(,"max_tokens":4)";
  }
  return StrCat(body, member.empty() ? "" : ",", member, "}");
}

// 0: the route took it and waits for the engine.
int StatusOf(std::string_view path, const std::string& member, std::string* message = nullptr) {
  ApiWorld world;
  auto tokenizer = std::make_shared<ByteTokenizer>();
  TokenizerSpec& spec = tokenizer->mutable_spec();
  spec.fim_prefix = 1, spec.fim_suffix = 2, spec.fim_middle = 3;
  world.model->tokenizer = tokenizer;
  const auto writer = world.Post(std::string(path), BodyOf(path, member));
  if (message != nullptr) *message = writer->body;
  return writer->status;
}

bool Taken(int status) { return status == 0 || status == 200; }
bool Refused(int status) { return status == 400 || status == 422; }

TEST(Fields, EveryRouteOfATableExists) {
  ApiWorld world;
  for (const RouteDoc& route : AllRoutes()) {
    if (route.path.find('{') != std::string_view::npos || route.method != "POST") continue;
    EXPECT_TRUE(Taken(StatusOf(route.path, ""))) << route.path;
  }
}

TEST(Fields, NamesAreUniqueAndDefaultsAreJson) {
  for (const RouteDoc& route : AllRoutes()) {
    std::set<std::string> names;
    for (const Sent& field : FieldsOf(route)) {
      EXPECT_TRUE(names.insert(StrCat(field.object, ".", field.name)).second)
          << route.path << " " << field.name;
      EXPECT_TRUE(field.fallback.empty() || Json::accept(field.fallback)) << field.name;
      EXPECT_TRUE(field.schema.empty() || Json::accept(field.schema)) << field.name;
    }
  }
}

// The bounds of the table are the real ones: what lies within them is taken all the way to the
// engine, what lies outside is refused by name.
TEST(Fields, BoundsAreTaken) {
  // Their bounds depend on other fields, or on the model.
  const std::set<std::string_view> other = {
      "max_tokens", "max_completion_tokens",  "top_logprobs", "prompt_logprobs",
      "best_of",    "truncate_prompt_tokens", "min_tokens",   "logprobs"};
  for (const RouteDoc& route : AllRoutes()) {
    if (route.method != "POST") continue;
    for (const Sent& field : FieldsOf(route)) {
      const bool integer = field.kind == FieldKind::kInt;
      if (!integer && field.kind != FieldKind::kNumber) continue;
      if (field.use != FieldUse::kRead) continue;
      for (const auto& [bound, beyond] : {std::pair(field.min, -1), std::pair(field.max, 1)}) {
        if (!std::isfinite(bound)) continue;
        const auto member = [&](double value) {
          return field.Member(integer ? StrCat(static_cast<int64_t>(value)) : StrCat(value));
        };
        std::string message;
        if (!other.contains(field.name)) {
          EXPECT_TRUE(Taken(StatusOf(route.path, member(bound), &message)))
              << route.path << " " << member(bound) << message;
        }
        if (route.path == "/v1/chat/completions/render") continue;  // reads what the prompt needs
        EXPECT_TRUE(Refused(StatusOf(route.path, member(bound + beyond), &message)))
            << route.path << " " << member(bound + beyond);
        EXPECT_NE(message.find(field.Quoted()), std::string::npos) << message;
      }
    }
  }
}

TEST(Fields, DefaultsAreTaken) {
  for (const RouteDoc& route : AllRoutes()) {
    for (const Sent& field : FieldsOf(route)) {
      if (field.fallback.empty()) continue;
      std::string message;
      EXPECT_TRUE(Taken(StatusOf(route.path, field.Member(field.fallback), &message)))
          << route.path << " " << field.name << message;
    }
  }
}

TEST(Fields, WrongKindsAndRefusedFieldsAreNamed) {
  for (const RouteDoc& route : AllRoutes()) {
    if (route.path == "/v1/chat/completions/render") continue;
    for (const Sent& field : FieldsOf(route)) {
      const bool checked = field.use == FieldUse::kRefused || field.use == FieldUse::kNeutral;
      if (!checked && (field.use == FieldUse::kRequired || field.kind == FieldKind::kMixed))
        continue;
      const char* wrong = field.kind == FieldKind::kBool || field.fallback == "true" ? "3" : "true";
      std::string message;
      EXPECT_TRUE(Refused(StatusOf(route.path, field.Member(wrong), &message)))
          << route.path << " " << field.name;
      EXPECT_NE(message.find(field.Quoted()), std::string::npos) << message;
    }
  }
}

TEST(Fields, IgnoredFieldsMayBeAnything) {
  for (const RouteDoc& route : AllRoutes()) {
    for (const Sent& field : FieldsOf(route)) {
      if (field.use != FieldUse::kIgnored) continue;
      EXPECT_TRUE(Taken(StatusOf(route.path, field.Member("{\"a\":[1]}"))))
          << route.path << " " << field.name;
    }
  }
}

TEST(OpenApi, DocumentHasEveryRouteAndField) {
  const std::vector<RouteDoc> routes = AllRoutes();
  const Json document = Json::parse(OpenApiDocument(routes, "1.2.3"));
  EXPECT_EQ(document["openapi"], "3.1.0");
  for (const RouteDoc& route : routes) {
    const Json& operation =
        document["paths"][std::string(route.path)][route.method == "GET" ? "get" : "post"];
    ASSERT_TRUE(operation.is_object()) << route.path;
    if (route.fields.empty()) continue;
    const Json& schema = operation["requestBody"]["content"]["application/json"]["schema"];
    size_t count = schema["properties"].size();
    for (const Json& property : schema["properties"]) {
      if (property.contains("properties")) count += property["properties"].size();
    }
    EXPECT_EQ(count, FieldsOf(route).size()) << route.path;
  }
  const Json& chat = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
                             ["application/json"]["schema"];
  EXPECT_EQ(chat["required"], Json::array({"messages"}));
  EXPECT_EQ(chat["properties"]["temperature"],
            Json::parse(R"({"type":["number","null"],"minimum":0.0,"maximum":2.0,"default":1.0,
                            "description":"0: greedy"})"));
}

TEST(OpenApi, ErrorsAreWhatTheDocumentSays) {
  const std::vector<RouteDoc> routes = AllRoutes();
  const Json document = Json::parse(OpenApiDocument(routes, "1.2.3"));
  for (const RouteDoc& route : routes) {
    if (route.method != "POST") continue;
    std::string body;
    const int status = StatusOf(route.path, R"("model":3)", &body);
    ASSERT_TRUE(status == 400 || status == 422) << route.path << " " << status;
    const Json error = Json::parse(body)["error"];
    const Json& answers = document["paths"][std::string(route.path)]["post"]["responses"];
    Json schema = answers["default"]["content"]["application/json"]["schema"];
    if (schema.contains("$ref")) schema = document["components"]["schemas"]["Error"];
    EXPECT_EQ(schema["properties"]["error"]["type"] == "string", error.is_string()) << route.path;
    for (const Json& name : schema["properties"]["error"].value("required", Json::array()))
      EXPECT_TRUE(error.contains(name.get<std::string>())) << route.path;
    if (error.contains("code") && error["code"].is_number()) {
      EXPECT_EQ(schema["properties"]["error"]["properties"]["code"]["type"], "integer");
    }
  }
  const Json& chat = document["paths"]["/api/chat"]["post"]["responses"]["200"]["content"];
  EXPECT_TRUE(chat.contains("application/x-ndjson"));
}

}  // namespace
}  // namespace staffel::api
