// The recorded outputs of real models (tests/data/golden): prompts, greedy tokens,
// log-probabilities, and a passage with its loss, of an f32 forward pass on the dequantised
// weights.
#pragma once

#include <string>
#include <vector>

#include "staffel/ids.h"
#include "staffel/request.h"
#include "staffel/status.h"

namespace staffel {

struct GoldenGeneration {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;                   // 32
  std::vector<std::vector<TokenLogprob>> steps;  // 20 best for each of the first 8
  double smallest_gap = 0;  // between the two best log-probabilities of any of the 32 steps
};

struct Golden {
  std::string name;
  std::string model_path;  // the file exists
  std::vector<GoldenGeneration> generations;
  std::vector<TokenId> passage;
  double passage_mean_nll = 0;  // of passage[1...]
  std::vector<float> passage_nll;
};

// name: "smollm2", "qwen2.5", "gemma3". NotFound: the model file is absent; says how to fetch it.
Result<Golden> ReadGolden(const std::string& name);

}  // namespace staffel
