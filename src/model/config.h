// What a model file says of its computation, read and checked once: the numbers a program is built
// from.
#pragma once

#include <string>
#include <vector>

#include "staffel/model_file.h"
#include "staffel/placement.h"
#include "staffel/program.h"
#include "staffel/status.h"

namespace staffel {

// Rotation of queries and keys (Su et al. 2021).
struct RopeConfig {
  RopeStyle style = RopeStyle::kInterleaved;
  int dim = 0;                  // rotated elements of a head
  double base = 10000.0;        // of layers that see everything
  double local_base = 10000.0;  // of layers with a window
  double position_scale = 1.0;  // linear scaling, of layers that see everything
  double local_position_scale = 1.0;
  bool frequency_factors = false;  // rope_freqs.weight is present
};

struct ModelConfig {
  std::string name;  // general.name, or ""
  ModelShape shape;
  RopeConfig rope;
  float norm_eps = 1e-5f;
  float attention_scale = 0;
  float embedding_scale = 1.0f;
  std::vector<int> windows;      // by layer; 0: attends to everything before
  bool tied_embeddings = false;  // the vocabulary projection is token_embd.weight
  bool qkv_bias = false;
  bool attention_output_bias = false;
};

// Reads the metadata of a llama, qwen2 or gemma3 file by the key names of the GGUF specification
// (ggml/docs/gguf.md), checks every number, and checks that each tensor the model needs is there
// with the right shape and that there is none it would ignore. No tensor data is read.
// InvalidArgument, NotFound or Unimplemented: names the key or tensor and its value.
// shape.vocab is the number of the tokenizer's tokens: embedding rows beyond them are padding and
// stay unused.
Result<ModelConfig> ReadConfig(const ModelFile& file);

}  // namespace staffel
