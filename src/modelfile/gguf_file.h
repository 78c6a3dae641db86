// A GGUF model: one file, or the parts of a split one, behind the ModelFile contract.
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "staffel/model_file.h"
#include "staffel/status.h"

namespace staffel {

// One unsplit file whose bytes are already in memory and outlive the result (tests, fuzzing).
Result<std::unique_ptr<ModelFile>> ReadGguf(absl::Span<const uint8_t> bytes,
                                            const std::string& name);

}  // namespace staffel
