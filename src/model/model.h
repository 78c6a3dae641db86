// A model's computation on one rank, as a program. One file per architecture beside this one.
#pragma once

#include <string>

#include "model/config.h"
#include "staffel/placement.h"
#include "staffel/program.h"
#include "staffel/status.h"

namespace staffel {

// The ops of the shard's layers; with the embedding on the first stage, and the vocabulary
// projection on the last. Unimplemented: the architecture is not known.
Result<Program> BuildProgram(const ModelConfig& config, const RankShard& shard);

// The whole program as text, one op a line; equal programs print alike.
std::string PrintProgram(const Program& program);

}  // namespace staffel
