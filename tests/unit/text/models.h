// The real models that the golden files were made from, and small vocabularies.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "modelfile/open.h"
#include "staffel/tokenizer.h"
#include "text/tokenizer.h"

namespace staffel {

inline constexpr const char* kSmolLm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr const char* kQwen25 = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
inline constexpr const char* kGemma3 = "gemma-3-270m-q4_k_m.gguf";

// Path of a model, whether or not it is there.
inline std::string ModelPath(const std::string& file) {
  if (const char* folder = std::getenv("STAFFEL_MODELS")) return std::string(folder) + "/" + file;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") + "/.cache/staffel/models/" + file;
}

inline bool HasModel(const std::string& file) { return std::filesystem::exists(ModelPath(file)); }

inline Result<TokenizerSpec> ModelTokenizerSpec(const std::string& file) {
  STAFFEL_ASSIGN_OR_RETURN(const auto model, OpenModelFile(ModelPath(file)));
  return model->ReadTokenizer();
}

// Built once a program: reading a vocabulary of 262144 tokens takes its time.
inline const Tokenizer* ModelTokenizer(const std::string& file) {
  static auto& made = *new std::map<std::string, std::unique_ptr<Tokenizer>>;
  std::unique_ptr<Tokenizer>& tokenizer = made[file];
  if (tokenizer == nullptr) {
    Result<TokenizerSpec> spec = ModelTokenizerSpec(file);
    if (!spec.ok()) return nullptr;
    auto result = MakeTokenizer(*std::move(spec));
    if (!result.ok()) return nullptr;
    tokenizer = *std::move(result);
  }
  return tokenizer.get();
}

}  // namespace staffel
