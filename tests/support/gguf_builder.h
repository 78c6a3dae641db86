// Writes GGUF files for tests, good ones and, on demand, bad ones: every length and count of the
// header can be set apart from what follows it.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace staffel::testing {

template <class T>
std::string Raw(T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::string RawString(std::string_view text) {
  return Raw<uint64_t>(text.size()).append(text);
}

class GgufBuilder {
 public:
  // Metadata entries, in the order of the calls. `type` is the number of the value's type.
  GgufBuilder& RawKey(std::string_view key, uint32_t type, std::string_view value) {
    keys_ += RawString(key) + Raw(type);
    keys_ += value;
    key_count_++;
    return *this;
  }
  GgufBuilder& U8(std::string_view key, uint8_t v) { return RawKey(key, 0, Raw(v)); }
  GgufBuilder& U16(std::string_view key, uint16_t v) { return RawKey(key, 2, Raw(v)); }
  GgufBuilder& U32(std::string_view key, uint32_t v) { return RawKey(key, 4, Raw(v)); }
  GgufBuilder& I32(std::string_view key, int32_t v) { return RawKey(key, 5, Raw(v)); }
  GgufBuilder& F32(std::string_view key, float v) { return RawKey(key, 6, Raw(v)); }
  GgufBuilder& Bool(std::string_view key, bool v) { return RawKey(key, 7, Raw<uint8_t>(v)); }
  GgufBuilder& U64(std::string_view key, uint64_t v) { return RawKey(key, 10, Raw(v)); }
  GgufBuilder& I64(std::string_view key, int64_t v) { return RawKey(key, 11, Raw(v)); }
  GgufBuilder& F64(std::string_view key, double v) { return RawKey(key, 12, Raw(v)); }
  GgufBuilder& String(std::string_view key, std::string_view v) {
    return RawKey(key, 8, RawString(v));
  }
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string body = Raw<uint32_t>(8) + Raw<uint64_t>(values.size());
    for (const std::string& value : values) body += RawString(value);
    return RawKey(key, 9, body);
  }
  // `type` must be the number of T's type: 4 u32, 5 i32, 6 f32, 7 bool, ...
  template <class T>
  GgufBuilder& Array(std::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string body = Raw(type) + Raw<uint64_t>(values.size());
    for (const T& value : values) body += Raw(value);
    return RawKey(key, 9, body);
  }

  // A tensor of `bytes`, padded to the alignment. offset: in place of the right one.
  GgufBuilder& Tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      std::string_view bytes, std::optional<uint64_t> offset = {}) {
    tensors_ += RawString(name) + Raw<uint32_t>(dims.size());
    for (const uint64_t dim : dims) tensors_ += Raw(dim);
    tensors_ += Raw(type) + Raw<uint64_t>(offset.value_or(data_.size()));
    data_ += bytes;
    Pad(data_);
    tensor_count_++;
    return *this;
  }
  // Bytes in place of a tensor's header entry.
  GgufBuilder& RawTensor(std::string_view bytes) {
    tensors_ += bytes;
    tensor_count_++;
    return *this;
  }

  GgufBuilder& Magic(std::string_view magic) { return magic_ = magic, *this; }
  GgufBuilder& Version(uint32_t version) { return version_ = version, *this; }
  GgufBuilder& KeyCount(uint64_t count) { return key_count_ = count, *this; }
  GgufBuilder& TensorCount(uint64_t count) { return tensor_count_ = count, *this; }
  GgufBuilder& Alignment(uint64_t alignment) { return alignment_ = alignment, *this; }

  std::string Build() const {
    std::string file = magic_ + Raw(version_) + Raw(tensor_count_) + Raw(key_count_);
    file += keys_ + tensors_;
    if (tensor_count_ > 0) Pad(file);
    return file + data_;
  }

 private:
  void Pad(std::string& bytes) const {
    while (bytes.size() % alignment_ != 0) bytes += '\0';
  }

  std::string magic_ = "GGUF";
  uint32_t version_ = 3;
  uint64_t tensor_count_ = 0, key_count_ = 0, alignment_ = 32;
  std::string keys_, tensors_, data_;
};

inline void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), bytes.size());
}

}  // namespace staffel::testing
