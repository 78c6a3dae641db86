// A rank's model as a flat list of ops, built once by src/model and prepared once by a backend.
// There is no control flow; the only symbolic sizes are T (tokens of the step), S (sequences) and R
// (rows whose logits are wanted). Fusions are ops that the builder asks for; a backend may keep a
// value in any representation (for instance quantised activations), but not change what it means.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "staffel/placement.h"

namespace staffel {

enum class ValueId : int32_t { kNone = -1 };
enum class WeightId : int32_t { kNone = -1 };

enum class RowDim : uint8_t { kTokens, kSampled };  // T or R

// A value is a matrix [rows, cols] of f32 by meaning.
struct Value {
  std::string name;
  RowDim rows = RowDim::kTokens;
  int cols = 0;
};

// A weight: the part of a stored tensor that this rank holds. Linear weights are [outputs, inputs]
// as stored in GGUF.
struct WeightSpec {
  std::string tensor;   // name in the file, e.g. "blk.3.attn_q.weight"
  Range rows;           // outputs (or elements, for a vector: rows = elements, cols = {0, 1})
  Range cols;           // inputs
  bool vector = false;  // norm weights and biases; always read as f32
};

// out[t] = weight[token[t]] * scale.
struct EmbedOp {
  WeightId weight;
  ValueId out;
  float scale = 1.0f;
};

// residual += post_norm(delta), then out = rms_norm(residual) * weight.
// delta kNone: nothing is added. post_norm kNone: delta is added as it is; else it is
// RMS-normalised and scaled first (gemma3). RMS norm: x / sqrt(mean(x^2) + eps) (Zhang and Sennrich
// 2019); weights are used as stored.
struct AddRmsNormOp {
  ValueId residual;  // read and written
  ValueId delta = ValueId::kNone;
  WeightId post_norm = WeightId::kNone;
  WeightId weight = WeightId::kNone;
  ValueId out;
  float eps = 1e-5f;
};

// out = in * [w0; w1; ...]^T (+ bias): the outputs of the parts side by side (q, k and v in one
// op).
struct LinearOp {
  ValueId in;
  std::vector<WeightId> parts;
  std::vector<WeightId> biases;  // empty, or one per part (kNone: none)
  ValueId out;
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

// out = activation(in * gate^T) * (in * up^T).
struct GatedLinearOp {
  ValueId in;
  WeightId gate, up;
  Activation activation;
  ValueId out;
};

enum class RopeStyle : uint8_t {
  kInterleaved,  // pairs (2i, 2i+1): llama files in GGUF order
  kHalves,       // pairs (i, i + rope_dim/2): qwen2, gemma3 ("NEOX")
};

// Which of a rank's query heads read which of its KV heads. A rank's query heads are contiguous in
// the model and may begin and end within a KV group; it has the KV heads of all groups it touches.
struct HeadGroups {
  int q_heads = 0, kv_heads = 0;  // of the rank
  int group_size = 1;             // query heads that share a KV head in the model
  int first = 0;                  // place of the rank's first query head in its group

  // The rank's query heads that read its KV head.
  Range QueriesOf(int kv_head) const {
    return {std::max(0, kv_head * group_size - first),
            std::min(q_heads, (kv_head + 1) * group_size - first)};
  }
  int KvHeadOf(int q_head) const { return (q_head + first) / group_size; }
  friend bool operator==(const HeadGroups&, const HeadGroups&) = default;
};

// With all heads of a model.
inline HeadGroups WholeHeads(int q_heads, int kv_heads) {
  return {q_heads, kv_heads, q_heads / kv_heads, 0};
}

// qkv [T, (q_heads + 2 kv_heads) * head_dim], changed in place: q and k are normalised per head (if
// weights are given) and rotated by their position; k and v go to the KV store of `layer`.
struct RopeAndStoreKvOp {
  ValueId qkv;
  int layer = 0;  // index into this rank's KV layers, 0 = the rank's first
  HeadGroups heads;
  int head_dim = 0;
  int rope_dim = 0;  // <= head_dim; the rest is not rotated
  RopeStyle style = RopeStyle::kInterleaved;
  double base = 10000.0;
  double position_scale = 1.0;  // positions are multiplied by this (linear scaling: 1 / factor)
  WeightId frequency_factors =
      WeightId::kNone;  // [rope_dim / 2] divisors of the inverse frequencies (llama 3 files)
  WeightId q_norm = WeightId::kNone, k_norm = WeightId::kNone;
  float norm_eps = 1e-6f;
};

// Causal attention of each row over its sequence's KV, up to and including itself.
struct PagedAttentionOp {
  ValueId qkv;  // as left by RopeAndStoreKv; only q is read
  int layer = 0;
  HeadGroups heads;
  int head_dim = 0;
  float scale = 0;  // of q.k
  int window = 0;   // 0: all; W: keys j with i - W < j <= i
  ValueId out;      // [T, q_heads * head_dim]
};

struct AllReduceOp {
  ValueId value;
};  // sum over the tensor group, in place
// The members' columns side by side, on the first member of the group: row r of its `out` is row r
// of every member's `in`, in the order of the members. The others only send, and have no `out`.
struct GatherOp {
  ValueId in, out = ValueId::kNone;
  std::vector<int> cols, ranks;  // by member: columns, and RankShard::rank
};
struct SendOp {
  ValueId value;
  int to_rank;
};
struct RecvOp {
  ValueId value;
  int from_rank;
};
// The rows that are sampled (or whose log-probabilities are wanted), in order.
struct TakeRowsOp {
  ValueId in, out;
};

using Op = std::variant<EmbedOp, AddRmsNormOp, LinearOp, GatedLinearOp, RopeAndStoreKvOp,
                        PagedAttentionOp, AllReduceOp, GatherOp, SendOp, RecvOp, TakeRowsOp>;

// Shape of the rank's KV store.
struct KvShape {
  int layers = 0, kv_heads = 0, head_dim = 0;
};

struct Program {
  std::vector<Value> values;        // index is the ValueId
  std::vector<WeightSpec> weights;  // index is the WeightId
  std::vector<Op> ops;
  ValueId logits = ValueId::kNone;  // [R, vocab] after the last op, on the first rank of the last
                                    // stage; kNone on all others
  // [T, hidden] after the last layer's norm, where logits is set; of interest to who pools.
  ValueId hidden = ValueId::kNone;
  KvShape kv;

  const Value& value(ValueId id) const { return values[static_cast<int>(id)]; }
  const WeightSpec& weight(WeightId id) const { return weights[static_cast<int>(id)]; }
};

}  // namespace staffel
