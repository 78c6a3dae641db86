// Request bodies: strict JSON with limits, and typed access to fields whose errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api/api_error.h"

namespace staffel::api {

using Json = nlohmann::ordered_json;

// On one line. Bytes that are not UTF-8 become U+FFFD.
std::string Dump(const Json& value);

struct JsonLimits {
  int depth_max = 200;
  int64_t values_max = 4'000'000;  // of the whole document: about 64 bytes each in memory
};

// A value, or what is wrong with the request.
template <class T>
using Checked = std::variant<T, ApiError>;

// Parses a request body that must be one JSON object (RFC 8259; a leading byte order mark is
// skipped). Refused, with the top-level field as param where there is one: anything after the
// object, keys that occur twice, numbers beyond f64, invalid UTF-8, lone surrogate escapes, too
// much depth or too many values.
Checked<Json> ParseBody(std::string_view body, const JsonLimits& limits = {});

// Typed reads from one object. null counts as absent. The first error is kept and later reads
// return defaults, so that a caller reads all fields straight down and asks once.
class FieldReader {
 public:
  // `path` is put before field names in errors, e.g. "stream_options.".
  explicit FieldReader(const Json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const Json& object() const { return object_; }
  // A field's name in errors.
  std::string PathOf(std::string_view name) const { return path_ + std::string(name); }
  const Json* Get(std::string_view name) const;  // nullptr if absent or null
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Int(std::string_view name, int64_t min, int64_t max);
  std::optional<double> Number(std::string_view name, double min, double max);
  std::optional<std::string> String(std::string_view name);
  const Json* Array(std::string_view name);
  const Json* Object(std::string_view name);
  // Integers of an array, each in [min, max].
  std::optional<std::vector<int64_t>> IntArray(std::string_view name, int64_t min, int64_t max);

  void Fail(std::string_view name, std::string message);
  bool ok() const { return !error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// "a string", "an array", ...: the JSON type of a value for messages.
std::string_view TypeName(const Json& value);

}  // namespace staffel::api
