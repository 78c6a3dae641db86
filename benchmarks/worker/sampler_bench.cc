// Time to draw one token from a row of logits, by vocabulary (SmolLM2's and Gemma's) and kind of
// sampling. The row is normal with deviation 3: flatter than a language model's, so that a nucleus
// is large and top_p at its most expensive.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "worker/sampler.h"

namespace staffel {
namespace {

void Draw(benchmark::State& state, const SamplingParams& params) {
  std::vector<float> row(state.range(0));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (float& x : row) x = normal(random);
  Sampler sampler;
  DrawContext context;
  context.params = &params;
  for (auto _ : state) {
    ++context.position;
    benchmark::DoNotOptimize(sampler.Draw(absl::MakeSpan(row), context));
  }
}

SamplingParams Params(float temperature, int top_k, float top_p, int top_logprobs) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.top_logprobs = top_logprobs;
  return params;
}

void Sizes(benchmark::internal::Benchmark* b) { b->Arg(49152)->Arg(262144); }

BENCHMARK_CAPTURE(Draw, greedy, Params(0, 0, 1, -1))->Apply(Sizes);
BENCHMARK_CAPTURE(Draw, greedy_5_logprobs, Params(0, 0, 1, 5))->Apply(Sizes);
BENCHMARK_CAPTURE(Draw, temperature, Params(1, 0, 1, -1))->Apply(Sizes);
BENCHMARK_CAPTURE(Draw, top_k_40, Params(1, 40, 1, -1))->Apply(Sizes);
BENCHMARK_CAPTURE(Draw, top_p_large_nucleus, Params(1, 0, 0.9f, -1))->Apply(Sizes);
BENCHMARK_CAPTURE(Draw, top_p_small_nucleus, Params(0.3f, 0, 0.9f, -1))->Apply(Sizes);

}  // namespace
}  // namespace staffel

BENCHMARK_MAIN();
