// What happens in a world, drawn from its seed before it begins: sizes, policy, requests,
// cancellations, losses.
#pragma once

#include <optional>
#include <vector>

#include "engine/engine.h"
#include "staffel/request.h"

namespace staffel::sim {

struct ClientScript {
  GenerateRequest request;
  int submit_tick = 0;
  std::optional<int> cancel_tick;
  int cancel_index = -1;
  // Instead of at a tick: when that many tokens have come.
  std::optional<int> cancel_after_tokens;
};

struct LossScript {
  enum class Kind { kOutcome, kSubmit, kHeartbeat, kPlanned };
  int tick = 0;
  Kind kind = Kind::kOutcome;
  int ticks_down = 0;
  std::optional<int> give_up_tick;  // within ticks_down: requests end
  // Of the next epoch.
  int block_count = 0;
  int stages = 1, group = 1;  // ranks of each stage
};

struct Scenario {
  EngineOptions options;
  int group = 1;  // ranks of each stage in the first epoch
  std::vector<ClientScript> clients;
  std::vector<LossScript> losses;  // by tick, one after the other
  std::optional<int> drain_tick;
  int drain_ticks = 0;
  // Chances of a tick: the engine turns, a worker runs the next plan, an outcome is delivered.
  int turn_percent = 100, execute_percent = 100, deliver_percent = 100;
  // Blocks and slots suffice for all requests at once and nothing is lost: bounds of fairness hold.
  bool ample = false;
};

Scenario MakeScenario(uint64_t seed);

}  // namespace staffel::sim
