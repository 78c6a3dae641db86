// Large memory of the CPU backend.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "staffel/status.h"

namespace staffel::cpu {

inline constexpr int64_t kHugePage = int64_t{2} << 20;

// Zeroed memory at a 2 MiB boundary, on huge pages where the kernel grants them; pages are taken
// when they are touched. Move-only owner.
class HugeMemory {
 public:
  HugeMemory() = default;
  // ResourceExhausted: the address space does not suffice; `what` is for the message.
  static Result<HugeMemory> Map(int64_t bytes, std::string_view what);
  ~HugeMemory();
  HugeMemory(HugeMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HugeMemory& operator=(HugeMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

// What a prepared program takes, in bytes.
struct MemoryNeeds {
  int64_t weights = 0, kv = 0, activations = 0;
  int kv_blocks = 0, block_size = 0;
  int64_t total() const { return weights + kv + activations; }
};

// ResourceExhausted with all numbers if the needs exceed `available_bytes`.
Status CheckMemory(const MemoryNeeds& needs, int64_t available_bytes);

}  // namespace staffel::cpu
