// Checks that both backends make before they trust a program, a model file or a step.
// All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "staffel/backend.h"
#include "staffel/program.h"
#include "staffel/status.h"
#include "staffel/tensor.h"

namespace staffel {

// "Linear", "PagedAttention", ...
const char* OpName(const Op& op);

// The values that an op writes, and those that it reads, in the order of its fields.
std::vector<ValueId> WrittenValues(const Op& op);
std::vector<ValueId> ReadValues(const Op& op);

// InvalidArgument naming the op and what does not fit: ids outside the tables, values whose columns
// disagree with the op's attributes, weights whose ranges disagree with the values.
// `group_size`: members of the tensor group (1 without one).
Status CheckProgram(const Program& program, int group_size);

// CheckProgram, and InvalidArgument for options outside their limits, and FailedPrecondition for a
// program that sends or receives without a group.
Status CheckPrepare(const Program& program, const Communicator* group,
                    const BackendOptions& options);

// The part of a stored tensor that a WeightSpec names.
struct WeightSlice {
  const TensorView* tensor = nullptr;
  Range rows;  // of the tensor; {0, 1} for a vector
  Range cols;  // elements of each row; whole quantisation blocks

  int64_t elements() const { return int64_t{rows.size()} * cols.size(); }
  // Stored bytes of this part of row r, counted from rows.begin.
  absl::Span<const uint8_t> RowBytes(int r) const;
};

// One slice per WeightSpec, in their order. NotFound / InvalidArgument name the tensor.
Result<std::vector<WeightSlice>> FindWeights(const Program& program, const WeightSource& weights);

// InvalidArgument if a step could make a backend read or write outside its memory. `vocab`: rows of
// the embedding (0: the program has none, tokens are not looked at).
Status CheckBatch(const BatchTensors& batch, const BackendOptions& options, int vocab);

// Rows of the program's embedding matrix, 0 without one.
int EmbeddingRows(const Program& program);

}  // namespace staffel
