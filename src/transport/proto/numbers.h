// Checks of numbers, texts and lists that came from outside.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "staffel/cluster.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel {

inline constexpr size_t kNameBytesMax = 256;
inline constexpr size_t kTextBytesMax = 64 << 10;  // reasons, paths, addresses

// The first number that does not fit is remembered, and the message is refused as a whole.
class Numbers {
 public:
  int Int(uint32_t value, const char* name, int min = 0,
          int max = std::numeric_limits<int32_t>::max()) {
    if (value < static_cast<uint32_t>(min) || value > static_cast<uint32_t>(max)) {
      Refuse(StrCat(name, " ", value, " is out of range"));
      return min;
    }
    return static_cast<int>(value);
  }
  // [-1, max]
  int IntOrNone(int32_t value, const char* name, int max = std::numeric_limits<int32_t>::max()) {
    if (value < -1 || value > max) {
      Refuse(StrCat(name, " ", value, " is out of range"));
      return -1;
    }
    return value;
  }
  int64_t Count(int64_t value, const char* name) {
    if (value >= 0) return value;
    Refuse(StrCat(name, " ", value, " is negative"));
    return 0;
  }
  // Finite, in [0, max].
  double Real(double value, const char* name, double max = std::numeric_limits<double>::max()) {
    if (value >= 0 && value <= max) return value;
    Refuse(StrCat(name, " ", value, " is out of range"));
    return 0;
  }
  Slot SlotOf(uint32_t value) { return Slot(Int(value, "slot")); }
  BlockId Block(uint32_t value) { return BlockId(Int(value, "block")); }
  TokenId Token(uint32_t value) { return Int(value, "token"); }
  Pooling PoolingOf(int value) {
    if (value >= 0 && value <= static_cast<int>(Pooling::kMean)) return Pooling(value);
    Refuse(StrCat("pooling ", value, " is unknown"));
    return Pooling::kNone;
  }
  template <class Repeated>
  std::vector<TokenId> Tokens(const Repeated& values) {
    std::vector<TokenId> tokens;
    tokens.reserve(values.size());
    for (uint32_t value : values) tokens.push_back(Token(value));
    return tokens;
  }
  std::string Text(const std::string& text, const char* name, size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    Refuse(StrCat(name, " has ", text.size(), " bytes; at most ", bytes_max, " are allowed"));
    return {};
  }
  bool TooMany(int count, int max, const char* name) {
    if (count <= max) return false;
    Refuse(StrCat(count, " ", name, " are too many; at most ", max, " are allowed"));
    return true;
  }
  ReplicaId Replica(uint32_t value) { return ReplicaId(Int(value, "replica")); }
  void Refuse(std::string_view why) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::string_view(why.data(), why.size()));
    }
  }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

}  // namespace staffel
