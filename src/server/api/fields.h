// The fields of request bodies as tables: one table drives validation, the OpenAPI document
// (openapi.h) and the tests that compare it with clients and documents. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "server/api/json_parse.h"

namespace staffel::api {

enum class FieldKind : uint8_t { kBool, kInt, kNumber, kString, kArray, kObject, kMixed };

// What becomes of a field that a client sends.
enum class FieldUse : uint8_t {
  kRead,
  kRequired,
  kIgnored,
  kRefused,
  kNeutral,  // cannot be honoured: only its fallback is taken, which changes nothing
};

struct Field {
  std::string_view name;
  FieldKind kind = FieldKind::kMixed;
  std::string_view note;           // for people; of a refused field: why, and what to do instead
  std::string_view fallback = {};  // the default, as JSON text; "": none
  double min = -std::numeric_limits<double>::infinity();  // of numbers
  double max = std::numeric_limits<double>::infinity();
  FieldUse use = FieldUse::kRead;
  std::string_view schema = {};         // kMixed: JSON Schema text of what is taken
  std::span<const Field> members = {};  // kObject: of its fields, where they have a table
};

// Checks kinds and ranges of what is there, members too, and refuses; kMixed fields are checked
// where they are read. null counts as absent, and so do false, "" and empty lists of refused
// fields.
void CheckFields(FieldReader& reader, std::span<const Field> fields);

// Copies what `client` has of the named fields to `fields`, under OpenAI's names; null is absent.
void CopyFields(const Json& client, std::span<const ClientName> names, Json& fields);

// One route's body; `fields` lives as long as the program.
struct RouteDoc {
  std::string_view method, path;
  std::string_view summary;
  std::span<const Field> fields = {};         // of the body; none: no body
  std::span<const Field> shared_fields = {};  // of the body, as well
  bool streams = false;                       // may answer with a stream
  std::string_view stream_type = "text/event-stream";
  std::string_view answer_type = R"("object")";  // JSON text: the type in the schema of an answer
  std::string_view error_schema = {};            // JSON text; "": OpenAI's
};

}  // namespace staffel::api
