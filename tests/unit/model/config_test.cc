#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/fake_model.h"

namespace staffel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig Read(const FakeModel& model) {
  Result<ModelConfig> config = ReadConfig(model);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

TEST(ReadConfig, Llama) {
  auto model = MakeTinyModel("llama", {});
  model->keys["general.name"] = std::string("Tiny");
  model->keys["llama.rope.freq_base"] = 100000.0;
  model->keys["llama.rope.dimension_count"] = int64_t{8};
  ModelConfig c = Read(*model);
  EXPECT_EQ(c.name, "Tiny");
  EXPECT_EQ(c.shape.architecture, "llama");
  EXPECT_EQ(c.shape.layers, 4);
  EXPECT_EQ(c.shape.hidden, 64);
  EXPECT_EQ(c.shape.q_heads, 6);
  EXPECT_EQ(c.shape.kv_heads, 3);
  EXPECT_EQ(c.shape.head_dim, 16);
  EXPECT_EQ(c.shape.ffn, 160);
  EXPECT_EQ(c.shape.vocab, 96);
  EXPECT_EQ(c.shape.context_length, 256);
  EXPECT_EQ(c.shape.ffn_granule, 32);
  EXPECT_EQ(c.shape.head_granule, 1);
  EXPECT_EQ(c.shape.embedding_bytes, 96 * 64 * 4);
  EXPECT_EQ(c.shape.head_bytes, 0);
  EXPECT_TRUE(c.tied_embeddings);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_EQ(c.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(c.rope.dim, 8);
  EXPECT_EQ(c.rope.base, 100000.0);
  EXPECT_EQ(c.rope.position_scale, 1.0);
  EXPECT_FLOAT_EQ(c.attention_scale, 0.25f);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
  EXPECT_THAT(c.windows, ElementsAre(0, 0, 0, 0));
}

TEST(ReadConfig, DefaultsOfAbsentKeys) {
  TinyShape shape;
  shape.q_heads = shape.kv_heads = 4;
  auto model = MakeTinyModel("llama", shape);
  for (const char* key : {"attention.head_count_kv", "attention.key_length",
                          "attention.value_length", "vocab_size"}) {
    model->keys.erase(std::string("llama.") + key);
  }
  ModelConfig c = Read(*model);
  EXPECT_EQ(c.shape.kv_heads, 4);
  EXPECT_EQ(c.shape.head_dim, 16);
  EXPECT_EQ(c.rope.dim, 16);
  EXPECT_EQ(c.rope.base, 10000.0);
}

TEST(ReadConfig, LlamaOptionalTensorsAreUsed) {
  TinyShape shape;
  shape.tied = false;
  auto model = MakeTinyModel("llama", shape);
  model->AddTensor("rope_freqs.weight", 1, 8, 0, 1.0f);
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::string b = "blk." + std::to_string(layer) + ".";
    model->AddTensor(b + "attn_q.bias", 1, 96, 1);
    model->AddTensor(b + "attn_k.bias", 1, 48, 1);
    model->AddTensor(b + "attn_v.bias", 1, 48, 1);
    model->AddTensor(b + "attn_output.bias", 1, 64, 1);
  }
  ModelConfig c = Read(*model);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(c.shape.head_bytes, 96 * 64 * 4);
  EXPECT_TRUE(c.rope.frequency_factors);
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_TRUE(c.attention_output_bias);
}

TEST(ReadConfig, Qwen2HasBiasesAndHalves) {
  ModelConfig c = Read(*MakeTinyModel("qwen2", {}));
  EXPECT_EQ(c.rope.style, RopeStyle::kHalves);
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FLOAT_EQ(c.embedding_scale, 1.0f);
}

TEST(ReadConfig, Gemma3HasWindowsAndTwoRotaryBases) {
  TinyShape shape;
  shape.layers = 13;
  shape.window = 32;
  auto model = MakeTinyModel("gemma3", shape);
  model->keys["gemma3.rope.freq_base"] = 5e5;
  model->keys["gemma3.rope.scaling.type"] = std::string("linear");
  model->keys["gemma3.rope.scaling.factor"] = 8.0;
  ModelConfig c = Read(*model);
  EXPECT_THAT(c.windows, ElementsAre(32, 32, 32, 32, 32, 0, 32, 32, 32, 32, 32, 0, 32));
  EXPECT_EQ(c.rope.base, 5e5);
  EXPECT_EQ(c.rope.local_base, 10000.0);
  EXPECT_EQ(c.rope.position_scale, 0.125);
  EXPECT_EQ(c.rope.local_position_scale, 1.0);
  EXPECT_FLOAT_EQ(c.embedding_scale, 8.0f);

  model->keys.erase("gemma3.rope.freq_base");
  model->keys["gemma3.rope.freq_base_swa"] = 20000.0;
  c = Read(*model);
  EXPECT_EQ(c.rope.base, 1e6);
  EXPECT_EQ(c.rope.local_base, 20000.0);
}

TEST(ReadConfig, WindowPatternIsAPeriodOrFlags) {
  TinyShape shape;
  shape.window = 32;
  auto model = MakeTinyModel("gemma3", shape);
  const std::string key = "gemma3.attention.sliding_window_pattern";
  model->keys[key] = int64_t{2};
  EXPECT_THAT(Read(*model).windows, ElementsAre(32, 0, 32, 0));
  model->keys[key] = std::vector<int64_t>{0, 1, 1, 0};
  EXPECT_THAT(Read(*model).windows, ElementsAre(0, 32, 32, 0));
  model->keys[key] = std::vector<int64_t>{0, 1, 1};
  EXPECT_THAT(std::string(ReadConfig(*model).status().message()), HasSubstr("3 entries"));
}

TEST(ReadConfig, WindowOfALlamaFileIsHonoured) {
  TinyShape shape;
  shape.window = 32;
  EXPECT_THAT(Read(*MakeTinyModel("llama", shape)).windows, Each(32));
  EXPECT_THAT(Read(*MakeTinyModel("qwen2", shape)).windows, Each(32));
}

TEST(ReadConfig, PaddedEmbeddingRowsStayUnused) {
  auto model = MakeTinyModel("llama", {});
  model->token_count = 90;
  EXPECT_EQ(Read(*model).shape.vocab, 90);
  model->keys["llama.vocab_size"] = int64_t{90};
  EXPECT_EQ(Read(*model).shape.vocab, 90);
}

TEST(ReadConfig, GranulesFollowQuantisationBlocks) {
  TinyShape shape;
  shape.hidden = 256;
  shape.ffn = 512;
  shape.q_heads = 8;
  shape.kv_heads = 4;
  shape.head_dim = 64;
  auto model = MakeTinyModel("llama", shape);
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::string b = "blk." + std::to_string(layer) + ".";
    model->RetypeTensor(b + "ffn_down.weight", layer == 0 ? DType::kQ6_K : DType::kQ8_0);
    model->RetypeTensor(b + "attn_output.weight", DType::kQ4_K);
  }
  ModelConfig c = Read(*model);
  EXPECT_EQ(c.shape.ffn_granule, 256);
  EXPECT_EQ(c.shape.head_granule, 4);
}

struct Refusal {
  const char* name;
  const char* architecture;
  std::function<void(FakeModel&)> spoil;
  std::vector<const char*> words;
};

class ReadConfigRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ReadConfigRefuses, NamingWhatIsWrong) {
  auto model = MakeTinyModel(GetParam().architecture, {});
  GetParam().spoil(*model);
  Result<ModelConfig> config = ReadConfig(*model);
  ASSERT_FALSE(config.ok());
  for (const char* word : GetParam().words) {
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(word));
  }
}

std::function<void(FakeModel&)> Set(const char* key, FakeModel::MetaValue value) {
  return [=](FakeModel& model) { model.keys[key] = value; };
}
std::function<void(FakeModel&)> SetInt(const char* key, int64_t value) {
  return Set(key, FakeModel::MetaValue(value));
}
std::function<void(FakeModel&)> Erase(const char* key) {
  return [=](FakeModel& model) { model.keys.erase(key); };
}

const Refusal kRefusals[] = {
    {"UnknownArchitecture",
     "llama",
     Set("general.architecture", std::string("mamba")),
     {"mamba", "gemma3, llama, qwen2"}},
    {"NoArchitecture", "llama", Erase("general.architecture"), {"general.architecture"}},
    {"ZeroLayers", "llama", SetInt("llama.block_count", 0), {"llama.block_count", "0"}},
    {"NoLayers", "llama", Erase("llama.block_count"), {"llama.block_count"}},
    {"LayersAsText", "llama", Set("llama.block_count", std::string("1")), {"llama.block_count"}},
    {"LayersBeyondTensors",
     "llama",
     SetInt("llama.block_count", 513),
     {"blk.4.attn_norm.weight", "block_count", "513"}},
    {"AbsurdLayers", "llama", SetInt("llama.block_count", 4294967295), {"block_count"}},
    {"TensorsBeyondLayers", "llama", SetInt("llama.block_count", 3), {"blk.3.", "block_count 3"}},
    {"ZeroContext", "llama", SetInt("llama.context_length", 0), {"context_length"}},
    {"ZeroHidden", "llama", SetInt("llama.embedding_length", 0), {"embedding_length"}},
    {"HugeHidden",
     "llama",
     SetInt("llama.embedding_length", int64_t{1} << 40),
     {"embedding_length"}},
    {"WrongHidden",
     "llama",
     SetInt("llama.embedding_length", 128),
     {"token_embd.weight", "[96, 64]", "[96, 128]"}},
    {"ZeroFfn", "llama", SetInt("llama.feed_forward_length", 0), {"feed_forward_length"}},
    {"ZeroHeads", "llama", SetInt("llama.attention.head_count", 0), {"attention.head_count"}},
    {"ZeroKvHeads", "llama", SetInt("llama.attention.head_count_kv", 0), {"head_count_kv"}},
    {"UnevenKvHeads",
     "llama",
     SetInt("llama.attention.head_count_kv", 4),
     {"head_count 6", "head_count_kv 4"}},
    {"MoreKvHeads", "llama", SetInt("llama.attention.head_count_kv", 12), {"head_count_kv 12"}},
    {"HeadsDoNotDivide",
     "llama",
     Erase("llama.attention.key_length"),
     {"embedding_length 64", "head_count 6"}},
    {"ValueLengthDiffers",
     "llama",
     SetInt("llama.attention.value_length", 8),
     {"value_length 8", "16"}},
    {"ZeroRope", "llama", SetInt("llama.rope.dimension_count", 0), {"rope.dimension_count"}},
    {"OddRope", "llama", SetInt("llama.rope.dimension_count", 7), {"rope.dimension_count", "7"}},
    {"WideRope", "llama", SetInt("llama.rope.dimension_count", 32), {"rope.dimension_count", "32"}},
    {"ZeroRopeBase", "llama", Set("llama.rope.freq_base", 0.0), {"rope.freq_base", "0"}},
    {"YarnScaling",
     "llama",
     Set("llama.rope.scaling.type", std::string("yarn")),
     {"rope.scaling.type", "yarn"}},
    {"NegativeScaling", "llama", Set("llama.rope.scaling.factor", -2.0), {"scaling.factor", "-2"}},
    {"ScaledAttention", "llama", Set("llama.rope.scaling.attn_factor", 1.5), {"attn_factor"}},
    {"NoEps", "llama", Erase("llama.attention.layer_norm_rms_epsilon"), {"layer_norm_rms_epsilon"}},
    {"ZeroEps",
     "llama",
     Set("llama.attention.layer_norm_rms_epsilon", 0.0),
     {"layer_norm_rms_epsilon", "0"}},
    {"NanEps",
     "llama",
     Set("llama.attention.layer_norm_rms_epsilon", std::nan("")),
     {"layer_norm_rms_epsilon"}},
    {"ZeroVocab", "llama", SetInt("llama.vocab_size", 0), {"vocab_size"}},
    {"OtherVocab", "llama", SetInt("llama.vocab_size", 95), {"vocab_size", "95", "96"}},
    {"MoreTokensThanRows",
     "llama",
     [](FakeModel& m) { m.token_count = 97; },
     {"tokenizer.ggml.tokens", "97", "96"}},
    {"NoTokens", "llama", [](FakeModel& m) { m.token_count = 0; }, {"tokenizer.ggml.tokens"}},
    {"NegativeWindow", "llama", SetInt("llama.attention.sliding_window", -1), {"sliding_window"}},
    {"Experts", "llama", SetInt("llama.expert_count", 8), {"expert_count", "8"}},
    {"NotCausal", "llama", Set("llama.attention.causal", false), {"attention.causal"}},
    {"SoftCap",
     "gemma3",
     Set("gemma3.final_logit_softcapping", 30.0),
     {"final_logit_softcapping", "30"}},
    {"UnknownAttentionKey", "llama", Set("llama.attention.sinks", true), {"llama.attention.sinks"}},
    {"MissingTensor",
     "llama",
     [](FakeModel& m) { m.RemoveTensor("blk.2.ffn_up.weight"); },
     {"blk.2.ffn_up.weight", "missing"}},
    {"MissingEmbedding",
     "llama",
     [](FakeModel& m) { m.RemoveTensor("token_embd.weight"); },
     {"token_embd.weight", "missing"}},
    {"MissingBias",
     "qwen2",
     [](FakeModel& m) { m.RemoveTensor("blk.0.attn_k.bias"); },
     {"blk.0.attn_k.bias"}},
    {"MissingNorm",
     "gemma3",
     [](FakeModel& m) { m.RemoveTensor("blk.3.post_ffw_norm.weight"); },
     {"blk.3.post_ffw_norm.weight"}},
    {"OneBiasOfThree",
     "llama",
     [](FakeModel& m) { m.AddTensor("blk.0.attn_q.bias", 1, 96, 1); },
     {"blk.0.attn_k.bias"}},
    {"BiasInALaterLayerOnly",
     "llama",
     [](FakeModel& m) { m.AddTensor("blk.1.attn_q.bias", 1, 96, 1); },
     {"blk.1.attn_q.bias"}},
    {"UnusedTensor",
     "qwen2",
     [](FakeModel& m) { m.AddTensor("blk.0.ffn_gate.bias", 1, 160, 1); },
     {"blk.0.ffn_gate.bias", "no use"}},
    {"WrongShape",
     "llama",
     [](FakeModel& m) { m.ReshapeTensor("blk.1.attn_k.weight", 96, 64); },
     {"blk.1.attn_k.weight", "[96, 64]", "[48, 64]"}},
    {"ZeroRows",
     "llama",
     [](FakeModel& m) { m.ReshapeTensor("blk.0.attn_q.weight", 0, 64); },
     {"blk.0.attn_q.weight"}},
    {"QuantisedNorm",
     "llama",
     [](FakeModel& m) { m.RetypeTensor("output_norm.weight", DType::kQ8_0); },
     {"output_norm.weight", "Q8_0"}},
    {"RowsAreNotWholeBlocks",
     "llama",
     [](FakeModel& m) { m.RetypeTensor("blk.0.attn_q.weight", DType::kQ4_K); },
     {"blk.0.attn_q.weight", "Q4_K"}},
};

INSTANTIATE_TEST_SUITE_P(Table, ReadConfigRefuses, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace staffel
