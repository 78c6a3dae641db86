// Reads little-endian values from untrusted bytes. A read past the end fails and moves nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "absl/types/span.h"

namespace staffel {

static_assert(std::endian::native == std::endian::little, "values are read by copying bytes");

class ByteReader {
 public:
  explicit ByteReader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  template <class T>
  [[nodiscard]] bool Read(T* value) {
    static_assert(std::is_arithmetic_v<T>);
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  [[nodiscard]] bool ReadBytes(uint64_t count, std::string_view* out) {
    if (count > left()) return false;
    *out = {reinterpret_cast<const char*>(bytes_.data() + position_), static_cast<size_t>(count)};
    position_ += count;
    return true;
  }

 private:
  absl::Span<const uint8_t> bytes_;
  size_t position_ = 0;
};

}  // namespace staffel
