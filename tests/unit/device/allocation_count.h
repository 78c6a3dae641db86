// Counts the allocations of the test program that this is linked into (operator new, any thread).
#pragma once

#include <cstdint>

namespace staffel::testing {

int64_t AllocationCount();

}  // namespace staffel::testing
