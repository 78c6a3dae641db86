#include "tests/unit/device/random_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/strings.h"

namespace staffel::testing {
namespace {

// Truncated, for magnitudes between 2^-14 and 2^15.
uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 1023));
}

void Put16(uint8_t* at, uint16_t bits) { std::memcpy(at, &bits, 2); }
void PutHalf(uint8_t* at, float value) { Put16(at, HalfBits(value)); }

// Scales and minima of a block of random codes such that its elements have a deviation of `scale`.
void PutScales(DType type, uint8_t* p, float scale, float jitter) {
  const float d = scale * jitter;
  switch (type) {
    case DType::kQ4_0:
      return PutHalf(p, d / 4.6f);
    case DType::kQ4_1:
      PutHalf(p, d / 4.6f);
      return PutHalf(p + 2, -d * 7.5f / 4.6f);
    case DType::kQ5_0:
      return PutHalf(p, d / 9.2f);
    case DType::kQ5_1:
      PutHalf(p, d / 9.2f);
      return PutHalf(p + 2, -d * 15.5f / 9.2f);
    case DType::kQ8_0:
      return PutHalf(p, d / 74.0f);
    case DType::kQ4_K:  // scales average 32, minima too
      PutHalf(p, d / (4.6f * 32));
      return PutHalf(p + 2, d * 7.5f / (4.6f * 32));
    case DType::kQ5_K:
      PutHalf(p, d / (9.2f * 32));
      return PutHalf(p + 2, d * 15.5f / (9.2f * 32));
    case DType::kQ6_K:
      return PutHalf(p + 208, d / (18.5f * 74));
    default:
      return;
  }
}

WeightSpec Matrix(const std::string& tensor, int rows, int cols) {
  return {.tensor = tensor, .rows = {0, rows}, .cols = {0, cols}};
}

// Builds the program of a spec and its tensors side by side.
class Builder {
 public:
  Builder(Rng& rng, const ModelShapeSpec& shape) : rng_(rng), s_(shape) {}

  TinyModel Build() {
    Program& p = out_.program;
    p.kv = {s_.layers, s_.kv_heads, s_.head_dim};
    const WeightId embedding = AddMatrix("embd", s_.types[7], s_.vocab, s_.hidden, 1.0f);
    const ValueId residual = AddValue("x", s_.hidden);
    p.ops.push_back(EmbedOp{embedding, residual, s_.embedding_scale});
    ValueId delta = ValueId::kNone;
    WeightId post_norm = WeightId::kNone;
    for (layer_ = 0; layer_ < s_.layers; ++layer_) {
      delta = Attention(AddNorm(residual, delta, post_norm));
      post_norm = s_.post_norms ? AddVector("attn_post", s_.hidden, 1.0f) : WeightId::kNone;
      delta = Ffn(AddNorm(residual, delta, post_norm));
      post_norm = s_.post_norms ? AddVector("ffn_post", s_.hidden, 1.0f) : WeightId::kNone;
    }
    const ValueId sampled = AddValue("sampled", s_.hidden, RowDim::kSampled);
    const ValueId sampled_delta = AddValue("sampled_delta", s_.hidden, RowDim::kSampled);
    p.ops.push_back(TakeRowsOp{residual, sampled});
    p.ops.push_back(TakeRowsOp{delta, sampled_delta});
    const ValueId normed = AddNorm(sampled, sampled_delta, post_norm, RowDim::kSampled);
    const WeightId head = s_.tied ? embedding
                                  : AddMatrix("head", s_.types[7], s_.vocab, s_.hidden,
                                              1.0f / std::sqrt(float(s_.hidden)));
    p.logits = AddValue("logits", s_.vocab, RowDim::kSampled);
    p.ops.push_back(LinearOp{normed, {head}, {}, p.logits});
    return std::move(out_);
  }

 private:
  ValueId AddValue(const std::string& name, int cols, RowDim rows = RowDim::kTokens) {
    out_.program.values.push_back({StrCat(name, ".", layer_), rows, cols});
    return static_cast<ValueId>(out_.program.values.size() - 1);
  }
  WeightId Add(WeightSpec spec) {
    out_.program.weights.push_back(std::move(spec));
    return static_cast<WeightId>(out_.program.weights.size() - 1);
  }
  WeightId AddMatrix(const std::string& role, DType type, int rows, int cols, float scale) {
    const std::string name = StrCat(role, ".", layer_);
    out_.weights.AddRandom(rng_, name, type, rows, cols, scale);
    return Add(Matrix(name, rows, cols));
  }
  WeightId AddVector(const std::string& role, int size, float mean) {
    const std::string name = StrCat(role, ".", layer_);
    std::vector<float> values(size);
    for (float& value : values) value = mean + 0.2f * Gauss(rng_);
    out_.weights.AddFloats(name, 1, size, values);
    return Add({.tensor = name, .rows = {0, size}, .cols = {0, 1}, .vector = true});
  }
  ValueId AddNorm(ValueId residual, ValueId delta, WeightId post_norm,
                  RowDim rows = RowDim::kTokens) {
    const ValueId out = AddValue("normed", s_.hidden, rows);
    const WeightId weight = AddVector(StrCat("norm", out_.program.ops.size()), s_.hidden, 1.0f);
    out_.program.ops.push_back(AddRmsNormOp{residual, delta, post_norm, weight, out, 1e-5f});
    return out;
  }
  ValueId Attention(ValueId in) {
    const float scale = 1.0f / std::sqrt(float(s_.hidden));
    const int q = s_.q_heads * s_.head_dim, kv = s_.kv_heads * s_.head_dim;
    LinearOp qkv{.in = in};
    qkv.parts = {AddMatrix("q", s_.types[0], q, s_.hidden, scale),
                 AddMatrix("k", s_.types[1], kv, s_.hidden, scale),
                 AddMatrix("v", s_.types[2], kv, s_.hidden, scale)};
    if (s_.biases) qkv.biases = {AddVector("qb", q, 0), WeightId::kNone, AddVector("vb", kv, 0)};
    qkv.out = AddValue("qkv", q + 2 * kv);
    out_.program.ops.push_back(qkv);
    RopeAndStoreKvOp rope{.qkv = qkv.out,
                          .layer = layer_,
                          .heads = s_.Heads(),
                          .head_dim = s_.head_dim,
                          .rope_dim = s_.rope_dim,
                          .style = s_.style,
                          .base = layer_ % 2 == 0 ? 10000.0 : 500000.0,
                          .position_scale = s_.position_scale};
    if (s_.factors) rope.frequency_factors = AddVector("factors", s_.rope_dim / 2, 2.0f);
    if (s_.qk_norms) {
      rope.q_norm = AddVector("q_norm", s_.head_dim, 1.0f);
      rope.k_norm = AddVector("k_norm", s_.head_dim, 1.0f);
    }
    out_.program.ops.push_back(rope);
    PagedAttentionOp attend{.qkv = qkv.out,
                            .layer = layer_,
                            .heads = s_.Heads(),
                            .head_dim = s_.head_dim,
                            .scale = 1.0f / std::sqrt(float(s_.head_dim)),
                            .window = layer_ % 2 == 1 ? s_.window : 0,
                            .out = AddValue("attention", q)};
    out_.program.ops.push_back(attend);
    return Linear(attend.out, AddMatrix("o", s_.types[3], s_.hidden, q, 1.0f / std::sqrt(float(q))),
                  "attn_delta");
  }
  ValueId Ffn(ValueId in) {
    const float scale = 1.0f / std::sqrt(float(s_.hidden));
    GatedLinearOp gated{.in = in,
                        .gate = AddMatrix("gate", s_.types[4], s_.ffn, s_.hidden, scale),
                        .up = AddMatrix("up", s_.types[5], s_.ffn, s_.hidden, scale),
                        .activation = s_.activation,
                        .out = AddValue("gated", s_.ffn)};
    out_.program.ops.push_back(gated);
    return Linear(
        gated.out,
        AddMatrix("down", s_.types[6], s_.hidden, s_.ffn, 1.0f / std::sqrt(float(s_.ffn))),
        "ffn_delta");
  }
  ValueId Linear(ValueId in, WeightId weight, const std::string& name) {
    const ValueId out = AddValue(name, s_.hidden);
    out_.program.ops.push_back(LinearOp{in, {weight}, {}, out});
    out_.program.ops.push_back(AllReduceOp{out});
    return out;
  }

  Rng& rng_;
  const ModelShapeSpec& s_;
  int layer_ = 0;
  TinyModel out_;
};

}  // namespace

int Uniform(Rng& rng, int min, int max) {
  return min + static_cast<int>(rng() % static_cast<uint64_t>(max - min + 1));
}

float Gauss(Rng& rng) {
  return static_cast<float>(std::normal_distribution<double>(0.0, 1.0)(rng));
}

void MemoryWeights::AddRandom(Rng& rng, const std::string& name, DType type, int64_t rows,
                              int64_t cols, float scale) {
  const DTypeInfo& info = InfoOf(type);
  STAFFEL_CHECK_EQ(cols % info.block_elements, 0) << name;
  std::vector<uint8_t>& bytes =
      bytes_.emplace_back(rows * cols / info.block_elements * info.block_bytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  for (size_t i = 0; i < bytes.size(); i += info.block_bytes) {
    uint8_t* p = bytes.data() + i;
    const float value = scale * Gauss(rng);
    if (type == DType::kF32) {
      std::memcpy(p, &value, 4);
    } else if (type == DType::kF16) {
      PutHalf(p, value);
    } else if (type == DType::kBF16) {
      Put16(p, static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    } else {
      PutScales(type, p, scale, 0.75f + 0.5f * static_cast<float>(rng() % 1000) / 1000.0f);
    }
  }
  views_[name] = {name, type, rows, cols, bytes};
}

void MemoryWeights::AddFloats(const std::string& name, int64_t rows, int64_t cols,
                              const std::vector<float>& values) {
  STAFFEL_CHECK_EQ(static_cast<int64_t>(values.size()), rows * cols) << name;
  std::vector<uint8_t>& bytes = bytes_.emplace_back(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  views_[name] = {name, DType::kF32, rows, cols, bytes};
}

const TensorView* MemoryWeights::Find(const std::string& name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

std::string ModelShapeSpec::Describe() const {
  std::string text =
      StrCat("layers ", layers, " hidden ", hidden, " heads ", q_heads, "/", kv_heads, " from ",
             first_head, " of ", Heads().group_size, " x ", head_dim, " rope ", rope_dim,
             style == RopeStyle::kHalves ? " halves" : " interleaved", " ffn ", ffn, " vocab ",
             vocab, " window ", window, " types");
  for (DType type : types) StrAppend(text, " ", InfoOf(type).name);
  if (biases) text += " biases";
  if (qk_norms) text += " qk_norms";
  if (post_norms) text += " post_norms";
  if (tied) text += " tied";
  if (factors) text += " factors";
  return text;
}

ModelShapeSpec RandomShape(Rng& rng, const std::vector<DType>& types) {
  ModelShapeSpec s;
  int granule = 1;
  for (DType& type : s.types) {
    type = types[Uniform(rng, 0, static_cast<int>(types.size()) - 1)];
    granule = std::max(granule, InfoOf(type).block_elements);
  }
  auto coin = [&] { return Uniform(rng, 0, 1) == 1; };
  s.layers = Uniform(rng, 1, 3);
  const int odd = granule == 1 ? Uniform(rng, 0, 20) : 0;
  s.hidden = granule * Uniform(rng, 1, granule == 256 ? 2 : 4) * (granule == 1 ? 24 : 1) + odd;
  s.ffn = granule * Uniform(rng, 1, granule == 256 ? 2 : 5) * (granule == 1 ? 24 : 1) + odd;
  s.kv_heads = Uniform(rng, 1, 3);
  const int head_dims[] = {8, 16, 32, 64, 80, 128, 256};
  s.head_dim = head_dims[Uniform(rng, 0, 6)];
  s.group_size = Uniform(rng, 1, 9);
  // The output projection's inputs must fill blocks.
  while (s.kv_heads * s.group_size * s.head_dim % granule != 0) ++s.group_size;
  s.q_heads = s.kv_heads * s.group_size;
  // A rank's heads may begin and end within a group.
  const int first = Uniform(rng, 0, s.group_size - 1), cut = Uniform(rng, 0, s.group_size - 1);
  const int left = s.q_heads - first - cut;
  if (coin() && left > 0 && left * s.head_dim % granule == 0) {
    s.q_heads = left;
    s.first_head = first;
  }
  s.rope_dim = coin() ? s.head_dim : s.head_dim / 2;
  s.vocab = Uniform(rng, 33, 100);
  s.style = coin() ? RopeStyle::kHalves : RopeStyle::kInterleaved;
  s.activation = coin() ? Activation::kGeluTanh : Activation::kSilu;
  s.biases = coin();
  s.qk_norms = coin();
  s.post_norms = coin();
  s.tied = coin();
  s.factors = coin();
  s.window = coin() ? Uniform(rng, 1, 40) : 0;
  s.embedding_scale = coin() ? 3.0f : 1.0f;
  s.position_scale = coin() ? 0.125 : 1.0;
  return s;
}

TinyModel MakeTinyModel(Rng& rng, const ModelShapeSpec& shape) {
  return Builder(rng, shape).Build();
}

Sequences RandomSequences(Rng& rng, int vocab, const std::vector<int>& lengths, int block_size,
                          int block_count) {
  std::vector<int> free_blocks(block_count);
  std::iota(free_blocks.begin(), free_blocks.end(), 0);
  std::shuffle(free_blocks.begin(), free_blocks.end(), rng);
  Sequences out;
  for (int length : lengths) {
    std::vector<TokenId>& tokens = out.tokens.emplace_back(length);
    for (TokenId& token : tokens) token = Uniform(rng, 0, vocab - 1);
    std::vector<BlockId>& blocks = out.blocks.emplace_back();
    for (int i = 0; i * block_size < length; ++i) {
      STAFFEL_CHECK(!free_blocks.empty()) << "the test's pool is too small";
      blocks.push_back(BlockId(free_blocks.back()));
      free_blocks.pop_back();
    }
  }
  return out;
}

Schedule TokenByToken(const Sequences& sequences) {
  Schedule schedule;
  for (size_t s = 0; s < sequences.tokens.size(); ++s) {
    for (size_t i = 0; i < sequences.tokens[s].size(); ++i) {
      schedule.push_back({{static_cast<int>(s), 1}});
    }
  }
  return schedule;
}

Schedule WholePrompts(const Sequences& sequences) {
  Schedule schedule(1);
  for (size_t s = 0; s < sequences.tokens.size(); ++s) {
    schedule[0].push_back({static_cast<int>(s), static_cast<int>(sequences.tokens[s].size())});
  }
  return schedule;
}

Schedule RandomSchedule(Rng& rng, const Sequences& sequences, int max_rows) {
  std::vector<int> left;
  for (const auto& tokens : sequences.tokens) left.push_back(static_cast<int>(tokens.size()));
  Schedule schedule;
  while (std::any_of(left.begin(), left.end(), [](int n) { return n > 0; })) {
    std::vector<Chunk> step;
    int rows = max_rows;
    for (size_t s = 0; s < left.size(); ++s) {
      const int count = std::min(
          {left[s], rows, Uniform(rng, 0, 3) == 0 ? Uniform(rng, 1, 40) : Uniform(rng, 0, 1)});
      if (count == 0) continue;
      step.push_back({static_cast<int>(s), count});
      left[s] -= count;
      rows -= count;
    }
    std::shuffle(step.begin(), step.end(), rng);
    if (!step.empty()) schedule.push_back(step);
  }
  return schedule;
}

Result<Logits> RunSchedule(Executable& executable, const Program& program,
                           const Sequences& sequences, const Schedule& schedule) {
  Logits logits;
  std::vector<int> done(sequences.tokens.size(), 0);
  for (const std::vector<Chunk>& step : schedule) {
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions, sampled;
    std::vector<BatchTensors::Sequence> rows;
    std::vector<std::pair<int, int>> keys;
    for (const Chunk& chunk : step) {
      rows.push_back({.row_begin = static_cast<int>(tokens.size()),
                      .row_count = chunk.count,
                      .start = done[chunk.sequence],
                      .blocks = sequences.blocks[chunk.sequence]});
      for (int i = 0; i < chunk.count; ++i) {
        const int position = done[chunk.sequence]++;
        sampled.push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(sequences.tokens[chunk.sequence][position]);
        positions.push_back(position);
        keys.push_back({chunk.sequence, position});
      }
    }
    BatchTensors batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.sequences = rows;
    batch.sampled_rows = sampled;
    STAFFEL_RETURN_IF_ERROR(executable.Run(batch));
    for (size_t i = 0; i < keys.size(); ++i) {
      const absl::Span<float> row = executable.logits(static_cast<int>(i));
      STAFFEL_CHECK_EQ(static_cast<int>(row.size()), program.value(program.logits).cols);
      logits[keys[i]].assign(row.begin(), row.end());
    }
  }
  return logits;
}

double RelativeError(absl::Span<const float> a, absl::Span<const float> b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

}  // namespace staffel::testing
