// The reference backend: kernels/ref on dequantised f32 weights, f32 KV, op by op. Slow and plain;
// its values are what the other backends are compared with. Reads the clock and the environment
// never; its threads only share out rows of weights, so results do not depend on their number.
#pragma once

#include <memory>
#include <string>

#include "staffel/backend.h"

namespace staffel {

// How keys and values are stored. kBf16: rounded to nearest even, as the fast backends store them,
// so that what else they do can be judged by a narrow bound.
enum class RefKv { kF32, kBf16 };

// threads >= 1, the caller included.
std::unique_ptr<Backend> MakeRefBackend(int threads = 1, RefKv kv = RefKv::kF32);

}  // namespace staffel
