// The CPU backend against the recordings, with activations of every type, with all that was
// recorded.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>

#include "device/cpu/cpu_backend.h"
#include "tests/model/golden_checks.h"

namespace staffel {
namespace {

struct Mode {
  const char* model;
  ActivationType activations;
  int passage_tokens, generations;  // 0: all
  double loss;
  GenerationBounds bounds;
};

class GoldenCpu : public ::testing::TestWithParam<Mode> {};

TEST_P(GoldenCpu, AgreesWithTheRecording) {
  const Mode& mode = GetParam();
  Result<std::unique_ptr<Backend>> backend = MakeCpuBackend({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  std::cout << (*backend)->Describe() << ", activations "
            << kActivationTypeNames[static_cast<int>(mode.activations)] << "\n";
  std::unique_ptr<GoldenModel> model = LoadGolden(mode.model, **backend, mode.activations);
  ASSERT_NE(model, nullptr);
  CheckPassage(*model, mode.passage_tokens, mode.loss);
  CheckGenerations(*model, mode.generations, mode.bounds);
  CheckOwnTokens(*model, mode.generations, mode.bounds.near_tie);
  // A row's bits do not depend on the rows beside it.
  CheckChunking(*model, 2, 4, 0.0);
}

// int16, the default, is held to the same as f32: what both differ by from the recordings is the
// rounding of keys and values (and of queries and probabilities in int16) to bf16, most in Qwen,
// whose keys are large. int8 is an approximation: an f32 simulation of 8 bits with a scale for 32
// has the same mean difference (0.106 on SmolLM2), so that its bounds tell a bug from the format.
// Gemma's passage reaches beyond its window of 512.
const Mode kModes[] = {
    {"smollm2", ActivationType::kInt16, 0, 0, 0.001, {0.2, 0.015, 0.1}},
    {"qwen2.5", ActivationType::kInt16, 0, 0, 0.001, {0.8, 0.035, 0.1}},
    {"gemma3", ActivationType::kInt16, 0, 0, 0.001, {0.15, 0.01, 0.1}},
    {"smollm2", ActivationType::kInt8, 0, 0, 0.01, {1.2, 0.15, 0.6}},
    {"qwen2.5", ActivationType::kInt8, 0, 0, 0.01, {1.6, 0.10, 0.6}},
    {"gemma3", ActivationType::kInt8, 0, 0, 0.01, {1.2, 0.13, 0.6}},
    {"smollm2", ActivationType::kF32, 0, 0, 0.001, {0.1, 0.015, 0.1}},
    {"qwen2.5", ActivationType::kF32, 0, 6, 0.001, {0.25, 0.03, 0.1}},
    {"gemma3", ActivationType::kF32, 0, 6, 0.001, {0.06, 0.01, 0.1}},
};

INSTANTIATE_TEST_SUITE_P(Models, GoldenCpu, ::testing::ValuesIn(kModes), [](const auto& info) {
  std::string name = std::string(info.param.model) + "_" +
                     kActivationTypeNames[static_cast<int>(info.param.activations)];
  std::erase(name, '.');
  return name;
});

}  // namespace
}  // namespace staffel
