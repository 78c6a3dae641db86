// Gemma 3, text (Gemma Team 2025): norms before and after each block, normalised queries and keys,
// five layers with a window to one that sees everything, each kind with its own rotary base.
#include <cmath>

#include "model/architecture.h"
#include "model/program_builder.h"

namespace staffel {
namespace {

constexpr int kGlobalEvery = 6;
constexpr double kLocalBase = 10000.0;
// The 27B model alone scales by hidden / heads instead of the head size; its file does not say so.
constexpr int k27bLayers = 62;

Status Read(const ConfigReader& reader, const ModelFile&, ModelConfig& config) {
  const ModelShape& shape = config.shape;
  config.rope.style = RopeStyle::kHalves;
  if (!reader.Has("rope.freq_base")) config.rope.base = 1e6;
  STAFFEL_ASSIGN_OR_RETURN(config.rope.local_base,
                           reader.FloatOr("rope.freq_base_swa", 1.0, 1e12, kLocalBase));
  config.rope.local_position_scale = 1.0;  // rope scaling is for the layers that see everything
  config.embedding_scale = std::sqrt(static_cast<float>(shape.hidden));
  if (shape.layers == k27bLayers && !reader.Has("attention.scale")) {
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.hidden) / shape.q_heads);
  }
  return reader.ReadWindows(config, kGlobalEvery);
}

void AddTensors(const ModelConfig& config, TensorTable& table) {
  const ModelShape& shape = config.shape;
  for (int layer = 0; layer < shape.layers; ++layer) {
    table.Vector(LayerTensor(layer, "attn_q_norm.weight"), shape.head_dim);
    table.Vector(LayerTensor(layer, "attn_k_norm.weight"), shape.head_dim);
    table.Vector(LayerTensor(layer, "post_attention_norm.weight"), shape.hidden);
    table.Vector(LayerTensor(layer, "post_ffw_norm.weight"), shape.hidden);
  }
}

Program Build(const ModelConfig& config, const RankShard& shard) {
  ProgramBuilder b(config, shard);
  ProgramBuilder::Stream x = b.Begin("post_ffw_norm.weight");
  for (int layer = b.layers().begin; layer < b.layers().end; ++layer) {
    b.BeginLayer(layer);
    ValueId qkv = b.Qkv(b.AddNorm(x, "attn_norm.weight"));
    b.RopeAndStoreKv(qkv, /*norms=*/true);
    x.delta = b.AttentionOutput(b.PagedAttention(qkv));
    x.delta_norm = b.Tensor("post_attention_norm.weight");
    x.delta = b.GatedFfn(b.AddNorm(x, "ffn_norm.weight"), Activation::kGeluTanh);
    x.delta_norm = b.Tensor("post_ffw_norm.weight");
  }
  return b.Finish(x);
}

}  // namespace

const Architecture kGemma3 = {"gemma3", Read, AddTensors, Build};

}  // namespace staffel
