#include "server/kserve/raw_values.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/strings.h"
#include "server/grpc/message.h"
#include "text/utf8.h"

namespace staffel::api::kserve {
namespace {

static_assert(std::endian::native == std::endian::little, "raw contents are little-endian");

template <class T>
T Load(std::string_view raw, int64_t index) {
  T value;
  std::memcpy(&value, raw.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
bool LoadAll(std::string_view raw, int64_t count, Json& values) {
  if (raw.size() != static_cast<size_t>(count) * sizeof(T)) return false;
  for (int64_t i = 0; i < count; i++) {
    const T value = Load<T>(raw, i);
    if constexpr (std::is_same_v<T, float>) {
      values.push_back(WidenFloat(value));
    } else {
      values.push_back(value);
    }
  }
  return true;
}

bool LoadBools(std::string_view raw, int64_t count, Json& values) {
  if (raw.size() != static_cast<size_t>(count)) return false;
  for (const char byte : raw) values.push_back(byte != 0);
  return true;
}

bool LoadTexts(std::string_view raw, int64_t count, Json& values) {
  for (int64_t i = 0; i < count; i++) {
    if (raw.size() < sizeof(uint32_t)) return false;
    const auto size = Load<uint32_t>(raw, 0);
    raw.remove_prefix(sizeof(uint32_t));
    if (raw.size() < size) return false;
    values.push_back(std::string(raw.substr(0, size)));
    raw.remove_prefix(size);
  }
  return raw.empty();
}

bool IsUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

template <class T>
void AppendNumber(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

void AppendRaw(std::string& out, float value) { AppendNumber(out, value); }
void AppendRaw(std::string& out, uint32_t value) { AppendNumber(out, value); }
void AppendRaw(std::string& out, std::string_view text) {
  AppendRaw(out, static_cast<uint32_t>(text.size()));
  out += text;
}

ApiError WrongInput(const std::string& name, std::string_view what) {
  return Invalid(name, StrCat("the input '", name.substr(0, 64), "' ", what));
}

std::optional<bool> LoadRaw(std::string_view type, std::string_view raw, int64_t count,
                            Json& values) {
  if (type == "BYTES") return LoadTexts(raw, count, values);
  if (type == "BOOL") return LoadBools(raw, count, values);
  if (type == "INT8") return LoadAll<int8_t>(raw, count, values);
  if (type == "INT16") return LoadAll<int16_t>(raw, count, values);
  if (type == "INT32") return LoadAll<int32_t>(raw, count, values);
  if (type == "INT64") return LoadAll<int64_t>(raw, count, values);
  if (type == "UINT8") return LoadAll<uint8_t>(raw, count, values);
  if (type == "UINT16") return LoadAll<uint16_t>(raw, count, values);
  if (type == "UINT32") return LoadAll<uint32_t>(raw, count, values);
  if (type == "UINT64") return LoadAll<uint64_t>(raw, count, values);
  if (type == "FP32") return LoadAll<float>(raw, count, values);
  if (type == "FP64") return LoadAll<double>(raw, count, values);
  return std::nullopt;
}

std::optional<ApiError> CheckValues(const Tensor& tensor) {
  for (const Json& value : tensor.values) {
    if (value.is_string() && !IsUtf8(value.get_ref<const std::string&>()))
      return WrongInput(tensor.name, "is not UTF-8");
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
      return WrongInput(tensor.name, "must be a finite number");
  }
  return std::nullopt;
}

}  // namespace staffel::api::kserve
