// What the options of a model mean for its parts: the same for `serve` and for a cluster.
#pragma once

#include <functional>

#include "app/serve_options.h"
#include "base/siphash.h"
#include "engine/engine.h"
#include "model/config.h"
#include "staffel/status.h"

namespace staffel {

// Tokens of prompt + answer. InvalidArgument: --max-model-len is above what the model was trained
// for.
Result<int> MaxModelLen(const ModelConfig& config, const ServeOptions& options);

// Secret bits for a hash that clients must not steer.
Hash128 RandomHashKey();

// Rows of logits that the scheduler asks for at most in one step.
int LogitRows(const ServeOptions& options);

// The engine's part; block_count and on_loss are the caller's. `on_delivered`: Front::WakeStreams.
EngineOptions EngineOptionsFor(const ModelConfig& config, const ServeOptions& options,
                               int max_model_len, std::function<void()> on_delivered);

}  // namespace staffel
