// A model that exists in memory as the bytes of GGUF files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/strings.h"
#include "tests/support/fake_model.h"
#include "tests/support/gguf_builder.h"

namespace staffel::testing {

inline void AddMetadata(const FakeModel& model, GgufBuilder& builder) {
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
}

inline void AddTensors(absl::Span<const TensorView> tensors, GgufBuilder& builder) {
  for (const TensorView& tensor : tensors) {
    std::vector<uint64_t> dims = {static_cast<uint64_t>(tensor.cols)};
    if (tensor.rows > 1) dims.push_back(static_cast<uint64_t>(tensor.rows));
    builder.Tensor(tensor.name, dims, static_cast<uint32_t>(tensor.type),
                   {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  }
}

inline std::string GgufBytes(const FakeModel& model) {
  GgufBuilder builder;
  AddMetadata(model, builder);
  AddTensors(model.tensors(), builder);
  return builder.Build();
}

// The same split into two files: metadata and the first third of the tensors, then the rest.
inline std::pair<std::string, std::string> SplitGgufBytes(const FakeModel& model) {
  const absl::Span<const TensorView> tensors = model.tensors();
  const size_t first = tensors.size() / 3;
  std::string parts[2];
  for (uint16_t part = 0; part < 2; ++part) {
    GgufBuilder builder;
    if (part == 0) AddMetadata(model, builder);
    builder.U16("split.no", part).U16("split.count", 2);
    builder.I32("split.tensors.count", static_cast<int32_t>(tensors.size()));
    AddTensors(part == 0 ? tensors.first(first) : tensors.subspan(first), builder);
    parts[part] = builder.Build();
  }
  return {parts[0], parts[1]};
}

}  // namespace staffel::testing
