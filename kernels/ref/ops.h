// The obvious version of every op on f32 matrices: what "correct" means. Sums are taken in f64, so
// that a faster kernel is judged by its own rounding and not by the rounding of this code.
//
// Matrices are row-major and dense: [rows, cols] has stride cols. Shapes are given beside each
// pointer; T rows are the tokens of a step. No function allocates, except as noted; all are pure
// and may run on several threads for different rows.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "staffel/program.h"

namespace staffel::ref {

// out [tokens, cols] = weight[token] * scale; weight [vocab, cols], every token below vocab.
void Embed(const float* weight, int cols, absl::Span<const int32_t> tokens, float scale,
           float* out);

// out [rows, cols] = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019, arXiv
// 1910.07467); weight [cols]. out may be x.
void RmsNorm(const float* x, const float* weight, float eps, int rows, int cols, float* out);

// residual [rows, cols] += post_norm(delta), then out = rms_norm(residual) * weight.
// delta null: nothing is added. post_norm null: delta is added as it is. `post_scratch` [cols] is
// used only with post_norm.
struct AddRmsNormArgs {
  float* residual;
  const float* delta = nullptr;
  const float* post_norm = nullptr;
  const float* weight;
  float eps;
  float* out;
  float* post_scratch = nullptr;
};
void AddRmsNorm(const AddRmsNormArgs& args, int rows, int cols);

// out[t][o] = sum_i in[t][i] * weight[o][i] (+ bias[o]) for o in `outputs`.
// in [rows, inputs]; weight [.., inputs] and bias are indexed by o; out rows lie `out_stride`
// apart.
void Linear(const float* in, const float* weight, const float* bias, int rows, int inputs,
            Range outputs, float* out, int out_stride);

// x * sigmoid(x), and the tanh approximation of GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415).
double Activate(Activation activation, double x);

// out[t][o] = activation(in . gate[o]) * (in . up[o]) for o in `outputs`.
// in [rows, inputs]; gate, up [.., inputs]; out rows lie `out_stride` apart.
void GatedLinear(const float* in, const float* gate, const float* up, Activation activation,
                 int rows, int inputs, Range outputs, float* out, int out_stride);

// Rotary position embedding (Su et al. 2021, arXiv 2104.09864) of one head's vector, in place.
// Pair i of rope_dim / 2 turns by position * position_scale * base^(-2i / rope_dim) / factors[i];
// elements from rope_dim on stay.
struct RopeArgs {
  int rope_dim;
  RopeStyle style;
  double base;
  double position_scale = 1.0;
  const float* factors = nullptr;  // [rope_dim / 2], or null for ones
};
void Rope(const RopeArgs& args, int position, float* head);

// Keys and values of one layer: [blocks][kv_heads][block_size][head_dim] each.
struct KvView {
  float* keys;
  float* values;
  int kv_heads, head_dim, block_size;

  int64_t Offset(int32_t block, int head, int slot) const {
    return ((int64_t{block} * kv_heads + head) * block_size + slot) * head_dim;
  }
};

// qkv row [(q_heads + 2 kv_heads) * head_dim]: q and k heads are RMS-normalised (weights
// [head_dim], null: not), rotated, and k and v stored at `position` of the sequence whose table is
// `blocks`.
struct RopeAndStoreArgs {
  int q_heads, kv_heads, head_dim;
  RopeArgs rope;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps;
};
void RopeAndStoreKv(const RopeAndStoreArgs& args, int position, const int32_t* blocks, float* qkv,
                    const KvView& kv);

// Softmax attention of one row over keys j <= position (and > position - window where window > 0).
// q and out [q_heads, head_dim]. `scores` holds position + 1 + head_dim doubles.
void PagedAttention(const float* q, const HeadGroups& heads, float scale, int window, int position,
                    const int32_t* blocks, const KvView& kv, double* scores, float* out);

// out[i] = in[rows[i]]; in [.., cols], out [rows.size(), cols].
void TakeRows(const float* in, int cols, absl::Span<const int32_t> rows, float* out);

}  // namespace staffel::ref
