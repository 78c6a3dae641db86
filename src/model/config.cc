#include "model/config.h"

#include <algorithm>
#include <numeric>

#include "base/strings.h"
#include "model/architecture.h"

namespace staffel {
namespace {

// The vocabulary as the tokenizer, the key vocab_size and the embedding tell it.
Status ReadVocabulary(const ModelFile& file, const ConfigReader& reader, ModelConfig& config,
                      int64_t& embedding_rows) {
  STAFFEL_ASSIGN_OR_RETURN(TokenizerSpec tokenizer, file.ReadTokenizer());
  const int64_t tokens = static_cast<int64_t>(tokenizer.tokens.size());
  if (tokens == 0) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.tokens is empty; the model has no vocabulary");
  }
  const TensorView* embedding = file.weights().Find("token_embd.weight");
  if (embedding == nullptr) {
    return absl::NotFoundError("tensor token_embd.weight is missing from the model file");
  }
  embedding_rows = embedding->rows;
  if (tokens > embedding_rows) {
    return absl::InvalidArgumentError(StrCat("tokenizer.ggml.tokens has ", tokens,
                                             " entries, but token_embd.weight only ",
                                             embedding_rows, " rows"));
  }
  if (reader.Has("vocab_size")) {
    STAFFEL_ASSIGN_OR_RETURN(int vocab_size, reader.Int("vocab_size", 1, 1 << 30));
    if (vocab_size != embedding_rows && vocab_size != tokens) {
      return absl::InvalidArgumentError(
          StrCat(reader.Name("vocab_size"), " is ", vocab_size, ", but token_embd.weight has ",
                 embedding_rows, " rows and tokenizer.ggml.tokens ", tokens, " entries"));
    }
  }
  config.shape.vocab = static_cast<int>(tokens);
  return absl::OkStatus();
}

// Bytes by layer, and the steps in which quantisation blocks let heads and FFN columns be cut.
void MeasureTensors(const ModelFile& file, ModelShape& shape) {
  int64_t layers_bytes = 0;
  int ffn_block = 1, output_block = 1;
  for (const TensorView& tensor : file.tensors()) {
    std::string_view name = tensor.name;
    int64_t bytes = static_cast<int64_t>(tensor.bytes.size());
    if (name == "token_embd.weight") shape.embedding_bytes = bytes;
    if (name == "output.weight") shape.head_bytes = bytes;
    if (!name.starts_with("blk.")) continue;
    layers_bytes += bytes;
    int block = InfoOf(tensor.type).block_elements;
    if (name.ends_with(".ffn_down.weight")) ffn_block = std::lcm(ffn_block, block);
    if (name.ends_with(".attn_output.weight")) output_block = std::lcm(output_block, block);
  }
  shape.layer_bytes = layers_bytes / shape.layers;
  shape.ffn_granule = std::gcd(std::lcm(ffn_block, 32), shape.ffn);
  shape.head_granule = output_block / std::gcd(output_block, shape.head_dim);
}

}  // namespace

Result<ModelConfig> ReadConfig(const ModelFile& file) {
  const Metadata& metadata = file.metadata();
  ModelConfig config;
  STAFFEL_ASSIGN_OR_RETURN(config.shape.architecture, metadata.String("general.architecture"));
  STAFFEL_ASSIGN_OR_RETURN(const Architecture* architecture,
                           FindArchitecture(config.shape.architecture));
  if (metadata.Has("general.name")) {
    STAFFEL_ASSIGN_OR_RETURN(config.name, metadata.String("general.name"));
  }

  ConfigReader reader(metadata, architecture->name);
  STAFFEL_RETURN_IF_ERROR(reader.ReadCommon(config));
  STAFFEL_RETURN_IF_ERROR(reader.RefuseUnsupported());
  config.tied_embeddings = file.weights().Find("output.weight") == nullptr;
  config.rope.frequency_factors = file.weights().Find("rope_freqs.weight") != nullptr;
  STAFFEL_RETURN_IF_ERROR(architecture->read(reader, file, config));

  int64_t embedding_rows = 0;
  STAFFEL_RETURN_IF_ERROR(ReadVocabulary(file, reader, config, embedding_rows));
  TensorTable table;
  AddCommonTensors(config, embedding_rows, table);
  architecture->add_tensors(config, table);
  STAFFEL_RETURN_IF_ERROR(table.Check(file, config.shape.layers, reader.Name("block_count")));
  MeasureTensors(file, config.shape);
  return config;
}

}  // namespace staffel
