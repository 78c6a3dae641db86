#include "tests/unit/device/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> g_allocations = 0;
}  // namespace

// All forms that `delete` below may be handed: sanitizers tell memory of one allocator from
// another's.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(size_t size) {
  if (void* p = operator new(size, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace staffel::testing {

int64_t AllocationCount() { return g_allocations.load(std::memory_order_relaxed); }

}  // namespace staffel::testing
