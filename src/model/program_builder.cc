#include "model/program_builder.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "model/tensor_table.h"

namespace staffel {

ProgramBuilder::ProgramBuilder(const ModelConfig& config, const RankShard& shard)
    : config_(config), shard_(shard), hidden_(config.shape.hidden) {
  program_.kv = {shard.layers.size(), shard.kv_heads.size(), config.shape.head_dim};
}

ProgramBuilder::Stream ProgramBuilder::Begin(const char* delta_norm) {
  Stream stream;
  stream.residual = AddValue("residual", RowDim::kTokens, hidden_);
  if (shard_.first_stage) {
    WeightId embedding = Matrix("token_embd.weight", {0, config_.shape.vocab}, {0, hidden_});
    program_.ops.push_back(EmbedOp{embedding, stream.residual, config_.embedding_scale});
    return stream;
  }
  stream.delta = AddValue("delta", RowDim::kTokens, hidden_);
  program_.ops.push_back(RecvOp{stream.residual, shard_.previous_rank});
  program_.ops.push_back(RecvOp{stream.delta, shard_.previous_rank});
  if (delta_norm != nullptr) {
    stream.delta_norm = LayerTensor(shard_.layers.begin - 1, delta_norm);
  }
  return stream;
}

void ProgramBuilder::BeginLayer(int layer) { layer_ = layer; }

std::string ProgramBuilder::Tensor(const char* part) const { return LayerTensor(layer_, part); }

ValueId ProgramBuilder::AddNorm(Stream& stream, const char* weight) {
  return AddNorm(stream, LayerVector(weight, hidden_), LayerValue(weight));
}

ValueId ProgramBuilder::AddNorm(Stream& stream, WeightId weight, std::string name) {
  AddRmsNormOp op;
  op.residual = stream.residual;
  op.delta = stream.delta;
  if (!stream.delta_norm.empty()) op.post_norm = Vector(stream.delta_norm, {0, hidden_});
  op.weight = weight;
  op.out = AddValue(std::move(name), RowDim::kTokens, hidden_);
  op.eps = config_.norm_eps;
  program_.ops.push_back(op);
  stream.delta = ValueId::kNone;
  stream.delta_norm.clear();
  return op.out;
}

ValueId ProgramBuilder::Qkv(ValueId in) {
  const Range q = Elements(shard_.q_heads), kv = Elements(shard_.kv_heads);
  LinearOp op{in};
  for (auto [part, rows] : {std::pair{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}}) {
    std::string tensor = Tensor(part);
    op.parts.push_back(Matrix(tensor + ".weight", rows, {0, hidden_}));
    if (config_.qkv_bias) op.biases.push_back(Vector(tensor + ".bias", rows));
  }
  op.out = AddValue(LayerValue("qkv"), RowDim::kTokens, q.size() + 2 * kv.size());
  program_.ops.push_back(op);
  return op.out;
}

void ProgramBuilder::RopeAndStoreKv(ValueId qkv, bool norms) {
  const RopeConfig& rope = config_.rope;
  const bool local = config_.windows[layer_] > 0;
  RopeAndStoreKvOp op;
  op.qkv = qkv;
  op.layer = layer_ - shard_.layers.begin;
  op.heads = Heads();
  op.head_dim = config_.shape.head_dim;
  op.rope_dim = rope.dim;
  op.style = rope.style;
  op.base = local ? rope.local_base : rope.base;
  op.position_scale = local ? rope.local_position_scale : rope.position_scale;
  if (rope.frequency_factors) op.frequency_factors = Vector("rope_freqs.weight", {0, rope.dim / 2});
  if (norms) {
    op.q_norm = LayerVector("attn_q_norm.weight", op.head_dim);
    op.k_norm = LayerVector("attn_k_norm.weight", op.head_dim);
    op.norm_eps = config_.norm_eps;
  }
  program_.ops.push_back(op);
}

ValueId ProgramBuilder::PagedAttention(ValueId qkv) {
  PagedAttentionOp op;
  op.qkv = qkv;
  op.layer = layer_ - shard_.layers.begin;
  op.heads = Heads();
  op.head_dim = config_.shape.head_dim;
  op.scale = config_.attention_scale;
  op.window = config_.windows[layer_];
  op.out = AddValue(LayerValue("attention"), RowDim::kTokens, Elements(shard_.q_heads).size());
  program_.ops.push_back(op);
  return op.out;
}

ValueId ProgramBuilder::AttentionOutput(ValueId in) {
  WeightId weight = Matrix(Tensor("attn_output.weight"), {0, hidden_}, Elements(shard_.q_heads));
  std::vector<WeightId> biases;
  // Once in the group's sum.
  if (config_.attention_output_bias && shard_.rank == shard_.group.front()) {
    biases = {LayerVector("attn_output.bias", hidden_)};
  }
  return AllReduce(Linear(in, {weight}, std::move(biases), "attention_output"));
}

ValueId ProgramBuilder::GatedFfn(ValueId in, Activation activation) {
  WeightId gate = Matrix(Tensor("ffn_gate.weight"), shard_.ffn, {0, hidden_});
  WeightId up = Matrix(Tensor("ffn_up.weight"), shard_.ffn, {0, hidden_});
  WeightId down = Matrix(Tensor("ffn_down.weight"), {0, hidden_}, shard_.ffn);
  ValueId inner = AddValue(LayerValue("ffn_inner"), RowDim::kTokens, shard_.ffn.size());
  program_.ops.push_back(GatedLinearOp{in, gate, up, activation, inner});
  return AllReduce(Linear(inner, {down}, {}, "ffn_output"));
}

Program ProgramBuilder::Finish(Stream stream) {
  if (!shard_.last_stage) {
    program_.ops.push_back(SendOp{stream.residual, shard_.next_rank});
    program_.ops.push_back(SendOp{stream.delta, shard_.next_rank});
    return std::move(program_);
  }
  ValueId normed = AddNorm(stream, Vector("output_norm.weight", {0, hidden_}), "output_norm");
  ValueId sampled = AddValue("sampled", RowDim::kSampled, hidden_);
  program_.ops.push_back(TakeRowsOp{normed, sampled});
  const char* tensor = config_.tied_embeddings ? "token_embd.weight" : "output.weight";
  ValueId part = AddValue("logits", RowDim::kSampled, shard_.vocab.size());
  program_.ops.push_back(LinearOp{sampled, {Matrix(tensor, shard_.vocab, {0, hidden_})}, {}, part});
  program_.logits = part;
  if (shard_.rank == shard_.group.front()) program_.hidden = normed;
  if (shard_.group.size() > 1) {  // one member has all columns already
    program_.logits = shard_.rank == shard_.group.front()
                          ? AddValue("all_logits", RowDim::kSampled, config_.shape.vocab)
                          : ValueId::kNone;
    program_.ops.push_back(GatherOp{part, program_.logits, shard_.group_vocab, shard_.group});
  }
  return std::move(program_);
}

WeightId ProgramBuilder::LayerVector(const char* part, int size) {
  return Vector(Tensor(part), {0, size});
}

ValueId ProgramBuilder::AddValue(std::string name, RowDim rows, int cols) {
  program_.values.push_back({std::move(name), rows, cols});
  return static_cast<ValueId>(program_.values.size() - 1);
}

std::string ProgramBuilder::LayerValue(std::string_view name) const {
  constexpr std::string_view kSuffix = ".weight";
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  return StrCat("layer", layer_, ".", name);
}

// The same part of a tensor is one weight, whatever asks for it (tied embeddings, rope factors).
WeightId ProgramBuilder::AddWeight(WeightSpec spec) {
  for (size_t i = 0; i < program_.weights.size(); ++i) {
    const WeightSpec& known = program_.weights[i];
    if (known.tensor == spec.tensor && known.rows == spec.rows && known.cols == spec.cols) {
      return static_cast<WeightId>(i);
    }
  }
  program_.weights.push_back(std::move(spec));
  return static_cast<WeightId>(program_.weights.size() - 1);
}

WeightId ProgramBuilder::Vector(const std::string& tensor, Range elements) {
  return AddWeight({tensor, elements, {0, 1}, true});
}

WeightId ProgramBuilder::Matrix(const std::string& tensor, Range rows, Range cols) {
  return AddWeight({tensor, rows, cols, false});
}

ValueId ProgramBuilder::Linear(ValueId in, std::vector<WeightId> parts,
                               std::vector<WeightId> biases, const char* name) {
  ValueId out = AddValue(LayerValue(name), RowDim::kTokens, hidden_);
  program_.ops.push_back(LinearOp{in, std::move(parts), std::move(biases), out});
  return out;
}

// Always in the program: a group of one leaves the value as it is at no cost.
ValueId ProgramBuilder::AllReduce(ValueId value) {
  program_.ops.push_back(AllReduceOp{value});
  return value;
}

HeadGroups ProgramBuilder::Heads() const {
  const int group_size = config_.shape.q_heads / config_.shape.kv_heads;
  return {shard_.q_heads.size(), shard_.kv_heads.size(), group_size,
          shard_.q_heads.begin % group_size};
}

Range ProgramBuilder::Elements(Range heads) const {
  const int head_dim = config_.shape.head_dim;
  return {heads.begin * head_dim, heads.end * head_dim};
}

}  // namespace staffel
