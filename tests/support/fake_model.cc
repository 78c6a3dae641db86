#include "tests/support/fake_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/strings.h"

namespace staffel {

void FakeModel::AddTensor(const std::string& name, int64_t rows, int64_t cols, float deviation,
                          float mean) {
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(name)));
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<uint8_t>& bytes = bytes_[name];
  bytes.resize(rows * cols * sizeof(float));
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = deviation > 0 ? normal(random) : mean;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  tensors_.push_back({name, DType::kF32, rows, cols, bytes});
}

void FakeModel::RemoveTensor(const std::string& name) {
  std::erase_if(tensors_, [&](const TensorView& tensor) { return tensor.name == name; });
}

void FakeModel::ReshapeTensor(const std::string& name, int64_t rows, int64_t cols) {
  for (TensorView& tensor : tensors_) {
    if (tensor.name != name) continue;
    tensor.rows = rows;
    tensor.cols = cols;
    bytes_[name].resize(rows * cols * sizeof(float));
    tensor.bytes = bytes_[name];
  }
}

void FakeModel::RetypeTensor(const std::string& name, DType type) {
  for (TensorView& tensor : tensors_) {
    if (tensor.name == name) tensor.type = type;
  }
}

void FakeModel::QuantiseMatrices() {
  constexpr int kBlock = 32;
  for (TensorView& tensor : tensors_) {
    if (tensor.type != DType::kF32 || tensor.rows == 1 || tensor.cols % kBlock != 0) continue;
    const std::vector<uint8_t> floats = std::move(bytes_[tensor.name]);
    std::vector<uint8_t>& blocks = bytes_[tensor.name];
    for (size_t at = 0; at < floats.size(); at += kBlock * sizeof(float)) {
      float values[kBlock], largest = 0;
      std::memcpy(values, floats.data() + at, sizeof values);
      for (float value : values) largest = std::max(largest, std::abs(value));
      // The scale is a power of two, 2^-k with 0 <= k < 15: an f16 of that exponent alone.
      const int k = std::clamp(static_cast<int>(std::floor(std::log2(127 / largest))), 0, 14);
      const uint16_t scale = static_cast<uint16_t>((15 - k) << 10);
      blocks.push_back(static_cast<uint8_t>(scale));
      blocks.push_back(static_cast<uint8_t>(scale >> 8));
      for (float value : values) {
        blocks.push_back(
            static_cast<uint8_t>(static_cast<int8_t>(std::lround(std::ldexp(value, k)))));
      }
    }
    tensor.type = DType::kQ8_0;
    tensor.bytes = blocks;
  }
}

Result<TokenizerSpec> FakeModel::ReadTokenizer() const {
  TokenizerSpec spec;
  spec.model = "gpt2";
  for (int i = 0; i < token_count; ++i) spec.tokens.push_back(StrCat("t", i));
  spec.types.assign(token_count, TokenType::kNormal);
  return spec;
}

template <class T>
Result<T> FakeModel::Get(const std::string& key) const {
  auto at = keys.find(key);
  if (at == keys.end()) return absl::NotFoundError(StrCat("key ", key, " is missing"));
  const T* value = std::get_if<T>(&at->second);
  if (value == nullptr) return absl::InvalidArgumentError(StrCat(key, " has another type"));
  return *value;
}

Result<int64_t> FakeModel::Int(const std::string& key, int64_t min, int64_t max) const {
  STAFFEL_ASSIGN_OR_RETURN(int64_t value, Get<int64_t>(key));
  if (value < min || value > max) {
    return absl::InvalidArgumentError(
        StrCat(key, " is ", value, "; it must be in [", min, ", ", max, "]"));
  }
  return value;
}

Result<double> FakeModel::Float(const std::string& key) const { return Get<double>(key); }
Result<bool> FakeModel::Bool(const std::string& key) const { return Get<bool>(key); }
Result<std::string> FakeModel::String(const std::string& key) const {
  return Get<std::string>(key);
}
Result<std::vector<int64_t>> FakeModel::IntArray(const std::string& key) const {
  return Get<std::vector<int64_t>>(key);
}

std::vector<std::string> FakeModel::Keys() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : keys) names.push_back(name);
  return names;
}

const TensorView* FakeModel::Find(const std::string& name) const {
  auto at = std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const TensorView& tensor) { return tensor.name == name; });
  return at == tensors_.end() ? nullptr : &*at;
}

std::unique_ptr<FakeModel> MakeTinyModel(const std::string& architecture, const TinyShape& s) {
  auto model = std::make_unique<FakeModel>();
  auto set = [&](const char* key, FakeModel::MetaValue value) {
    model->keys[StrCat(architecture, ".", key)] = std::move(value);
  };
  auto integer = [](int value) { return FakeModel::MetaValue(int64_t{value}); };
  model->keys["general.architecture"] = architecture;
  set("block_count", integer(s.layers));
  set("context_length", integer(256));
  set("embedding_length", integer(s.hidden));
  set("feed_forward_length", integer(s.ffn));
  set("attention.head_count", integer(s.q_heads));
  set("attention.head_count_kv", integer(s.kv_heads));
  set("attention.key_length", integer(s.head_dim));
  set("attention.value_length", integer(s.head_dim));
  set("attention.layer_norm_rms_epsilon", 1e-5);
  set("vocab_size", integer(s.vocab));
  if (s.window > 0) set("attention.sliding_window", integer(s.window));
  model->token_count = s.vocab;

  // Gains that keep activations near 1 and make the greedy choice depend on the whole context.
  auto matrix = [&](const std::string& name, int rows, int cols, float gain) {
    model->AddTensor(name, rows, cols, gain / std::sqrt(static_cast<float>(cols)));
  };
  auto norm = [&](const std::string& name, int size) {
    model->AddTensor(name, 1, size, 0.1f, 1.0f);
  };
  const int q = s.q_heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  model->AddTensor("token_embd.weight", s.vocab, s.hidden, 1.0f);
  norm("output_norm.weight", s.hidden);
  if (!s.tied) matrix("output.weight", s.vocab, s.hidden, 4.0f);
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string b = StrCat("blk.", layer, ".");
    norm(b + "attn_norm.weight", s.hidden);
    norm(b + "ffn_norm.weight", s.hidden);
    matrix(b + "attn_q.weight", q, s.hidden, 2.0f);
    matrix(b + "attn_k.weight", kv, s.hidden, 2.0f);
    matrix(b + "attn_v.weight", kv, s.hidden, 1.0f);
    matrix(b + "attn_output.weight", s.hidden, q, 2.0f);
    matrix(b + "ffn_gate.weight", s.ffn, s.hidden, 1.5f);
    matrix(b + "ffn_up.weight", s.ffn, s.hidden, 1.5f);
    matrix(b + "ffn_down.weight", s.hidden, s.ffn, 2.0f);
    if (architecture == "qwen2") {
      model->AddTensor(b + "attn_q.bias", 1, q, 0.5f);
      model->AddTensor(b + "attn_k.bias", 1, kv, 0.5f);
      model->AddTensor(b + "attn_v.bias", 1, kv, 0.5f);
    }
    if (architecture == "gemma3") {
      norm(b + "attn_q_norm.weight", s.head_dim);
      norm(b + "attn_k_norm.weight", s.head_dim);
      norm(b + "post_attention_norm.weight", s.hidden);
      norm(b + "post_ffw_norm.weight", s.hidden);
    }
  }
  return model;
}

}  // namespace staffel
