#include "tests/sim/scenario.h"

#include <algorithm>
#include <memory>

#include "tests/sim/fake_model.h"

namespace staffel::sim {
namespace {

// Prompts share prefixes: each is a piece of one of a few streams and a tail of its own, or an
// earlier prompt again.
std::vector<TokenId> MakePrompt(Random& random, const std::vector<ClientScript>& earlier,
                                int length_max) {
  if (!earlier.empty() && random.Percent(20)) {
    const auto& other = earlier[random.Between(0, static_cast<int>(earlier.size()) - 1)];
    return other.request.prompt;
  }
  const int length = random.Percent(60) ? random.Between(1, std::min(12, length_max))
                                        : random.Between(1, length_max);
  const int shared = random.Between(0, length);
  Random stream(random.Between(0, 1) + 1000);
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) {
    prompt.push_back((i < shared ? stream : random).Between(0, kVocabSize - 1));
  }
  return prompt;
}

ClientScript MakeClient(Random& random, uint64_t id, int model_len, int last_tick,
                        const std::vector<ClientScript>& earlier) {
  ClientScript client;
  GenerateRequest& request = client.request;
  request.id = RequestId(id);
  request.prompt = MakePrompt(random, earlier, std::min(60, model_len + 1));
  request.n = random.Percent(70) ? 1 : random.Between(2, 4);
  request.max_tokens = random.Percent(5)    ? 0
                       : random.Percent(80) ? random.Between(1, 12)
                                            : random.Between(1, 60);
  request.min_tokens = random.Percent(20) ? random.Between(0, request.max_tokens) : 0;
  for (TokenId token = 0; token < kVocabSize; ++token) {
    if (random.Percent(2)) request.stop_tokens.push_back(token);
  }
  request.priority = random.Percent(80) ? 0 : random.Between(-1, 1);
  if (random.Percent(40))
    request.cache_salt = std::string(1, static_cast<char>('a' + random.Between(0, 2)));
  request.sampling.seed = id;
  if (random.Percent(12)) request.sampling.prompt_logprobs = 0;
  if (random.Percent(30)) {
    request.sampling.grammar = std::make_shared<const grammar::GrammarSpec>();
  }
  if (random.Percent(8)) {
    request.pooling = random.Percent(50) ? Pooling::kLast : Pooling::kMean;
    request.n = 1;
    request.max_tokens = request.min_tokens = 0;
  }
  client.submit_tick = random.Between(0, last_tick);
  if (random.Percent(15)) client.cancel_tick = client.submit_tick + random.Between(0, 30);
  if (random.Percent(8)) client.cancel_after_tokens = random.Between(1, 8);
  if (random.Percent(30)) client.cancel_index = random.Between(0, request.n - 1);
  return client;
}

void MakeSizes(Random& random, sched::Config& config) {
  config.block_size = random.Between(1, 8);
  switch (random.Between(0, 2)) {
    case 0:
      config.block_count = random.Between(1, 10);
      break;
    case 1:
      config.block_count = random.Between(8, 40);
      break;
    default:
      config.block_count = random.Between(60, 300);
  }
  config.max_model_len = random.Between(8, 110);
  config.max_sequences = random.Between(1, 8);
  config.prefill_reserve_tokens = random.Between(1, 8);
  config.tokens_per_step_max =
      config.max_sequences + config.prefill_reserve_tokens + random.Between(0, 40);
  config.chunk_tokens_max = random.Between(1, 40);
  config.prefill_beside_decodes_min = random.Between(1, 4);
  config.prefill_beside_decodes = config.prefill_beside_decodes_min + random.Between(0, 12);
  config.step_stretch_percent = random.Percent(50) ? 0 : random.Between(100, 600);
  config.oldest_share_percent = random.Between(20, 100);
  config.prompt_logprob_rows_max = random.Between(1, 20);
  config.overtakes_max = random.Between(0, 6);
  config.prefix_caching = random.Percent(85);
}

void MakeLosses(Random& random, Scenario& scenario, int last_tick) {
  const int count = random.Between(1, 3);
  int tick = 0;
  for (int i = 0; i < count; ++i) {
    LossScript loss;
    tick += random.Between(1, last_tick + 20);
    loss.tick = tick;
    loss.kind = static_cast<LossScript::Kind>(random.Between(0, 2));
    loss.ticks_down = random.Between(0, 15);
    tick += loss.ticks_down + 1;
    const int blocks = scenario.options.scheduler.block_count;
    loss.block_count = random.Percent(60) ? blocks : random.Between(1, 2 * blocks);
    scenario.losses.push_back(loss);
  }
  scenario.options.heal = random.Percent(90);
}

// Everything fits at once: no request waits for another but for its share of the steps.
void MakeAmple(Scenario& scenario) {
  sched::Config& config = scenario.options.scheduler;
  int blocks = 0, sequences = 0;
  for (const ClientScript& client : scenario.clients) {
    const int tokens =
        std::min<int>(config.max_model_len,
                      static_cast<int>(client.request.prompt.size()) + client.request.max_tokens);
    blocks += client.request.n * (tokens / config.block_size + 3);
    sequences += client.request.n;
  }
  config.block_count = blocks;
  config.max_sequences = sequences;
  config.tokens_per_step_max = sequences + config.prefill_reserve_tokens + 40;
  scenario.ample = true;
}

// One stage of one rank, mostly; else a pipeline, a tensor group, or both.
void MakeLayout(Random& random, int& stages, int& group) {
  stages = random.Percent(50) ? 1 : random.Between(2, 3);
  group = random.Percent(80) ? 1 : 2;
}

void MakeLayouts(Random& random, Scenario& scenario) {
  EngineOptions& options = scenario.options;
  MakeLayout(random, options.stages, scenario.group);
  options.ranks = options.stages * scenario.group;
  sched::Config& config = options.scheduler;
  config.micro_batch_tokens_min = random.Between(config.prefill_beside_decodes_min, 40);
  for (LossScript& loss : scenario.losses) {
    if (random.Percent(20)) loss.kind = LossScript::Kind::kPlanned;
    if (random.Percent(15)) loss.give_up_tick = loss.tick + random.Between(0, loss.ticks_down);
    loss.stages = options.stages;
    loss.group = scenario.group;
    if (random.Percent(70)) MakeLayout(random, loss.stages, loss.group);
  }
}

}  // namespace

Scenario MakeScenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  EngineOptions& options = scenario.options;
  MakeSizes(random, options.scheduler);
  options.vocab_size = kVocabSize;
  options.depth = random.Between(1, 3);
  options.max_queue = random.Percent(80) ? 200 : random.Between(1, 6);
  options.submits_per_turn_max = random.Between(1, 8);
  options.check_invariants = true;
  const int count = random.Between(1, 12);
  const int last_tick = random.Percent(30) ? 0 : random.Between(0, 80);
  for (int i = 1; i <= count; ++i) {
    scenario.clients.push_back(MakeClient(random, static_cast<uint64_t>(i),
                                          options.scheduler.max_model_len, last_tick,
                                          scenario.clients));
  }
  std::stable_sort(scenario.clients.begin(), scenario.clients.end(),
                   [](const auto& a, const auto& b) { return a.submit_tick < b.submit_tick; });
  if (random.Percent(25)) {
    MakeAmple(scenario);
  } else if (random.Percent(30)) {
    MakeLosses(random, scenario, last_tick);
  }
  if (random.Percent(8)) {
    scenario.drain_tick = random.Between(0, last_tick + 20);
    scenario.drain_ticks = random.Between(0, 60);
  }
  scenario.turn_percent = random.Percent(50) ? 100 : random.Between(30, 100);
  scenario.execute_percent = random.Percent(50) ? 100 : random.Between(30, 100);
  scenario.deliver_percent = random.Percent(50) ? 100 : random.Between(30, 100);
  MakeLayouts(random, scenario);
  return scenario;
}

}  // namespace staffel::sim
