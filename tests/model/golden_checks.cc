#include "tests/model/golden_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/strings.h"
#include "modelfile/open.h"

namespace staffel {
namespace {

// Two tokens that close may change places by the rounding of sums.
constexpr double kNearTie = 0.1;

TokenId Best(absl::Span<const float> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Another token than the recorded one is best at a step: they are a near tie here, and in the
// recording as far as it tells (the 20 best of the first steps, the smallest gap of all steps).
void ExpectNearTie(const GoldenGeneration& generation, int step, TokenId best, double gap,
                   double bound) {
  double recorded_gap = generation.smallest_gap;
  if (step < static_cast<int>(generation.steps.size())) {
    const std::vector<TokenLogprob>& top = generation.steps[step];
    const auto at = std::find_if(top.begin(), top.end() - 1,
                                 [&](const TokenLogprob& entry) { return entry.token == best; });
    recorded_gap = top[0].logprob - at->logprob;
  }
  EXPECT_LE(gap, bound) << "step " << step << ": " << best << " instead of "
                        << generation.greedy[step];
  EXPECT_LE(recorded_gap, bound) << "step " << step << ": the recording is sure of "
                                 << generation.greedy[step] << ", not " << best;
}

int Limit(int count, size_t size) {
  return count == 0 ? static_cast<int>(size) : std::min(count, static_cast<int>(size));
}

}  // namespace

std::unique_ptr<GoldenModel> LoadGolden(const std::string& name, Backend& backend,
                                        ActivationType activations) {
  auto model = std::make_unique<GoldenModel>();
  Result<Golden> golden = ReadGolden(name);
  EXPECT_TRUE(golden.ok()) << golden.status();
  if (!golden.ok()) return nullptr;
  model->golden = *std::move(golden);
  Result<std::unique_ptr<ModelFile>> file = OpenModelFile(model->golden.model_path);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return nullptr;
  BackendOptions options;
  options.max_rows = 128;
  options.max_sampled_rows = 128;
  options.max_positions = 1024;
  options.activations = activations;
  Result<std::unique_ptr<ModelRunner>> runner =
      ModelRunner::Create(*std::move(file), backend, options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return nullptr;
  model->runner = *std::move(runner);
  return model;
}

void CheckPassage(GoldenModel& model, int tokens, double bound) {
  const std::vector<TokenId>& ids = model.golden.passage;
  const int count = Limit(tokens, ids.size());
  double loss = 0, expected = 0, worst = 0;
  model.runner->Reset();
  Status status = model.runner->Feed(
      absl::MakeConstSpan(ids).first(count - 1), 0, true, [&](int i, absl::Span<float> row) {
        const double nll = LogSumExp(row) - row[ids[i + 1]];
        loss += nll / (count - 1);
        expected += model.golden.passage_nll[i] / (count - 1);
        worst = std::max(worst, std::abs(nll - model.golden.passage_nll[i]));
      });
  ASSERT_TRUE(status.ok()) << status;
  if (count == static_cast<int>(ids.size())) expected = model.golden.passage_mean_nll;
  std::cout << model.golden.name << ": mean loss of " << count - 1 << " tokens " << loss
            << ", recorded " << expected << ", difference " << loss - expected << ", worst token "
            << worst << "\n";
  EXPECT_NEAR(loss, expected, bound);
}

void CheckGenerations(GoldenModel& model, int count, const GenerationBounds& bounds) {
  double worst = 0, sum = 0, widest = 0;
  int compared = 0, near_ties = 0, steps = 0;
  count = Limit(count, model.golden.generations.size());
  for (int g = 0; g < count; ++g) {
    const GoldenGeneration& generation = model.golden.generations[g];
    const int prompt_size = static_cast<int>(generation.prompt.size());
    std::vector<TokenId> tokens = generation.prompt;
    tokens.insert(tokens.end(), generation.greedy.begin(), generation.greedy.end() - 1);
    model.runner->Reset();
    Status status = model.runner->Feed(tokens, 0, true, [&](int i, absl::Span<float> row) {
      const int step = i - (prompt_size - 1);
      if (step < 0) return;
      ++steps;
      const TokenId best = Best(row), recorded = generation.greedy[step];
      const double gap = row[best] - row[recorded];
      if (best != recorded) {
        ++near_ties;
        widest = std::max(widest, gap);
        SCOPED_TRACE(StrCat("generation ", g));
        ExpectNearTie(generation, step, best, gap, bounds.near_tie);
      }
      if (step >= static_cast<int>(generation.steps.size())) return;
      const std::vector<TokenLogprob>& top = generation.steps[step];
      const double log_sum = LogSumExp(row);
      for (const TokenLogprob& entry : top) {
        const double difference = std::abs(row[entry.token] - log_sum - entry.logprob);
        worst = std::max(worst, difference);
        sum += difference;
        ++compared;
      }
    });
    ASSERT_TRUE(status.ok()) << status;
  }
  std::cout << model.golden.name << ": " << compared << " log-probabilities, worst difference "
            << worst << ", mean " << sum / compared << "; " << near_ties << " near ties in "
            << steps << " greedy steps, the widest " << widest << "\n";
  EXPECT_LE(worst, bounds.logprob);
  EXPECT_LE(sum / compared, bounds.logprob_mean);
}

void CheckOwnTokens(GoldenModel& model, int count, double near_tie) {
  count = Limit(count, model.golden.generations.size());
  int same = 0;
  for (int g = 0; g < count; ++g) {
    SCOPED_TRACE(StrCat("generation ", g));
    const GoldenGeneration& generation = model.golden.generations[g];
    std::vector<float> row;
    const auto keep = [&](int, absl::Span<float> logits) {
      row.assign(logits.begin(), logits.end());
    };
    model.runner->Reset();
    Status status = model.runner->Feed(generation.prompt, 0, false, keep);
    ASSERT_TRUE(status.ok()) << status;
    int step = 0;
    for (; step < static_cast<int>(generation.greedy.size()); ++step) {
      const TokenId best = Best(row), recorded = generation.greedy[step];
      if (best != recorded) {
        ExpectNearTie(generation, step, best, row[best] - row[recorded], near_tie);
        break;  // what follows has another prefix
      }
      status = model.runner->Feed({&best, 1}, 1, false, keep);
      ASSERT_TRUE(status.ok()) << status;
    }
    same += step == static_cast<int>(generation.greedy.size()) ? 1 : 0;
  }
  std::cout << model.golden.name << ": " << same << " of " << count
            << " greedy texts are the recorded ones\n";
}

void CheckChunking(GoldenModel& model, int count, int continuation, double logit_bound) {
  double worst = 0;
  int near_ties = 0;
  count = Limit(count, model.golden.generations.size());
  for (int g = 0; g < count; ++g) {
    const std::vector<TokenId>& prompt = model.golden.generations[g].prompt;
    std::vector<float> whole_row;
    std::vector<TokenId> whole;
    for (int chunk : {0, 1, 2, 5, 16}) {
      if (chunk >= static_cast<int>(prompt.size())) continue;
      std::vector<float> row;
      auto keep = [&](int, absl::Span<float> logits) { row.assign(logits.begin(), logits.end()); };
      model.runner->Reset();
      // Steps before the last have their logits taken, too: that must not matter.
      Status status = model.runner->Feed(prompt, chunk, false, keep);
      ASSERT_TRUE(status.ok()) << status;
      if (chunk == 0) {
        whole_row = row;
      } else {
        for (size_t t = 0; t < row.size(); ++t) {
          worst = std::max<double>(worst, std::abs(row[t] - whole_row[t]));
        }
      }
      std::vector<TokenId> drawn;
      for (int step = 0; step < continuation; ++step) {
        drawn.push_back(Best(row));
        if (chunk != 0 && drawn[step] != whole[step]) {
          ++near_ties;
          EXPECT_LE(row[drawn[step]] - row[whole[step]], kNearTie)
              << "generation " << g << " chunk " << chunk << " step " << step;
          break;  // what follows has another prefix
        }
        status = model.runner->Feed({&drawn[step], 1}, 1, false, keep);
        ASSERT_TRUE(status.ok()) << status;
      }
      if (chunk == 0) whole = drawn;
    }
  }
  std::cout << model.golden.name << ": " << count
            << " prompts cut into chunks of all, 1, 2, 5, 16: worst difference of a logit " << worst
            << ", " << near_ties << " near ties\n";
  EXPECT_LE(worst, logit_bound);
}

}  // namespace staffel
