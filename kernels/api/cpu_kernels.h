// CPU kernels: plain parameter structs, one table of function pointers per instruction set level,
// and the sizes of the packed layouts. Every kernel is a pure function of its arguments: no state,
// no allocation, no threads; a caller splits the work into pieces (groups, tiles, rows) and runs
// them from any thread. Arguments are the caller's to check (see PackError); kernels do not.
//
// Words: a *group* is 16 consecutive outputs (rows of the weight matrix); a *tile* is up to 8
// consecutive activation rows. Padding is internal: every matrix may have any number of outputs.
//
// Batch invariance: for a given level, the bits of every output row depend only on that row's
// inputs, not on how many rows share the call nor on how the work is cut into pieces.
//
// This header is included by the translation units of every level: it must stay free of templates
// and of inline functions (an inline function compiled for AVX-512 may be the copy that the linker
// keeps for everybody).
#pragma once

#include <cstddef>
#include <cstdint>

namespace staffel {
enum class DType : uint32_t;          // staffel/tensor.h: the GGUF type numbers
enum class ActivationType : uint8_t;  // staffel/backend.h
}  // namespace staffel

namespace staffel::kernels {

inline constexpr int kGroup = 16;        // outputs of a group
inline constexpr int kTileRows = 8;      // activation rows of a tile
inline constexpr int kKvTokens = 16;     // tokens of a KV sub-block
inline constexpr int kMaxHeadDim = 512;  // of rope and attention
inline constexpr int kAlignment = 64;    // bytes, of packed weights, activations and KV

// ---- Weights ----------------------------------------------------------------------------------

// A part of a stored matrix: `rows` rows of `cols` elements at `row_stride_bytes` from each other.
// For rows [r0, r1) and columns [c0, c1) of a TensorView: bytes = view.bytes + r0 * row_bytes() +
// c0 / block_elements * block_bytes; c0 and c1 at block edges.
struct WeightPart {
  DType type;
  const uint8_t* bytes = nullptr;
  int64_t row_stride_bytes = 0;
  int rows = 0, cols = 0;
};

// A weight matrix [rows outputs, cols inputs] in tiles of 16 outputs, in the precision of its type
// (quantised codes and scales are kept as stored, f32 / f16 / bf16 too). Group g lies at
// data + g * group_stride_bytes. Consecutive matrices of a layer belong side by side in memory in
// the order of use: kernels prefetch 16 KiB past the end of a group (reading nothing there).
// Gate and up interleaved: the gate has data = p, the up data = p + GroupBytes(gate type, cols),
// both group_stride_bytes = GroupBytes(gate type, cols) + GroupBytes(up type, cols).
struct PackedMatrix {
  DType type;
  int rows = 0, cols = 0;
  uint8_t* data = nullptr;         // kAlignment
  int64_t group_stride_bytes = 0;  // GroupBytes(type, cols), or more
};

// ---- Activations ------------------------------------------------------------------------------

enum class ActivationForm : uint8_t {
  kInt8,   // int8 with one scale per 32 columns; against quantised weights
  kInt16,  // 15 bits in two planes of int8, one scale per 32 columns; against quantised weights
  kBf16,   // against bf16 weights
  kF32,    // against every type
};

// Activation rows [rows, cols] in the form that a matrix product reads, in tiles of 8 rows (the
// last one may hold fewer; rows of a tile are interleaved, so a tile is written by one thread).
// The columns are padded to a multiple of 64 with zeros by whoever writes the tile.
struct Activations {
  ActivationForm form = ActivationForm::kInt8;
  int rows = 0, cols = 0;
  uint8_t* data = nullptr;  // kAlignment; ActivationBytes(form, rows, cols)
};

// For rows of tiles [tile_begin, tile_end):
//   residual += post_norm ? rms_norm(delta) * post_norm : delta        if delta
//   y = norm ? rms_norm(residual) * norm : residual
// y goes to `out` (any form), to `out_f32`, or both. With neither, only the residual is updated.
// rms_norm(x) = x / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019).
struct PrepareParams {
  int rows = 0, cols = 0;
  int tile_begin = 0, tile_end = 0;
  float* residual = nullptr;  // [rows, cols]; written only if delta
  int64_t residual_stride = 0;
  const float* delta = nullptr;  // [rows, cols] or null
  int64_t delta_stride = 0;
  const float* post_norm = nullptr;  // [cols] or null
  const float* norm = nullptr;       // [cols] or null
  float eps = 0;
  const Activations* out = nullptr;  // same rows and cols
  float* out_f32 = nullptr;          // [rows, cols]
  int64_t out_f32_stride = 0;
};

// ---- Matrix products --------------------------------------------------------------------------

// out[m][n] (+)= bias[n] + sum over k of in[m][k] * weight[n][k]
// for outputs n of groups [group_begin, group_end) and rows m of tiles [tile_begin, tile_end).
// in.form: kInt8 and kInt16 for quantised types, kBf16 for BF16, kF32 for any. out has no padding.
struct MatmulParams {
  const PackedMatrix* weight = nullptr;
  const Activations* in = nullptr;
  int group_begin = 0, group_end = 0;
  int tile_begin = 0, tile_end = 0;
  const float* bias = nullptr;  // [weight->rows] or null
  bool accumulate = false;      // add to what out holds (residual)
  float* out = nullptr;         // [in->rows, out_stride]: column 0 is output 0 of this matrix
  int64_t out_stride = 0;
};

enum class GateFunction : uint8_t { kSilu, kGeluTanh };

// h[m][n] = f(in[m] . gate[n]) * (in[m] . up[n]), stored as f32 or as the next product's input.
// gate and up have the same rows and cols, and may differ in type; both must take in's form.
// With `out` of form kInt8 or kInt16, group_begin is even and group_end is even or the last group's
// end (32 outputs share a scale); with the other forms any range will do. The piece that holds the
// last group also writes the padding of `out`.
struct GatedMatmulParams {
  const PackedMatrix* gate = nullptr;
  const PackedMatrix* up = nullptr;
  const Activations* in = nullptr;
  int group_begin = 0, group_end = 0;  // of gate (= of up)
  int tile_begin = 0, tile_end = 0;
  GateFunction function = GateFunction::kSilu;
  const Activations* out = nullptr;  // cols = gate->rows; or null and
  float* out_f32 = nullptr;          // [in->rows, out_f32_stride]
  int64_t out_f32_stride = 0;
};

// ---- KV store, rope, attention ----------------------------------------------------------------

// KV of one layer in bf16, in sub-blocks of 16 tokens; D = head_dim rounded up to 16:
//   (sub-block s, kv head h) at data + (s * kv_heads + h) * 32 * D:
//   K [D/2][16 tokens][2], then V [8 token pairs][D][2]
// A block of block_size tokens (a multiple of 16) with id b is the sub-blocks
// [b * block_size / 16, (b + 1) * block_size / 16). Memory is zeroed once when it is allocated.
struct KvLayer {
  uint16_t* data = nullptr;  // kAlignment; sub-blocks * KvSubBlockElements(kv_heads, head_dim)
  int kv_heads = 0, head_dim = 0;
};

enum class RopePairs : uint8_t { kInterleaved, kHalves };

// For rows [row_begin, row_end) of qkv and ranges of its q heads and kv heads: RMS norm per head (if weights are given), rotation of the first rope_dim dims,
// k and v into the KV store. q and k are changed in place. Pieces should hold whole sub-blocks:
// rows that store into one sub-block share cache lines.
struct RopeStoreParams {
  float* qkv = nullptr;  // [rows, (q_heads + 2 kv_heads) * head_dim]
  int64_t qkv_stride = 0;
  int row_begin = 0, row_end = 0;
  int q_head_begin = 0, q_head_end = 0;
  int kv_head_begin = 0, kv_head_end = 0;
  int q_heads = 0, rope_dim = 0;
  RopePairs pairs = RopePairs::kInterleaved;
  const float* cos_sin = nullptr;       // [positions][rope_dim / 2][2]: cos, sin
  const int32_t* positions = nullptr;   // [rows]
  const int32_t* sub_blocks = nullptr;  // [rows]: where the row's token lives; slot = position % 16
  const float* q_norm = nullptr;        // [head_dim] or null
  const float* k_norm = nullptr;
  float norm_eps = 0;
  const KvLayer* kv = nullptr;
};

// Causal attention of up to 8 rows that read one kv head of one sequence: the q heads of a decoded
// token, or (token, head) pairs of a chunk. Row m reads keys j with
//   window > 0 ? limit[m] - window <= j < limit[m] : j < limit[m]        (limit = position + 1).
struct AttentionParams {
  const KvLayer* kv = nullptr;
  int kv_head = 0;
  const int32_t* blocks = nullptr;  // block ids of the sequence, covering max(limit) tokens
  int block_size = 16;              // tokens, a multiple of 16
  int rows = 0;                     // 1..8
  const float* q[kTileRows] = {};   // [head_dim] each, as RopeStore left them
  float* out[kTileRows] = {};       // [head_dim] each
  int limit[kTileRows] = {};
  int window = 0;
  float scale = 0;
  bool exact = false;  // q and probabilities stay f32 (else bf16 where the level has bf16 products)
  // First KV line that the next call of this thread will read, or null: prefetched meanwhile.
  const uint16_t* next = nullptr;
};

// ---- Rows of the vocabulary -------------------------------------------------------------------

// Softmax of a row x: p[i] = exp(x[i] - max) / sum; log p[i] = x[i] - max - log(sum).
struct SoftmaxStats {
  float max = 0;
  double sum = 0;
};

struct ScoredId {
  float value;
  int32_t id;
};

// ---- The table --------------------------------------------------------------------------------

enum class CpuLevel : uint8_t { kScalar, kAvx2, kAvx512Vnni, kAvx512Bf16 };  // ascending

struct CpuKernels {
  CpuLevel level;
  const char* name;  // "scalar", "avx2", "avx512_vnni", "avx512_bf16"

  // Packs groups [group_begin, group_end) of a part; all of `matrix` is set by the caller and
  // matrix.rows == part.rows, cols and type too. Outputs and columns beyond the part are zeros.
  void (*pack)(const WeightPart& part, const PackedMatrix& matrix, int group_begin, int group_end);
  // out[cols] = weight[row] * scale, from the packed form and from stored bytes.
  void (*unpack_row)(const PackedMatrix& matrix, int row, float scale, float* out);
  void (*decode_row)(const WeightPart& part, int row, float scale, float* out);

  void (*prepare)(const PrepareParams& params);
  void (*matmul)(const MatmulParams& params);
  void (*gated_matmul)(const GatedMatmulParams& params);
  void (*rope_store)(const RopeStoreParams& params);
  void (*attention)(const AttentionParams& params);

  // y[i] += x[i]
  void (*add)(float* y, const float* x, int64_t count);
  // count >= 1. NaN entries count as -infinity.
  SoftmaxStats (*softmax_stats)(const float* x, int64_t count);
  // Index of the largest value, the lowest on ties; NaN never wins (0 if there is nothing else).
  int32_t (*argmax)(const float* x, int64_t count);
  // The k = min(k, count) largest, best first, lower id first on ties, NaN last; returns k.
  int (*top_k)(const float* x, int64_t count, int k, ScoredId* out);
};

// ---- Sizes ------------------------------------------------------------------------------------

// Bytes of one group of 16 outputs, a multiple of kAlignment.
int64_t GroupBytes(DType type, int cols);
// Bytes of all groups of a matrix whose stride is GroupBytes: ceil(rows / 16) groups.
int64_t PackedBytes(DType type, int rows, int cols);
int Groups(int rows);
int Tiles(int rows);
// Bytes for `rows` rows; ActivationBytes(form, max_rows, max_cols) holds every smaller shape.
int64_t ActivationBytes(ActivationForm form, int rows, int cols);
// uint16 elements of one sub-block (16 tokens) of one layer.
int64_t KvSubBlockElements(int kv_heads, int head_dim);
// What a product with this weight reads.
ActivationForm FormFor(DType weight, ActivationType activations);
// Null if columns [col_begin, col_end) of a tensor of this type and width can be packed; else why
// not (they must begin and end at block edges: multiples of 32, of 256 for the K types).
const char* PackError(DType type, int64_t tensor_cols, int64_t col_begin, int64_t col_end);

}  // namespace staffel::kernels
