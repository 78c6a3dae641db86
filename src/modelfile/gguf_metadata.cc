#include "modelfile/gguf_metadata.h"

#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "base/utf8.h"
#include "modelfile/byte_reader.h"

namespace staffel {
namespace {

template <class... Parts>
Status Invalid(std::string_view key, const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat("key '", EscapeForMessage(key), "' ", parts...));
}

std::string TypeName(const GgufValue& value) {
  const char* name = FindGgufType(static_cast<uint32_t>(value.type))->name;
  if (value.type != GgufType::kArray) return name;
  return StrCat("array of ", FindGgufType(static_cast<uint32_t>(value.element))->name);
}

Status WrongType(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return Invalid(key, "has the type ", TypeName(value), " where ", wanted, " is needed");
}

template <class T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Calls visit(number) with the stored integer of any width; false for other types.
template <class Visit>
bool VisitInteger(GgufType type, const char* bytes, Visit visit) {
  switch (type) {
    case GgufType::kU8:
      return visit(Load<uint8_t>(bytes)), true;
    case GgufType::kI8:
      return visit(Load<int8_t>(bytes)), true;
    case GgufType::kU16:
      return visit(Load<uint16_t>(bytes)), true;
    case GgufType::kI16:
      return visit(Load<int16_t>(bytes)), true;
    case GgufType::kU32:
      return visit(Load<uint32_t>(bytes)), true;
    case GgufType::kI32:
      return visit(Load<int32_t>(bytes)), true;
    case GgufType::kU64:
      return visit(Load<uint64_t>(bytes)), true;
    case GgufType::kI64:
      return visit(Load<int64_t>(bytes)), true;
    default:
      return false;
  }
}

}  // namespace

GgufMetadata::GgufMetadata(const std::vector<std::pair<std::string_view, GgufValue>>& entries) {
  values_.reserve(entries.size());
  order_.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    values_.emplace(key, value);
    order_.push_back(key);
  }
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool GgufMetadata::Has(const std::string& key) const { return Find(key) != nullptr; }

Result<const GgufValue*> GgufMetadata::Get(std::string_view key) const {
  if (const GgufValue* value = Find(key)) return value;
  return absl::NotFoundError(
      StrCat("key '", EscapeForMessage(key), "' is absent from the metadata"));
}

Result<int64_t> GgufMetadata::Int(const std::string& key, int64_t min, int64_t max) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  int64_t result = 0;
  Status status;
  const bool is_integer = VisitInteger(value->type, value->bytes.data(), [&](auto number) {
    if (std::cmp_less(number, min) || std::cmp_greater(number, max)) {
      status = Invalid(key, "is ", number, "; it must be from ", min, " to ", max);
    } else {
      result = static_cast<int64_t>(number);
    }
  });
  if (!is_integer) return WrongType(key, *value, "an integer");
  STAFFEL_RETURN_IF_ERROR(status);
  return result;
}

Result<double> GgufMetadata::Float(const std::string& key) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  double result = 0;
  if (value->type == GgufType::kF32) {
    result = Load<float>(value->bytes.data());
  } else if (value->type == GgufType::kF64) {
    result = Load<double>(value->bytes.data());
  } else if (!VisitInteger(value->type, value->bytes.data(),
                           [&](auto number) { result = static_cast<double>(number); })) {
    return WrongType(key, *value, "a number");
  }
  if (!std::isfinite(result)) return Invalid(key, "is ", result, "; it must be finite");
  return result;
}

Result<bool> GgufMetadata::Bool(const std::string& key) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  if (value->type != GgufType::kBool) return WrongType(key, *value, "a bool");
  const auto byte = Load<uint8_t>(value->bytes.data());
  if (byte > 1) return Invalid(key, "is a bool of value ", byte, "; it must be 0 or 1");
  return byte == 1;
}

Result<std::string> GgufMetadata::String(const std::string& key) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  if (value->type != GgufType::kString) return WrongType(key, *value, "a string");
  if (value->bytes.size() > kGgufStringBytesMax) {
    return Invalid(key, "is a string of ", value->bytes.size(), " bytes; at most ",
                   kGgufStringBytesMax, " are read");
  }
  if (value->bytes.find('\0') != value->bytes.npos || !IsValidUtf8(value->bytes)) {
    return Invalid(key, "is not valid UTF-8 text");
  }
  return std::string(value->bytes);
}

Result<std::vector<int64_t>> GgufMetadata::IntArray(const std::string& key) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  if (value->type != GgufType::kArray) return WrongType(key, *value, "an array of integers");
  const GgufTypeInfo& info = *FindGgufType(static_cast<uint32_t>(value->element));
  if (value->count > kGgufIntArrayMax) {
    return Invalid(key, "is an array of ", value->count, " elements; at most ", kGgufIntArrayMax,
                   " are read");
  }
  const bool is_bool = info.type == GgufType::kBool;
  std::vector<int64_t> result;
  result.reserve(value->count);
  Status status;
  for (uint64_t i = 0; i < value->count; i++) {
    const auto take = [&](auto number) {
      if (std::cmp_greater(number, is_bool ? 1 : INT64_MAX)) {
        status = Invalid(key, "has the element ", i, " of value ", number, ", out of range");
      }
      result.push_back(static_cast<int64_t>(number));
    };
    if (!VisitInteger(is_bool ? GgufType::kU8 : info.type, value->bytes.data() + i * info.bytes,
                      take)) {
      return WrongType(key, *value, "an array of integers");
    }
    STAFFEL_RETURN_IF_ERROR(status);
  }
  if (value->count == 0 && (info.type == GgufType::kString || info.type == GgufType::kF32 ||
                            info.type == GgufType::kF64)) {
    return WrongType(key, *value, "an array of integers");
  }
  return result;
}

std::vector<std::string> GgufMetadata::Keys() const { return {order_.begin(), order_.end()}; }

Result<std::vector<std::string>> GgufMetadata::StringArray(const std::string& key,
                                                           uint64_t count_max,
                                                           size_t bytes_max) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return WrongType(key, *value, "an array of strings");
  }
  if (value->count > count_max) {
    return Invalid(key, "is an array of ", value->count, " strings; at most ", count_max,
                   " are read");
  }
  ByteReader in({reinterpret_cast<const uint8_t*>(value->bytes.data()), value->bytes.size()});
  std::vector<std::string> result;
  result.reserve(value->count);
  for (uint64_t i = 0; i < value->count; i++) {
    uint64_t length = 0;
    std::string_view text;
    if (!in.Read(&length) || !in.ReadBytes(length, &text)) {
      return Invalid(key, "is damaged at element ",
                     i);  // the header's parser has walked it already
    }
    if (length > bytes_max) {
      return Invalid(key, "has an element ", i, " of ", length, " bytes; at most ", bytes_max,
                     " are read");
    }
    result.emplace_back(text);
  }
  return result;
}

Result<std::vector<float>> GgufMetadata::FloatArray(const std::string& key,
                                                    uint64_t count_max) const {
  STAFFEL_ASSIGN_OR_RETURN(const GgufValue* value, Get(key));
  if (value->type != GgufType::kArray || value->element != GgufType::kF32) {
    return WrongType(key, *value, "an array of f32");
  }
  if (value->count > count_max) {
    return Invalid(key, "is an array of ", value->count, " values; at most ", count_max,
                   " are read");
  }
  std::vector<float> result(value->count);
  if (!result.empty()) std::memcpy(result.data(), value->bytes.data(), value->bytes.size());
  return result;
}

}  // namespace staffel
