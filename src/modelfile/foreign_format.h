// Names what is not a GGUF file for what it is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace staffel {

// "it is a zip archive or a PyTorch checkpoint, not a GGUF file; convert it ..."; for bytes that do
// not begin with a valid GGUF magic.
std::string DescribeForeignFile(absl::Span<const uint8_t> bytes);

// The same for a folder: says which of its files can be given instead, if any.
std::string DescribeFolder(const std::string& path);

}  // namespace staffel
