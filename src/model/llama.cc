// Llama (Touvron et al. 2023; Llama 2 and 3, SmolLM2, and Mistral's windows in the same files).
// GGUF files hold q and k with their rows permuted, so that rotary pairs are neighbours.
#include "model/architecture.h"
#include "model/program_builder.h"

namespace staffel {
namespace {

Status Read(const ConfigReader& reader, const ModelFile& file, ModelConfig& config) {
  config.rope.style = RopeStyle::kInterleaved;
  config.qkv_bias = file.weights().Find("blk.0.attn_q.bias") != nullptr;
  config.attention_output_bias = file.weights().Find("blk.0.attn_output.bias") != nullptr;
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

const Architecture kLlama = {"llama", Read, AddTensors, Build};

}  // namespace staffel
