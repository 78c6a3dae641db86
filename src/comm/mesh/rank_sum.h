// The sum that all collectives end in: parts are added in the order given, starting from +0, so
// that the bits depend on nothing but the values. Pure.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace staffel {

// out[i] = ((0 + parts[0][i]) + parts[1][i]) + … for i in [0, count). `out` may be one of the
// parts.
void SumInOrder(absl::Span<const float* const> parts, size_t count, float* out);

}  // namespace staffel
