// Which bytes of a model file a rank's program needs.
#pragma once

#include <vector>

#include "staffel/cluster.h"
#include "staffel/model_file.h"
#include "staffel/program.h"
#include "staffel/status.h"

namespace staffel {

// Offsets count through the model's files in their order. A normalised set; the
// part of a matrix that is cut by columns is one range a row. Headers are not among them.
// NotFound / InvalidArgument name the tensor.
Result<std::vector<ModelRange>> ShardRanges(const Program& program, const ModelFile& file);

}  // namespace staffel
