#include "tests/support/model_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/model.h"
#include "plan/placement.h"

namespace staffel {

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::shared_ptr<const ModelFile> file,
                                                         Backend& backend, BackendOptions options) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  runner->file_ = std::move(file);
  STAFFEL_ASSIGN_OR_RETURN(runner->config_, ReadConfig(*runner->file_));
  ClusterShape cluster;
  cluster.devices.resize(1);
  STAFFEL_ASSIGN_OR_RETURN(PlacementPlan plan, MakePlacement(runner->config_.shape, cluster, {}));
  STAFFEL_ASSIGN_OR_RETURN(Program program, BuildProgram(runner->config_, plan.ranks[0]));
  options.block_count = (options.max_positions + options.block_size - 1) / options.block_size;
  STAFFEL_ASSIGN_OR_RETURN(runner->executable_, backend.Prepare(program, runner->file_->weights(),
                                                                /*group=*/nullptr, options));
  runner->options_ = options;
  // Out of order, as a busy server's tables are.
  for (int i = 0; i < options.block_count; ++i) {
    runner->blocks_.push_back(BlockId(options.block_count - 1 - i));
  }
  return runner;
}

void ModelRunner::Reset() { position_ = 0; }

Status ModelRunner::Feed(absl::Span<const TokenId> tokens, int chunk, bool all,
                         const std::function<void(int, absl::Span<float>)>& on_logits) {
  const int count = static_cast<int>(tokens.size());
  const int rows_max = std::min(options_.max_rows, all ? options_.max_sampled_rows : count);
  if (chunk <= 0 || chunk > rows_max) chunk = rows_max;
  for (int begin = 0; begin < count; begin += chunk) {
    const int rows = std::min(chunk, count - begin);
    std::vector<int32_t> positions(rows), sampled;
    for (int i = 0; i < rows; ++i) {
      positions[i] = position_ + i;
      if (all || begin + i == count - 1) sampled.push_back(i);
    }
    BatchTensors::Sequence sequence{
        0, rows, position_,
        absl::MakeConstSpan(blocks_).first((position_ + rows + options_.block_size - 1) /
                                           options_.block_size)};
    BatchTensors batch;
    batch.tokens = tokens.subspan(begin, rows);
    batch.positions = positions;
    batch.sequences = {&sequence, 1};
    batch.sampled_rows = sampled;
    STAFFEL_RETURN_IF_ERROR(executable_->Run(batch));
    for (size_t r = 0; r < sampled.size(); ++r) {
      on_logits(begin + sampled[r], executable_->logits(static_cast<int>(r)));
    }
    position_ += rows;
  }
  return absl::OkStatus();
}

Result<std::vector<TokenId>> ModelRunner::Greedy(absl::Span<const TokenId> prompt, int count,
                                                 int chunk) {
  std::vector<TokenId> drawn;
  auto draw = [&](int, absl::Span<float> row) {
    drawn.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
  };
  Reset();
  STAFFEL_RETURN_IF_ERROR(Feed(prompt, chunk, false, draw));
  while (static_cast<int>(drawn.size()) < count) {
    const TokenId last = drawn.back();
    STAFFEL_RETURN_IF_ERROR(Feed({&last, 1}, 1, false, draw));
  }
  return drawn;
}

double LogSumExp(absl::Span<const float> row) {
  const float max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float x : row) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum);
}

}  // namespace staffel
