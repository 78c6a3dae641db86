#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "model/model.h"
#include "plan/placement.h"
#include "tests/support/fake_model.h"

namespace staffel {
namespace {

// The program of every rank of a small model, against tests/data/programs/<name>.txt.
// STAFFEL_UPDATE_GOLDENS=1 writes the file anew; the difference is then for a reviewer to judge.
void ExpectPrograms(const std::string& name, const FakeModel& model, int tp, int pp) {
  Result<ModelConfig> config = ReadConfig(model);
  ASSERT_TRUE(config.ok()) << config.status();
  ClusterShape cluster;
  cluster.devices.resize(tp * pp);
  Result<PlacementPlan> plan = MakePlacement(config->shape, cluster, {tp, pp});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::string text;
  for (const RankShard& shard : plan->ranks) {
    Result<Program> program = BuildProgram(*config, shard);
    ASSERT_TRUE(program.ok()) << program.status();
    StrAppend(text, "rank ", shard.rank, "\n", PrintProgram(*program), "\n");
  }
  const std::string path = StrCat(STAFFEL_TEST_DATA, "/programs/", name, ".txt");
  if (std::getenv("STAFFEL_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << path;
}

TinyShape Layers(int layers) {
  TinyShape shape;
  shape.layers = layers;
  return shape;
}

TEST(BuildProgram, LlamaOnOneRank) {
  auto model = MakeTinyModel("llama", Layers(2));
  model->AddTensor("rope_freqs.weight", 1, 8, 0, 1.0f);
  ExpectPrograms("llama_1", *model, 1, 1);
}

TEST(BuildProgram, LlamaOnTwoUnevenRanks) {
  TinyShape shape = Layers(1);
  shape.tied = false;
  auto model = MakeTinyModel("llama", shape);
  model->AddTensor("blk.0.attn_output.bias", 1, shape.hidden, 1);
  ExpectPrograms("llama_tp2", *model, 2, 1);
}

TEST(BuildProgram, Qwen2OnTwoStages) {
  ExpectPrograms("qwen2_pp2", *MakeTinyModel("qwen2", Layers(2)), 1, 2);
}

TEST(BuildProgram, Gemma3OnTwoStagesOfTwo) {
  TinyShape shape = Layers(2);
  shape.window = 8;
  auto model = MakeTinyModel("gemma3", shape);
  model->keys["gemma3.attention.sliding_window_pattern"] = int64_t{2};
  model->keys["gemma3.rope.scaling.factor"] = 8.0;
  ExpectPrograms("gemma3_tp2_pp2", *model, 2, 2);
}

TEST(BuildProgram, TiedEmbeddingIsOneWeight) {
  Result<ModelConfig> config = ReadConfig(*MakeTinyModel("llama", Layers(1)));
  RankShard shard{.layers = {0, 1},
                  .q_heads = {0, 6},
                  .kv_heads = {0, 3},
                  .ffn = {0, 160},
                  .vocab = {0, 96},
                  .group = {0},
                  .group_vocab = {96}};
  Result<Program> program = BuildProgram(*config, shard);
  ASSERT_TRUE(program.ok());
  int embeddings = 0;
  for (const WeightSpec& spec : program->weights) embeddings += spec.tensor == "token_embd.weight";
  EXPECT_EQ(embeddings, 1);
  EXPECT_EQ(program->value(program->logits).cols, 96);
}

TEST(BuildProgram, UnknownArchitectureListsTheKnownOnes) {
  ModelConfig config;
  config.shape.architecture = "mamba";
  EXPECT_THAT(std::string(BuildProgram(config, {}).status().message()),
              ::testing::HasSubstr("gemma3, llama, qwen2"));
}

}  // namespace
}  // namespace staffel
