// Writes a rank's program op by op. It knows the shard: an architecture states the model as its
// paper does, and the ranges of this rank follow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "staffel/placement.h"
#include "staffel/program.h"

namespace staffel {

class ProgramBuilder {
 public:
  // Both live longer than the builder.
  ProgramBuilder(const ModelConfig& config, const RankShard& shard);

  // The residual stream, and what the last block wants added to it. All values are [T, hidden].
  struct Stream {
    ValueId residual = ValueId::kNone;
    ValueId delta = ValueId::kNone;
    std::string delta_norm;  // tensor that normalises the delta on its way in; "": none (gemma3)
  };

  Range layers() const { return shard_.layers; }
  // Weights and values that follow are of this layer of the model.
  void BeginLayer(int layer);
  // "blk.<layer>.<part>" of that layer.
  std::string Tensor(const char* part) const;

  // The embedded tokens on the first stage; else what the previous stage sent, whose delta takes
  // the norm `delta_norm` of the layer before (null: none).
  Stream Begin(const char* delta_norm = nullptr);
  // Adds the stream's delta to its residual and returns the normalised sum; the delta is used up.
  // `weight`: of the layer, e.g. "attn_norm.weight".
  ValueId AddNorm(Stream& stream, const char* weight);
  // Queries, keys and values of this rank's heads, side by side: [T, (q + 2 kv) * head_dim].
  ValueId Qkv(ValueId in);
  // `norms`: queries and keys are normalised by attn_q_norm and attn_k_norm first.
  void RopeAndStoreKv(ValueId qkv, bool norms = false);
  // [T, q * head_dim].
  ValueId PagedAttention(ValueId qkv);
  // This rank's heads through attn_output, summed over the group: [T, hidden].
  ValueId AttentionOutput(ValueId in);
  // down(activation(gate(in)) * up(in)) over this rank's columns, summed over the group: [T,
  // hidden].
  ValueId GatedFfn(ValueId in, Activation activation);
  // On the last stage: final norm, the sampled rows, their logits. Else the stream goes on to the
  // next stage.
  Program Finish(Stream stream);

 private:
  ValueId AddNorm(Stream& stream, WeightId weight, std::string name);
  ValueId AddValue(std::string name, RowDim rows, int cols);
  std::string LayerValue(std::string_view name) const;
  WeightId LayerVector(const char* part, int size);
  WeightId AddWeight(WeightSpec spec);
  WeightId Vector(const std::string& tensor, Range elements);
  WeightId Matrix(const std::string& tensor, Range rows, Range cols);
  ValueId Linear(ValueId in, std::vector<WeightId> parts, std::vector<WeightId> biases,
                 const char* name);
  ValueId AllReduce(ValueId value);
  HeadGroups Heads() const;  // of the shard
  Range Elements(Range heads) const;

  const ModelConfig& config_;
  const RankShard& shard_;
  const int hidden_;
  int layer_ = -1;
  Program program_;
};

}  // namespace staffel
