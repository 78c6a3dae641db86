// A model that exists in memory as the bytes of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/support/fake_model.h"
#include "tests/support/gguf_builder.h"

namespace staffel::testing {

inline std::string GgufBytes(const FakeModel& model) {
  GgufBuilder builder;
  for (const auto& [key, value] : model.keys) {
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      builder.U32(key, static_cast<uint32_t>(*integer));
    } else if (const auto* number = std::get_if<double>(&value)) {
      builder.F32(key, static_cast<float>(*number));
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      builder.Bool(key, *flag);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      builder.String(key, *text);
    } else {
      std::vector<int32_t> numbers;
      for (int64_t each : std::get<std::vector<int64_t>>(value)) {
        numbers.push_back(static_cast<int32_t>(each));
      }
      builder.Array(key, 5, numbers);
    }
  }
  std::vector<std::string> tokens;
  for (int i = 0; i < model.token_count; ++i) tokens.push_back(StrCat("t", i));
  builder.String("tokenizer.ggml.model", "gpt2");
  builder.Strings("tokenizer.ggml.tokens", tokens);
  builder.Array("tokenizer.ggml.token_type", 5, std::vector<int32_t>(tokens.size(), 1));
  builder.Strings("tokenizer.ggml.merges", {});
  for (const TensorView& tensor : model.tensors()) {
    std::vector<uint64_t> dims = {static_cast<uint64_t>(tensor.cols)};
    if (tensor.rows > 1) dims.push_back(static_cast<uint64_t>(tensor.rows));
    builder.Tensor(tensor.name, dims, static_cast<uint32_t>(tensor.type),
                   {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  }
  return builder.Build();
}

}  // namespace staffel::testing
