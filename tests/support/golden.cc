#include "tests/support/golden.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace staffel {
namespace {

const char* FileOf(const std::string& name) {
  if (name == "smollm2") return "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (name == "qwen2.5") return "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
  if (name == "gemma3") return "gemma-3-270m-q4_k_m.gguf";
  return "";
}

std::filesystem::path ModelFolder() {
  if (const char* folder = std::getenv("STAFFEL_MODELS")) return folder;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "") / ".cache/staffel/models";
}

GoldenGeneration Parse(const nlohmann::json& json) {
  GoldenGeneration generation;
  generation.prompt = json.at("prompt_ids").get<std::vector<TokenId>>();
  generation.greedy = json.at("greedy_ids").get<std::vector<TokenId>>();
  for (const auto& step : json.at("steps")) {
    std::vector<TokenLogprob>& top = generation.steps.emplace_back();
    for (size_t i = 0; i < step.at("top_ids").size(); ++i) {
      top.push_back({step["top_ids"][i], step["top_logprobs"][i]});
    }
  }
  generation.smallest_gap = json.at("margin_min");
  return generation;
}

}  // namespace

Result<Golden> ReadGolden(const std::string& name) {
  Golden golden;
  golden.name = name;
  golden.model_path = ModelFolder() / FileOf(name);
  if (!std::filesystem::is_regular_file(golden.model_path)) {
    return absl::NotFoundError(StrCat("the model ", golden.model_path,
                                      " is absent; run scripts/fetch_model.py ", name,
                                      ", or set STAFFEL_MODELS"));
  }
  const std::string path = StrCat(STAFFEL_TEST_DATA, "/golden/", name, ".json");
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(StrCat("cannot read ", path));
  const nlohmann::json json = nlohmann::json::parse(file);
  for (const auto& generation : json.at("generations")) {
    golden.generations.push_back(Parse(generation));
  }
  const auto& passage = json.at("passage");
  golden.passage = passage.at("ids").get<std::vector<TokenId>>();
  golden.passage_mean_nll = passage.at("mean_nll");
  golden.passage_nll = passage.at("nll").get<std::vector<float>>();
  return golden;
}

}  // namespace staffel
