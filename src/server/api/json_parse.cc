#include "server/api/json_parse.h"

#include <cmath>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/strings.h"

namespace staffel::api {
namespace {

// Builds the document from parser events. Unlike the library's own builder it bounds depth and
// size, refuses repeated keys in O(1), and remembers the top-level key for errors.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Put(Json(nullptr)); }
  bool boolean(bool v) override { return Put(Json(v)); }
  bool number_integer(number_integer_t v) override { return Put(Json(v)); }
  bool number_unsigned(number_unsigned_t v) override { return Put(Json(v)); }
  bool number_float(number_float_t v, const string_t&) override { return Put(Json(v)); }
  bool string(string_t& v) override { return Put(Json(std::move(v))); }
  bool binary(binary_t&) override { return Fail("the body holds binary data"); }

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Frame& frame = stack_.back();
    if (!frame.Insert(name)) {
      return Fail(
          StrCat("the key '", name.substr(0, 100), "' occurs twice in one object; send it once"));
    }
    if (stack_.size() == 1) top_key_ = name;
    frame.key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    if (e.id == 406) return Fail("a number is too large for a double; send a smaller one");
    std::string_view what = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." -> what follows the
    // second colon-space.
    size_t at = what.find(": ");
    if (at != std::string_view::npos) what.remove_prefix(at + 2);
    return Fail(
        StrCat("the body is not valid JSON (at byte ", position, "): ", what.substr(0, 200)));
  }

  Json root = nullptr;
  std::optional<ApiError> error;

 private:
  struct Frame {
    Json value;
    std::string key;                                         // of the member being read
    std::vector<std::string> few;                            // keys so far, while they are few
    std::unique_ptr<absl::flat_hash_set<std::string>> many;  // and when they are many

    // False if the key is there already.
    bool Insert(const std::string& name) {
      if (many) return many->insert(name).second;
      for (const std::string& k : few) {
        if (k == name) return false;
      }
      few.push_back(name);
      if (few.size() > 32)
        many = std::make_unique<absl::flat_hash_set<std::string>>(few.begin(), few.end());
      return true;
    }
  };

  bool Fail(std::string message) {
    if (!error) error = Invalid(top_key_, std::move(message));
    return false;
  }
  bool Count() {
    if (++values_ > limits_.values_max)
      return Fail("the body holds too many JSON values; send a smaller one");
    return true;
  }
  bool Put(Json value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }
  void Place(Json value) {
    if (stack_.empty()) {
      root = std::move(value);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.value.is_array()) {
      frame.value.get_ref<Json::array_t&>().push_back(std::move(value));
      return;
    }
    // The key is new, so the ordered map's own look-up, linear in its size, is not needed.
    auto& members = frame.value.get_ref<Json::object_t&>();
    members.Json::object_t::Container::emplace_back(std::move(frame.key), std::move(value));
  }
  bool Open(Json container) {
    if (!Count()) return false;
    if (static_cast<int>(stack_.size()) >= limits_.depth_max) {
      return Fail(StrCat("the body is nested deeper than ", limits_.depth_max, " levels"));
    }
    stack_.emplace_back();
    stack_.back().value = std::move(container);
    return true;
  }
  bool Close() {
    Json value = std::move(stack_.back().value);
    stack_.pop_back();
    Place(std::move(value));
    if (stack_.size() == 1) top_key_.clear();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Frame> stack_;
  std::string top_key_;
  int64_t values_ = 0;
};

std::string Bounds(auto min, auto max) { return StrCat("between ", min, " and ", max); }

}  // namespace

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view TypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "an integer";
  }
}

Checked<Json> ParseBody(std::string_view body, const JsonLimits& limits) {
  if (body.empty()) return Invalid("", "the body is empty; send a JSON object");
  Builder builder(limits);
  // With an event receiver the library reports errors through parse_error and does not throw.
  bool complete = Json::sax_parse(body.begin(), body.end(), &builder);
  if (builder.error) return *std::move(builder.error);
  if (!complete) return Invalid("", "the body is not valid JSON");
  if (!builder.root.is_object()) {
    return Invalid("", StrCat("the body must be a JSON object, it is ", TypeName(builder.root)));
  }
  return std::move(builder.root);
}

const Json* FieldReader::Get(std::string_view name) const {
  auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::Fail(std::string_view name, std::string message) {
  if (!error_) error_ = Invalid(StrCat(path_, name), std::move(message));
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, StrCat("'", path_, name, "' must be true or false, it is ", TypeName(*value)));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t min, int64_t max) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    Fail(name, StrCat("'", path_, name, "' must be an integer, it is ", TypeName(*value)));
    return std::nullopt;
  }
  bool too_large =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  int64_t number = too_large ? INT64_MAX : value->get<int64_t>();
  if (too_large || number < min || number > max) {
    Fail(name, StrCat("'", path_, name, "' must be ", Bounds(min, max), ", it is ", value->dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::Number(std::string_view name, double min, double max) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(name, StrCat("'", path_, name, "' must be a number, it is ", TypeName(*value)));
    return std::nullopt;
  }
  double number = value->get<double>();
  if (!(number >= min && number <= max)) {  // NaN fails as well
    Fail(name, StrCat("'", path_, name, "' must be ", Bounds(min, max), ", it is ", value->dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, StrCat("'", path_, name, "' must be a string, it is ", TypeName(*value)));
  return std::nullopt;
}

const Json* FieldReader::Array(std::string_view name) {
  const Json* value = Get(name);
  if (value == nullptr || value->is_array()) return value;
  Fail(name, StrCat("'", path_, name, "' must be an array, it is ", TypeName(*value)));
  return nullptr;
}

const Json* FieldReader::Object(std::string_view name) {
  const Json* value = Get(name);
  if (value == nullptr || value->is_object()) return value;
  Fail(name, StrCat("'", path_, name, "' must be an object, it is ", TypeName(*value)));
  return nullptr;
}

std::optional<std::vector<int64_t>> FieldReader::IntArray(std::string_view name, int64_t min,
                                                          int64_t max) {
  const Json* value = Array(name);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> out;
  out.reserve(value->size());
  for (const Json& item : *value) {
    bool fits = item.is_number_integer() &&
                !(item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX);
    int64_t number = fits ? item.get<int64_t>() : 0;
    if (!fits || number < min || number > max) {
      Fail(name, StrCat("'", path_, name, "' must hold integers ", Bounds(min, max), ", it holds ",
                        Dump(item).substr(0, 60)));
      return std::nullopt;
    }
    out.push_back(number);
  }
  return out;
}

}  // namespace staffel::api
