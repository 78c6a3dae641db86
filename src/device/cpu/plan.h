// A program lowered for the CPU: which launches run, which memory each value takes and when, and
// how the weights lie in their arena. Pure: made from the program and the stored types, before
// anything is allocated, so that all memory is known in advance.
//
// A value is kept in the representations that its consumers need: f32 rows, or the activation
// forms that matrix products read (several, if the weights' types call for several).
// Representations are made by the launch that computes the value where that is free, else by a
// conversion just before their consumer.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "device/program_check.h"
#include "kernels/api/cpu_kernels.h"
#include "staffel/backend.h"

namespace staffel::cpu {

enum class BufferId : int32_t { kNone = -1 };
enum class MatrixId : int32_t { kNone = -1 };

// Memory of one representation of one value, in the step arena.
struct Buffer {
  ValueId value = ValueId::kNone;
  bool is_f32_rows = true;  // [rows, cols] f32; else Activations of `form`
  kernels::ActivationForm form = kernels::ActivationForm::kF32;
  RowDim rows = RowDim::kTokens;
  int cols = 0;
  int64_t bytes = 0;        // for the largest step
  int first = 0, last = 0;  // launches that use it, inclusive
  int64_t offset = 0;       // in the step arena
};

// Weights that lie side by side and are multiplied as one matrix: one WeightSpec, or several of
// one type whose rows fill whole groups.
struct Matrix {
  std::vector<WeightId> parts;
  DType type = DType::kF32;
  int rows = 0, cols = 0;
  int64_t offset = 0;  // in the weight arena
  int64_t group_stride_bytes = 0;
  std::vector<WeightId> biases;  // empty, or one per part (kNone: zeros)
};

// out[t] = row token[t] of the packed matrix, or of the stored bytes where the embedding is not
// also a Linear weight.
struct EmbedLaunch {
  MatrixId matrix = MatrixId::kNone;
  WeightId stored = WeightId::kNone;
  int64_t stored_offset = 0;  // in the weight arena
  float scale = 1.0f;
  BufferId out;
};

// kernels::PrepareParams: add, norm, conversion to another form.
struct PrepareLaunch {
  BufferId residual;
  BufferId delta = BufferId::kNone;
  WeightId post_norm = WeightId::kNone, norm = WeightId::kNone;
  float eps = 0;
  BufferId out = BufferId::kNone;      // activations
  BufferId out_f32 = BufferId::kNone;  // f32 rows
};

struct MatmulLaunch {
  struct Segment {
    MatrixId matrix;
    BufferId in;
    int column = 0;       // of out
    int group_begin = 0;  // in the launch; the next segment's (or `groups`) ends it
  };
  std::vector<Segment> segments;
  int groups = 0;
  bool accumulate = false;  // out += product
  BufferId out;
};

struct GatedLaunch {
  MatrixId gate, up;
  BufferId in;  // in the form of both, or f32 where gate's and up's differ
  kernels::GateFunction function;
  BufferId out = BufferId::kNone;      // activations, or
  BufferId out_f32 = BufferId::kNone;  // f32 rows
};

// Rotation and KV store, attention, or both in one launch.
struct AttentionLaunch {
  int rope = -1;    // RopeAndStoreKv op, or -1
  int attend = -1;  // PagedAttention op, or -1
  int table = -1;   // rotation table of `rope`
  BufferId qkv;
  BufferId out = BufferId::kNone;
};

// AllReduce, Gather, Send, Recv.
struct CommLaunch {
  int op;
  BufferId value = BufferId::kNone;  // kNone: the first member's own columns are in `out` already
  BufferId out = BufferId::kNone;    // Gather, on the first member
};

struct TakeRowsLaunch {
  BufferId in, out;
};

using LaunchKind = std::variant<EmbedLaunch, PrepareLaunch, MatmulLaunch, GatedLaunch,
                                AttentionLaunch, CommLaunch, TakeRowsLaunch>;

struct Launch {
  LaunchKind kind;
  RowDim rows = RowDim::kTokens;
  int op = 0;                      // the (first) op of the program that it belongs to
  std::vector<int> completed_ops;  // whose values are all there afterwards
};

// Angles of one RopeAndStoreKv setting; layers mostly share one or two.
struct RopeTable {
  int rope_dim = 0;
  double base = 0, position_scale = 0;
  WeightId frequency_factors = WeightId::kNone;
  bool operator==(const RopeTable&) const = default;
};

struct Plan {
  std::vector<Launch> launches;
  std::vector<Buffer> buffers;  // index is the BufferId
  std::vector<Matrix> matrices;
  std::vector<RopeTable> rope_tables;
  int64_t step_bytes = 0;    // of the step arena
  int64_t weight_bytes = 0;  // of the weight arena
  int64_t rope_bytes = 0;    // of all rotation tables at max_positions
  BufferId logits = BufferId::kNone, hidden = BufferId::kNone;

  const Buffer& buffer(BufferId id) const { return buffers[static_cast<int>(id)]; }
  const Matrix& matrix(MatrixId id) const { return matrices[static_cast<int>(id)]; }
};

// InvalidArgument / Unimplemented name the op or tensor that the CPU kernels cannot run.
// `slices`: one per weight of the program (FindWeights). group_size 1: AllReduce is left out.
Result<Plan> MakePlan(const Program& program, const std::vector<WeightSlice>& slices,
                      int group_size, const BackendOptions& options);

// Bytes of one block of all layers.
int64_t KvBlockBytes(const KvShape& kv, int block_size);
// Bytes from one layer's blocks to the next's. The layers begin at evenly spread places of their
// 2 MiB pages: else the first use of one block could take a new page for every layer at once, and
// that step would last as long as the kernel needs to clear them all. What lies between is not
// touched, so it costs address space only.
int64_t KvLayerStride(const KvShape& kv, int block_size, int block_count);

}  // namespace staffel::cpu
