#include "kernels/ref/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace staffel::ref {
namespace {

// Eight partial sums: a fixed order that compilers turn into vectors.
double Dot(const float* a, const float* b, int count) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += double{a[i + j]} * double{b[i + j]};
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

}  // namespace

void Embed(const float* weight, int cols, absl::Span<const int32_t> tokens, float scale,
           float* out) {
  for (int32_t token : tokens) {
    const float* row = weight + int64_t{token} * cols;
    for (int i = 0; i < cols; ++i) *out++ = row[i] * scale;
  }
}

void RmsNorm(const float* x, const float* weight, float eps, int rows, int cols, float* out) {
  for (int row = 0; row < rows; ++row, x += cols, out += cols) {
    const double inverse = 1.0 / std::sqrt(Dot(x, x, cols) / cols + double{eps});
    for (int i = 0; i < cols; ++i) out[i] = static_cast<float>(x[i] * inverse * weight[i]);
  }
}

void AddRmsNorm(const AddRmsNormArgs& args, int rows, int cols) {
  for (int row = 0; row < rows; ++row) {
    float* residual = args.residual + int64_t{row} * cols;
    if (args.delta != nullptr) {
      const float* delta = args.delta + int64_t{row} * cols;
      if (args.post_norm != nullptr) {
        RmsNorm(delta, args.post_norm, args.eps, 1, cols, args.post_scratch);
        delta = args.post_scratch;
      }
      for (int i = 0; i < cols; ++i) residual[i] += delta[i];
    }
    RmsNorm(residual, args.weight, args.eps, 1, cols, args.out + int64_t{row} * cols);
  }
}

void Linear(const float* in, const float* weight, const float* bias, int rows, int inputs,
            Range outputs, float* out, int out_stride) {
  for (int o = outputs.begin; o < outputs.end; ++o) {
    const float* w = weight + int64_t{o} * inputs;
    const double start = bias != nullptr ? bias[o] : 0.0;
    for (int row = 0; row < rows; ++row) {
      out[int64_t{row} * out_stride + o] =
          static_cast<float>(start + Dot(in + int64_t{row} * inputs, w, inputs));
    }
  }
}

double Activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1.0 + std::exp(-x));
  const double inner = std::sqrt(2.0 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

void GatedLinear(const float* in, const float* gate, const float* up, Activation activation,
                 int rows, int inputs, Range outputs, float* out, int out_stride) {
  for (int o = outputs.begin; o < outputs.end; ++o) {
    const float* g = gate + int64_t{o} * inputs;
    const float* u = up + int64_t{o} * inputs;
    for (int row = 0; row < rows; ++row) {
      const float* x = in + int64_t{row} * inputs;
      out[int64_t{row} * out_stride + o] =
          static_cast<float>(Activate(activation, Dot(x, g, inputs)) * Dot(x, u, inputs));
    }
  }
}

void Rope(const RopeArgs& args, int position, float* head) {
  const int pairs = args.rope_dim / 2;
  for (int i = 0; i < pairs; ++i) {
    const double factor = args.factors != nullptr ? args.factors[i] : 1.0;
    const double angle =
        position * args.position_scale * std::pow(args.base, -2.0 * i / args.rope_dim) / factor;
    float& a = head[args.style == RopeStyle::kInterleaved ? 2 * i : i];
    float& b = head[args.style == RopeStyle::kInterleaved ? 2 * i + 1 : i + pairs];
    const double cosine = std::cos(angle), sine = std::sin(angle), x = a, y = b;
    a = static_cast<float>(x * cosine - y * sine);
    b = static_cast<float>(x * sine + y * cosine);
  }
}

void RopeAndStoreKv(const RopeAndStoreArgs& args, int position, const int32_t* blocks, float* qkv,
                    const KvView& kv) {
  const int dim = args.head_dim;
  float* k = qkv + int64_t{args.q_heads} * dim;
  const float* v = k + int64_t{args.kv_heads} * dim;
  if (args.q_norm != nullptr) RmsNorm(qkv, args.q_norm, args.norm_eps, args.q_heads, dim, qkv);
  if (args.k_norm != nullptr) RmsNorm(k, args.k_norm, args.norm_eps, args.kv_heads, dim, k);
  for (int h = 0; h < args.q_heads + args.kv_heads; ++h) Rope(args.rope, position, qkv + h * dim);
  for (int h = 0; h < args.kv_heads; ++h) {
    const int64_t at = kv.Offset(blocks[position / kv.block_size], h, position % kv.block_size);
    std::memcpy(kv.keys + at, k + h * dim, dim * sizeof(float));
    std::memcpy(kv.values + at, v + h * dim, dim * sizeof(float));
  }
}

void PagedAttention(const float* q, const HeadGroups& heads, float scale, int window, int position,
                    const int32_t* blocks, const KvView& kv, double* scores, float* out) {
  const int dim = kv.head_dim;
  const int first = window > 0 ? std::max(0, position - window + 1) : 0;
  for (int h = 0; h < heads.q_heads; ++h, q += dim, out += dim) {
    const int kv_head = heads.KvHeadOf(h);
    auto offset = [&](int j) {
      return kv.Offset(blocks[j / kv.block_size], kv_head, j % kv.block_size);
    };
    for (int j = first; j <= position; ++j) scores[j] = scale * Dot(q, kv.keys + offset(j), dim);
    const double top = *std::max_element(scores + first, scores + position + 1);
    double* sums = scores + position + 1;
    std::fill(sums, sums + dim, 0.0);
    double total = 0;
    for (int j = first; j <= position; ++j) {
      const double p = std::exp(scores[j] - top);
      const float* v = kv.values + offset(j);
      for (int i = 0; i < dim; ++i) sums[i] += p * v[i];
      total += p;
    }
    for (int i = 0; i < dim; ++i) out[i] = static_cast<float>(sums[i] / total);
  }
}

void TakeRows(const float* in, int cols, absl::Span<const int32_t> rows, float* out) {
  for (int32_t row : rows) {
    std::memcpy(out, in + int64_t{row} * cols, cols * sizeof(float));
    out += cols;
  }
}

}  // namespace staffel::ref
