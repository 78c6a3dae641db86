// Qwen2 and Qwen2.5 (Yang et al. 2024): llama layers with biases on q, k and v, and rotary pairs in
// halves.
#include "model/architecture.h"
#include "model/program_builder.h"

namespace staffel {
namespace {

Status Read(const ConfigReader& reader, const ModelFile&, ModelConfig& config) {
  config.rope.style = RopeStyle::kHalves;
  config.qkv_bias = true;
  return reader.ReadWindows(config, /*global_every=*/0);
}

void AddTensors(const ModelConfig&, TensorTable&) {}

Program Build(const ModelConfig& config, const RankShard& shard) {
  ProgramBuilder b(config, shard);
  ProgramBuilder::Stream x = b.Begin();
  for (int layer = b.layers().begin; layer < b.layers().end; ++layer) {
    b.BeginLayer(layer);
    ValueId qkv = b.Qkv(b.AddNorm(x, "attn_norm.weight"));
    b.RopeAndStoreKv(qkv);
    x.delta = b.AttentionOutput(b.PagedAttention(qkv));
    x.delta = b.GatedFfn(b.AddNorm(x, "ffn_norm.weight"), Activation::kSilu);
  }
  return b.Finish(x);
}

}  // namespace

const Architecture kQwen2 = {"qwen2", Read, AddTensors, Build};

}  // namespace staffel
