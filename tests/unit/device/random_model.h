// Small random models and the means to run them: every op, every weight type, odd sizes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "staffel/backend.h"
#include "staffel/program.h"
#include "staffel/tensor.h"

namespace staffel::testing {

using Rng = std::mt19937_64;

int Uniform(Rng& rng, int min, int max);  // inclusive
float Gauss(Rng& rng);

// Tensors made by a test. Counts releases by name.
class MemoryWeights final : public WeightSource {
 public:
  // Random values of standard deviation about `scale`, in the type's own format.
  void AddRandom(Rng& rng, const std::string& name, DType type, int64_t rows, int64_t cols,
                 float scale);
  void AddFloats(const std::string& name, int64_t rows, int64_t cols,
                 const std::vector<float>& values);
  const TensorView* Find(const std::string& name) const override;
  void Release(const TensorView& tensor) const override { ++released_[tensor.name]; }
  const std::map<std::string, int>& released() const { return released_; }

 private:
  std::map<std::string, TensorView> views_;
  std::deque<std::vector<uint8_t>> bytes_;
  mutable std::map<std::string, int> released_;
};

// What a random model is made of.
struct ModelShapeSpec {
  int layers = 2, hidden = 64, q_heads = 4, kv_heads = 2, head_dim = 16, rope_dim = 16;
  // Query heads of a KV group (0: q_heads / kv_heads) and those of the first one that are lacking.
  int group_size = 0, first_head = 0;
  int ffn = 96, vocab = 80;
  RopeStyle style = RopeStyle::kInterleaved;
  Activation activation = Activation::kSilu;
  bool biases = false, qk_norms = false, post_norms = false, tied = false, factors = false;
  int window = 0;  // of every second layer
  float embedding_scale = 1.0f;
  double position_scale = 1.0;
  // Types of q, k, v, o, gate, up, down, head (and the embedding).
  std::vector<DType> types = std::vector<DType>(8, DType::kF32);

  HeadGroups Heads() const {
    return {q_heads, kv_heads, group_size > 0 ? group_size : q_heads / kv_heads, first_head};
  }
  std::string Describe() const;
};

// A shape with everything drawn at random. `types`: those to draw from.
ModelShapeSpec RandomShape(Rng& rng, const std::vector<DType>& types);

struct TinyModel {
  Program program;
  MemoryWeights weights;
};
TinyModel MakeTinyModel(Rng& rng, const ModelShapeSpec& shape);

// Sequences of random tokens with shuffled block tables that share the pool.
struct Sequences {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<BlockId>> blocks;
};
Sequences RandomSequences(Rng& rng, int vocab, const std::vector<int>& lengths, int block_size,
                          int block_count);

// One step: `count` more tokens of each sequence named.
struct Chunk {
  int sequence, count;
};
using Schedule = std::vector<std::vector<Chunk>>;
Schedule TokenByToken(const Sequences& sequences);  // one sequence after another
Schedule WholePrompts(const Sequences& sequences);  // all in one step
Schedule RandomSchedule(Rng& rng, const Sequences& sequences, int max_rows);

// Logits of every position, by (sequence, position).
using Logits = std::map<std::pair<int, int>, std::vector<float>>;
Result<Logits> RunSchedule(Executable& executable, const Program& program,
                           const Sequences& sequences, const Schedule& schedule);

// sqrt(sum (a - b)^2 / sum b^2).
double RelativeError(absl::Span<const float> a, absl::Span<const float> b);

}  // namespace staffel::testing
