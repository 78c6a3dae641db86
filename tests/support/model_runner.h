// Runs one sequence through a model's program on one rank, without worker or scheduler: what tests
// of programs and backends need.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/config.h"
#include "staffel/backend.h"
#include "staffel/model_file.h"
#include "staffel/status.h"

namespace staffel {

class ModelRunner {
 public:
  // options.block_count is set here, to hold one sequence of options.max_positions.
  static Result<std::unique_ptr<ModelRunner>> Create(std::shared_ptr<const ModelFile> file,
                                                     Backend& backend, BackendOptions options);

  const ModelConfig& config() const { return config_; }
  // Begins another sequence.
  void Reset();
  // Computes further tokens in steps of at most `chunk` rows (0: the most that options allow).
  // `on_logits(i, row)` gets the logits behind tokens[i], for the last token or (all) each of them.
  Status Feed(absl::Span<const TokenId> tokens, int chunk, bool all,
              const std::function<void(int, absl::Span<float>)>& on_logits);
  // Greedy continuation of the sequence so far, the last fed token's logits first.
  Result<std::vector<TokenId>> Greedy(absl::Span<const TokenId> prompt, int count, int chunk);

 private:
  ModelRunner() = default;

  std::shared_ptr<const ModelFile> file_;
  ModelConfig config_;
  BackendOptions options_;
  std::unique_ptr<Executable> executable_;
  std::vector<BlockId> blocks_;
  int position_ = 0;
};

// log(sum(exp(row))), in double.
double LogSumExp(absl::Span<const float> row);

}  // namespace staffel
