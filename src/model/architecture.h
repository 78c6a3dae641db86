// What an architecture is to the rest of src/model: three functions.
#pragma once

#include "absl/types/span.h"
#include "model/config.h"
#include "model/config_reader.h"
#include "model/tensor_table.h"
#include "staffel/program.h"

namespace staffel {

struct Architecture {
  const char* name;  // general.architecture
  // Sets what differs from the common keys; those have been read.
  Status (*read)(const ConfigReader& reader, const ModelFile& file, ModelConfig& config);
  // Tensors beyond the common ones.
  void (*add_tensors)(const ModelConfig& config, TensorTable& table);
  Program (*build)(const ModelConfig& config, const RankShard& shard);
};

extern const Architecture kLlama, kQwen2, kGemma3;

// NotFound or Unimplemented: lists the known ones.
Result<const Architecture*> FindArchitecture(const std::string& name);

}  // namespace staffel
