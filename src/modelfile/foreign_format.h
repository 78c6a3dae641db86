// Names files that are not GGUF for what they are, from their first bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace staffel {

// "it is a zip archive or a PyTorch checkpoint, not a GGUF file; convert it ..."; for bytes that do
// not begin with a valid GGUF magic.
std::string DescribeForeignFile(absl::Span<const uint8_t> bytes);

}  // namespace staffel
