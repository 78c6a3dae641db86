#include "cluster/choice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "plan/cost.h"

namespace staffel::cluster {
namespace {

// Cost that keeping shards where they are is worth: a load takes seconds to minutes.
constexpr double kKeepWorth = 1.1;
// A worker may take over a shard cut for one that is faster by this much.
constexpr double kSpeedSlack = 0.8;

ClusterShape ShapeOf(const std::vector<Candidate>& candidates, const LinkShape& link) {
  ClusterShape cluster;
  cluster.link = link;
  for (const Candidate& candidate : candidates) {
    cluster.devices.push_back(candidate.device);
    cluster.machines.push_back(candidate.machine);
  }
  return cluster;
}

// Candidates by rank: those of `seats` in their ranks, the holes filled in the order of joining,
// from the machine of the rest of the tensor group first. Nothing if nobody has a seat or too few
// are there.
std::optional<std::vector<int>> Seat(const Seats& seats, const std::vector<Candidate>& candidates) {
  if (candidates.size() < seats.names.size()) return std::nullopt;
  std::vector<int> order(seats.names.size(), -1);
  std::vector<bool> taken(candidates.size(), false);
  bool any = false;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (taken[i] || candidates[i].name != seats.names[rank]) continue;
      order[rank] = static_cast<int>(i);
      taken[i] = any = true;
      break;
    }
  }
  if (!any) return std::nullopt;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    if (order[rank] >= 0) continue;
    auto beside = [&](size_t i) {
      for (int peer : seats.plan.ranks[rank].group) {
        if (order[peer] >= 0 && candidates[order[peer]].machine == candidates[i].machine)
          return true;
      }
      return false;
    };
    int best = -1;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (taken[i]) continue;
      if (best < 0 || (beside(i) && !beside(best))) best = static_cast<int>(i);
    }
    order[rank] = best;
    taken[best] = true;
  }
  return order;
}

// Whether the shards of `seats` can stay as they are with the candidates in that order.
bool ShardsFit(const ModelShape& model, const Seats& seats, int context_tokens,
               const std::vector<DeviceShape>& devices) {
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const RankShard& shard = seats.plan.ranks[rank];
    const int64_t needed = WeightBytes(model, shard) + KvBytes(model, shard, context_tokens);
    if (devices[rank].memory_bytes > 0 && needed > devices[rank].memory_bytes) return false;
    if (devices[rank].device.kind != seats.devices[rank].device.kind) return false;
    if (devices[rank].speed < kSpeedSlack * seats.devices[rank].speed) return false;
  }
  return true;
}

std::optional<Placement> PlaceInSeats(const ModelShape& model, const LinkShape& link,
                                      const PlacementPolicy& policy, const Seats& seats,
                                      const std::vector<Candidate>& candidates) {
  const std::optional<std::vector<int>> order = Seat(seats, candidates);
  if (!order) return std::nullopt;
  std::vector<Candidate> seated;
  for (int i : *order) seated.push_back(candidates[i]);
  const ClusterShape cluster = ShapeOf(seated, link);
  Placement placement;
  if (ShardsFit(model, seats, policy.context_tokens, cluster.devices)) {
    placement.plan = seats.plan;
    for (RankShard& shard : placement.plan.ranks) {
      shard.device = cluster.devices[shard.rank].device;
    }
    placement.cost_s =
        PlacementCost(model, placement.plan, cluster.devices, cluster.machines, link);
  } else {
    Result<Placement> placed = PlaceInOrder(
        model, cluster,
        {TensorParallel(seats.plan), PipelineParallel(seats.plan), 0, policy.context_tokens});
    if (!placed.ok()) return std::nullopt;
    placement = *std::move(placed);
  }
  placement.devices = *order;
  return placement;
}

}  // namespace

Result<Choice> Choose(const ModelShape& model, const LinkShape& link, const PlacementPolicy& policy,
                      const std::vector<Candidate>& candidates,
                      const std::map<std::pair<int, int>, Seats>& seats) {
  STAFFEL_ASSIGN_OR_RETURN(Placement placement,
                           ChoosePlacement(model, ShapeOf(candidates, link), policy));
  const auto held = seats.find({TensorParallel(placement.plan), PipelineParallel(placement.plan)});
  if (held != seats.end()) {
    std::optional<Placement> kept = PlaceInSeats(model, link, policy, held->second, candidates);
    if (kept && kept->cost_s <= kKeepWorth * placement.cost_s) placement = *std::move(kept);
  }
  Choice choice;
  for (int i : placement.devices) {
    choice.workers.push_back(candidates[i].worker);
    choice.names.push_back(candidates[i].name);
    choice.devices.push_back(candidates[i].device);
  }
  choice.placement = std::move(placement);
  return choice;
}

bool SameShards(const PlacementPlan& a, const PlacementPlan& b) {
  return std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(),
                    [](const RankShard& x, const RankShard& y) {
                      return x.layers == y.layers && x.q_heads == y.q_heads &&
                             x.kv_heads == y.kv_heads && x.ffn == y.ffn && x.vocab == y.vocab &&
                             x.group == y.group;
                    });
}

int TensorParallel(const PlacementPlan& plan) {
  return plan.tensor_groups.empty() ? 0 : static_cast<int>(plan.tensor_groups[0].size());
}

int PipelineParallel(const PlacementPlan& plan) {
  return static_cast<int>(plan.tensor_groups.size());
}

}  // namespace staffel::cluster
