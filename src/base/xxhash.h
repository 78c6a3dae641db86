// XXH64 (Collet, "xxHash fast digest algorithm", specification 0.1.1): a checksum that runs at the
// speed of memory. Tells damage from content; not meant against an adversary. Pure.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace staffel {

uint64_t Xxh64(absl::Span<const uint8_t> bytes, uint64_t seed = 0);

}  // namespace staffel
