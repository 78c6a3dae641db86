#include "device/cpu/memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <string>

#include "base/strings.h"

namespace staffel::cpu {
namespace {

std::string Gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace

Result<HugeMemory> HugeMemory::Map(int64_t bytes, std::string_view what) {
  // One huge page more than asked for, so that an aligned start can be cut out.
  const int64_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat("The system refuses ", Gigabytes(size), " of address space for ", what, "."));
  }
  auto* start = static_cast<uint8_t*>(map);
  const int64_t skip = (kHugePage - reinterpret_cast<intptr_t>(start) % kHugePage) % kHugePage;
  if (skip > 0) munmap(start, skip);
  const int64_t tail = kHugePage - skip;
  if (tail > 0) munmap(start + size - tail, tail);
  HugeMemory memory;
  memory.data_ = start + skip;
  memory.bytes_ = size - kHugePage;
  // Advice only: without huge pages everything works, with more TLB misses.
  if (memory.bytes_ > 0) madvise(memory.data_, memory.bytes_, MADV_HUGEPAGE);
  return memory;
}

HugeMemory::~HugeMemory() {
  if (data_ != nullptr && bytes_ > 0) munmap(data_, bytes_);
}

Status CheckMemory(const MemoryNeeds& needs, int64_t available_bytes) {
  if (needs.total() <= available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("The model needs ", Gigabytes(needs.total()), " of memory (weights ",
             Gigabytes(needs.weights), ", KV ", Gigabytes(needs.kv), " for ", needs.kv_blocks,
             " blocks of ", needs.block_size, " tokens, activations ", Gigabytes(needs.activations),
             ") but ", Gigabytes(available_bytes),
             " are available: ", Gigabytes(needs.total() - available_bytes),
             " are missing; use fewer KV blocks, a smaller model or more ranks."));
}

}  // namespace staffel::cpu
