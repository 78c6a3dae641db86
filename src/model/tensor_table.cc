#include "model/tensor_table.h"

#include <charconv>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/strings.h"

namespace staffel {
namespace {

bool IsPlainFloat(DType type) { return InfoOf(type).block_elements == 1; }

// The layer of "blk.<layer>.…", or -1.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t layer = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

}  // namespace

std::string LayerTensor(int layer, const char* part) { return StrCat("blk.", layer, ".", part); }

void TensorTable::Matrix(std::string name, int64_t rows, int64_t cols) {
  entries_.push_back({std::move(name), rows, cols, false});
}

void TensorTable::Vector(std::string name, int64_t size) {
  entries_.push_back({std::move(name), 1, size, true});
}

Status TensorTable::Check(const ModelFile& file, int layers, const std::string& layers_key) const {
  for (const Entry& entry : entries_) {
    const TensorView* tensor = file.weights().Find(entry.name);
    if (tensor == nullptr) {
      return absl::NotFoundError(StrCat("tensor ", entry.name, " is missing from the model file (",
                                        layers_key, " is ", layers, ")"));
    }
    if (tensor->rows != entry.rows || tensor->cols != entry.cols) {
      return absl::InvalidArgumentError(StrCat(
          "tensor ", entry.name, " has the shape [", tensor->rows, ", ", tensor->cols,
          "]; the metadata asks for [", entry.rows, ", ", entry.cols, "] (outputs, inputs)"));
    }
    const DTypeInfo& info = InfoOf(tensor->type);
    if (entry.vector ? !IsPlainFloat(tensor->type) : entry.cols % info.block_elements != 0) {
      return absl::InvalidArgumentError(StrCat(
          "tensor ", entry.name, " with ", entry.cols, " elements a row cannot have the type ",
          info.name, entry.vector ? "; norms and biases are plain floats" : ""));
    }
  }
  return CheckUnused(file, layers, layers_key);
}

Status TensorTable::CheckUnused(const ModelFile& file, int layers,
                                const std::string& layers_key) const {
  absl::flat_hash_set<std::string> known;
  for (const Entry& entry : entries_) known.insert(entry.name);
  for (const TensorView& tensor : file.tensors()) {
    if (known.contains(tensor.name)) continue;
    if (LayerOf(tensor.name) >= layers) {
      return absl::InvalidArgumentError(
          StrCat("tensor ", tensor.name, " belongs to a layer beyond ", layers_key, " ", layers));
    }
    return absl::UnimplementedError(
        StrCat("tensor ", tensor.name,
               " has no use in this architecture; without it the answers would be wrong"));
  }
  return absl::OkStatus();
}

void AddCommonTensors(const ModelConfig& config, int64_t embedding_rows, TensorTable& table) {
  const ModelShape& shape = config.shape;
  const int64_t q = int64_t{shape.q_heads} * shape.head_dim;
  const int64_t kv = int64_t{shape.kv_heads} * shape.head_dim;
  table.Matrix("token_embd.weight", embedding_rows, shape.hidden);
  if (config.rope.frequency_factors) table.Vector("rope_freqs.weight", config.rope.dim / 2);
  for (int layer = 0; layer < shape.layers; ++layer) {
    auto name = [layer](const char* part) { return LayerTensor(layer, part); };
    table.Vector(name("attn_norm.weight"), shape.hidden);
    table.Matrix(name("attn_q.weight"), q, shape.hidden);
    table.Matrix(name("attn_k.weight"), kv, shape.hidden);
    table.Matrix(name("attn_v.weight"), kv, shape.hidden);
    if (config.qkv_bias) {
      table.Vector(name("attn_q.bias"), q);
      table.Vector(name("attn_k.bias"), kv);
      table.Vector(name("attn_v.bias"), kv);
    }
    table.Matrix(name("attn_output.weight"), shape.hidden, q);
    if (config.attention_output_bias) table.Vector(name("attn_output.bias"), shape.hidden);
    table.Vector(name("ffn_norm.weight"), shape.hidden);
    table.Matrix(name("ffn_gate.weight"), shape.ffn, shape.hidden);
    table.Matrix(name("ffn_up.weight"), shape.ffn, shape.hidden);
    table.Matrix(name("ffn_down.weight"), shape.hidden, shape.ffn);
  }
  table.Vector("output_norm.weight", shape.hidden);
  if (!config.tied_embeddings) table.Matrix("output.weight", embedding_rows, shape.hidden);
}

}  // namespace staffel
