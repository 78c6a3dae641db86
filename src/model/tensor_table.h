// The tensors an architecture needs, checked against those a file has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "staffel/model_file.h"
#include "staffel/status.h"

namespace staffel {

class TensorTable {
 public:
  // [rows, cols] of any element type whose blocks fill a row.
  void Matrix(std::string name, int64_t rows, int64_t cols);
  // `size` plain floats.
  void Vector(std::string name, int64_t size);
  // NotFound: the first tensor that is missing. InvalidArgument: a wrong shape or type.
  // Unimplemented: a tensor that the table does not have, which the model would ignore. `layers`
  // and `layers_key` are for the message.
  Status Check(const ModelFile& file, int layers, const std::string& layers_key) const;

 private:
  struct Entry {
    std::string name;
    int64_t rows, cols;
    bool vector;
  };
  Status CheckUnused(const ModelFile& file, int layers, const std::string& layers_key) const;

  std::vector<Entry> entries_;
};

// "blk.<layer>.<part>".
std::string LayerTensor(int layer, const char* part);

// What llama-like layers have in common: embedding, norms, attention, gated FFN, and the vocabulary
// projection unless it is tied; the biases and rope factors that `config` says are there.
// `embedding_rows` >= shape.vocab.
void AddCommonTensors(const ModelConfig& config, int64_t embedding_rows, TensorTable& table);

}  // namespace staffel
