#include "app/model_setup.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/strings.h"

namespace staffel {
Hash128 RandomHashKey() {
  std::random_device random;
  const auto word = [&] { return uint64_t{random()} << 32 | random(); };
  return {word(), word()};
}

Result<int> MaxModelLen(const ModelConfig& config, const ServeOptions& options) {
  const int trained = config.shape.context_length;
  if (options.max_model_len == 0) return trained;
  if (options.max_model_len > trained) {
    return absl::InvalidArgumentError(StrCat("--max-model-len is ", options.max_model_len,
                                             ", but the model was trained for ", trained,
                                             " tokens; give at most that"));
  }
  return options.max_model_len;
}

int LogitRows(const ServeOptions& options) {
  sched::Config config;
  config.max_sequences = options.max_num_seqs;
  return std::min(config.LogitRowsMax(), options.max_num_batched_tokens);
}

EngineOptions EngineOptionsFor(const ModelConfig& config, const ServeOptions& options,
                               int max_model_len, std::function<void()> on_delivered) {
  EngineOptions engine;
  engine.scheduler.block_size = options.block_size;
  engine.scheduler.max_model_len = max_model_len;
  engine.scheduler.max_sequences = options.max_num_seqs;
  engine.scheduler.tokens_per_step_max = options.max_num_batched_tokens;
  engine.scheduler.chunk_tokens_max =
      options.prefill_chunk > 0 ? options.prefill_chunk : options.max_num_batched_tokens;
  engine.scheduler.prefix_caching = options.enable_prefix_caching;
  engine.scheduler.hash_key = RandomHashKey();
  engine.vocab_size = config.shape.vocab;
  engine.max_queue = options.max_queue;
  engine.stall_timeout = options.stall_timeout;
  engine.on_delivered = std::move(on_delivered);
  return engine;
}

}  // namespace staffel
