// A model file that exists in memory only: metadata and tensors as a test sets them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "staffel/model_file.h"

namespace staffel {

class FakeModel final : public ModelFile, public Metadata, public WeightSource {
 public:
  using MetaValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>>;

  // Anything may be changed before the model is used.
  std::map<std::string, MetaValue> keys;
  int token_count = 0;

  // Values of a seeded normal distribution with this deviation around `mean`, as f32.
  void AddTensor(const std::string& name, int64_t rows, int64_t cols, float deviation,
                 float mean = 0);
  void RemoveTensor(const std::string& name);
  // Another shape for the same bytes, or more of them (zero).
  void ReshapeTensor(const std::string& name, int64_t rows, int64_t cols);
  void RetypeTensor(const std::string& name, DType type);
  // All f32 matrices of whole blocks of 32 become Q8_0, rounded.
  void QuantiseMatrices();

  const std::string& path() const override { return path_; }
  int64_t file_bytes() const override { return 0; }
  std::vector<ModelPart> parts() const override { return {}; }
  const Metadata& metadata() const override { return *this; }
  const WeightSource& weights() const override { return *this; }
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  Result<TokenizerSpec> ReadTokenizer() const override;
  std::optional<std::string> chat_template() const override { return std::nullopt; }

  bool Has(const std::string& key) const override { return keys.contains(key); }
  Result<int64_t> Int(const std::string& key, int64_t min, int64_t max) const override;
  Result<double> Float(const std::string& key) const override;
  Result<bool> Bool(const std::string& key) const override;
  Result<std::string> String(const std::string& key) const override;
  Result<std::vector<int64_t>> IntArray(const std::string& key) const override;
  std::vector<std::string> Keys() const override;

  const TensorView* Find(const std::string& name) const override;
  void Release(const TensorView&) const override {}

 private:
  template <class T>
  Result<T> Get(const std::string& key) const;

  std::string path_ = "fake.gguf";
  std::vector<TensorView> tensors_;
  std::map<std::string, std::vector<uint8_t>> bytes_;
};

// Sizes of a generated model; the defaults are uneven on purpose.
struct TinyShape {
  int layers = 4, hidden = 64, q_heads = 6, kv_heads = 3, head_dim = 16, ffn = 160, vocab = 96;
  int window = 0;    // attention.sliding_window
  bool tied = true;  // no output.weight
};

// A random model of the architecture ("llama", "qwen2", "gemma3") with all keys and tensors.
std::unique_ptr<FakeModel> MakeTinyModel(const std::string& architecture, const TinyShape& shape);

}  // namespace staffel
