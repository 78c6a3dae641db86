// What a model file says of itself, whatever its format: typed metadata, tokenizer, template, and
// the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "staffel/status.h"
#include "staffel/tensor.h"
#include "staffel/tokenizer.h"

namespace staffel {

// Metadata by GGUF key names ("llama.block_count"); other formats translate into them. Getters that
// are asked for a key that is absent return NotFound naming it; of the wrong type or outside the
// range, InvalidArgument naming it and the value.
class Metadata {
 public:
  virtual ~Metadata() = default;
  virtual bool Has(const std::string& key) const = 0;
  virtual Result<int64_t> Int(const std::string& key, int64_t min, int64_t max) const = 0;
  virtual Result<double> Float(const std::string& key) const = 0;  // finite
  virtual Result<bool> Bool(const std::string& key) const = 0;
  virtual Result<std::string> String(const std::string& key) const = 0;
  virtual Result<std::vector<int64_t>> IntArray(
      const std::string& key) const = 0;  // bools count as 0 and 1
  virtual std::vector<std::string> Keys() const = 0;
};

// One of the files that a model lies in.
struct ModelPart {
  std::string path;
  absl::Span<const uint8_t> bytes;  // the whole file; valid while the ModelFile lives
  int64_t header_bytes = 0;         // metadata and tensor table; tensor data begins behind them
};

class ModelFile {
 public:
  virtual ~ModelFile() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t file_bytes() const = 0;
  // In order; empty for a model that exists in memory only.
  virtual std::vector<ModelPart> parts() const = 0;
  virtual const Metadata& metadata() const = 0;
  virtual const WeightSource& weights() const = 0;
  virtual const std::vector<TensorView>& tensors() const = 0;
  virtual Result<TokenizerSpec> ReadTokenizer() const = 0;
  virtual std::optional<std::string> chat_template() const = 0;
};

}  // namespace staffel
