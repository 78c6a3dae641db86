// Opening a model file of any format that this program reads.
#pragma once

#include <memory>
#include <string>

#include "staffel/model_file.h"
#include "staffel/status.h"

namespace staffel {

// Opens a GGUF file (versions 2 and 3, little-endian), or all parts of a split one when given its
// first part ("x-00001-of-00003.gguf"). The file is mapped, not read: tensor bytes come from the
// page cache when they are first touched, and stay valid while the ModelFile lives. Everything in
// the header is checked before it is used. Errors name the file, and the key or tensor that is
// wrong: NotFound, PermissionDenied, InvalidArgument (foreign, damaged or incomplete file),
// Unimplemented (newer version or an element type that this build does not know).
// The ModelFile is immutable and may be used from any thread.
Result<std::unique_ptr<ModelFile>> OpenModelFile(const std::string& path);

}  // namespace staffel
