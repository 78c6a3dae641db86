#include "plan/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "plan/cost.h"
#include "plan/cut.h"

namespace staffel {
namespace {

constexpr int kSelectionsMax = 256;
// A further device is a further thing that can fail: it must bring that much.
constexpr double kWorthOneMore = 1.02;

using Selection = std::vector<int>;  // indices of devices, ascending

const std::string& MachineOf(const ClusterShape& cluster, int device) {
  return cluster.machines.empty() ? cluster.devices[device].host : cluster.machines[device];
}

// Devices of a selection in the order of the ranks: a stage's group from one machine where its
// devices suffice, else from as few as possible. Machines come in the order of their first device.
std::vector<int> Arrange(const ClusterShape& cluster, const Selection& selection,
                         int tensor_parallel) {
  std::vector<std::pair<std::string, std::vector<int>>> machines;  // devices left, last first
  for (int device : selection) {
    const std::string& name = MachineOf(cluster, device);
    auto machine = std::find_if(machines.begin(), machines.end(),
                                [&](const auto& entry) { return entry.first == name; });
    if (machine == machines.end()) machine = machines.insert(machine, {name, {}});
    machine->second.push_back(device);
  }
  for (auto& [name, devices] : machines) std::reverse(devices.begin(), devices.end());

  std::vector<int> order;
  while (order.size() < selection.size()) {
    for (size_t missing = tensor_parallel; missing > 0;) {
      auto machine = std::find_if(machines.begin(), machines.end(), [&](const auto& entry) {
        return entry.second.size() >= missing;
      });
      if (machine == machines.end()) {
        machine = std::max_element(machines.begin(), machines.end(), [](auto& a, auto& b) {
          return a.second.size() < b.second.size();
        });
      }
      for (; missing > 0 && !machine->second.empty(); --missing) {
        order.push_back(machine->second.back());
        machine->second.pop_back();
      }
    }
  }
  return order;
}

Result<Placement> PlaceOn(const ModelShape& model, const ClusterShape& cluster,
                          std::vector<int> order, int tensor_parallel, int pipeline_parallel,
                          int context_tokens) {
  std::vector<DeviceShape> devices;
  std::vector<std::string> machines;
  for (int device : order) {
    devices.push_back(cluster.devices[device]);
    machines.push_back(MachineOf(cluster, device));
  }
  STAFFEL_ASSIGN_OR_RETURN(PlacementPlan plan,
                           Cut(model, devices, tensor_parallel, pipeline_parallel, context_tokens));
  const double cost_s = PlacementCost(model, plan, devices, machines, cluster.link);
  return Placement{std::move(plan), std::move(order), cost_s};
}

// Devices that no cost tells apart.
std::vector<std::vector<int>> KindsOf(const ClusterShape& cluster) {
  std::map<std::tuple<std::string, double, int64_t>, size_t> kinds;
  std::vector<std::vector<int>> devices_by_kind;
  for (int i = 0; i < static_cast<int>(cluster.devices.size()); ++i) {
    const DeviceShape& device = cluster.devices[i];
    auto [kind, is_new] = kinds.try_emplace(
        {MachineOf(cluster, i), device.speed, device.memory_bytes}, devices_by_kind.size());
    if (is_new) devices_by_kind.emplace_back();
    devices_by_kind[kind->second].push_back(i);
  }
  return devices_by_kind;
}

// Every selection up to exchange of equal devices; nothing if they are too many.
std::optional<std::vector<Selection>> AllSelections(const std::vector<std::vector<int>>& kinds) {
  size_t count = 1;
  for (const std::vector<int>& kind : kinds) {
    count *= kind.size() + 1;
    if (count > kSelectionsMax) return std::nullopt;
  }
  std::vector<Selection> selections = {{}};
  for (const std::vector<int>& kind : kinds) {
    const size_t before = selections.size();
    for (size_t taken = 1; taken <= kind.size(); ++taken) {
      for (size_t i = 0; i < before; ++i) {
        selections.push_back(selections[i]);
        selections.back().insert(selections.back().end(), kind.begin(), kind.begin() + taken);
      }
    }
  }
  selections.erase(selections.begin());
  for (Selection& selection : selections) std::sort(selection.begin(), selection.end());
  return selections;
}

// Each machine alone, and of every number the fastest devices and those with most memory.
std::vector<Selection> SomeSelections(const ClusterShape& cluster) {
  const int count = static_cast<int>(cluster.devices.size());
  std::map<std::string, Selection> machines;
  for (int i = 0; i < count; ++i) machines[MachineOf(cluster, i)].push_back(i);
  std::vector<Selection> selections;
  for (auto& [name, selection] : machines) selections.push_back(std::move(selection));

  auto add_best_of_every_number = [&](auto better) {
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return better(cluster.devices[a], cluster.devices[b]); });
    for (int taken = 1; taken <= count; ++taken) {
      selections.emplace_back(order.begin(), order.begin() + taken);
      std::sort(selections.back().begin(), selections.back().end());
    }
  };
  add_best_of_every_number(
      [](const DeviceShape& a, const DeviceShape& b) { return a.speed > b.speed; });
  auto memory = [](const DeviceShape& device) {
    return device.memory_bytes > 0 ? device.memory_bytes : std::numeric_limits<int64_t>::max();
  };
  add_best_of_every_number(
      [&](const DeviceShape& a, const DeviceShape& b) { return memory(a) > memory(b); });
  return selections;
}

std::vector<Selection> SelectionsOf(const ClusterShape& cluster) {
  std::vector<Selection> selections =
      AllSelections(KindsOf(cluster)).value_or(std::vector<Selection>());
  if (selections.empty()) selections = SomeSelections(cluster);
  // Few devices first, then those that come first.
  std::sort(selections.begin(), selections.end(), [](const Selection& a, const Selection& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  selections.erase(std::unique(selections.begin(), selections.end()), selections.end());
  return selections;
}

Status CheckPolicy(const ModelShape& model, const ClusterShape& cluster,
                   const PlacementPolicy& policy) {
  STAFFEL_RETURN_IF_ERROR(CheckShapes(model, cluster));
  STAFFEL_RETURN_IF_ERROR(CheckLayout(model, policy.tensor_parallel, policy.pipeline_parallel));
  const int64_t tp = policy.tensor_parallel, pp = policy.pipeline_parallel;
  const int64_t needed = std::max<int64_t>(tp, 1) * std::max<int64_t>(pp, 1);
  const int64_t there = static_cast<int64_t>(cluster.devices.size());
  if (needed > there) {
    return absl::InvalidArgumentError(StrCat("tensor parallel size ", tp,
                                             " times pipeline parallel size ", pp, " needs ",
                                             needed, " devices; there are ", there));
  }
  if (policy.devices_max > 0 && needed > policy.devices_max) {
    return absl::InvalidArgumentError(
        StrCat("tensor parallel size ", tp, " times pipeline parallel size ", pp, " needs ", needed,
               " devices; at most ", policy.devices_max, " are allowed"));
  }
  return absl::OkStatus();
}

// fewest: stops at the first number of devices with which anything can be placed.
Result<Placement> Search(const ModelShape& model, const ClusterShape& cluster,
                         const PlacementPolicy& policy, bool fewest) {
  STAFFEL_RETURN_IF_ERROR(CheckPolicy(model, cluster, policy));
  STAFFEL_CHECK(cluster.machines.empty() || cluster.machines.size() == cluster.devices.size());
  const int tp_max = TensorParallelMax(model);
  std::optional<Placement> best;
  Status refusal;
  for (const Selection& selection : SelectionsOf(cluster)) {
    const int count = static_cast<int>(selection.size());
    const bool more = best && best->devices.size() < selection.size();
    if ((policy.devices_max > 0 && count > policy.devices_max) || (fewest && more)) break;
    // Wide groups first: they win ties.
    for (int tp = std::min(tp_max, count); tp >= 1; --tp) {
      const int pp = count / tp;
      if (tp * pp != count || pp > model.layers) continue;
      if (policy.tensor_parallel > 0 && policy.tensor_parallel != tp) continue;
      if (policy.pipeline_parallel > 0 && policy.pipeline_parallel != pp) continue;
      Result<Placement> placement =
          PlaceOn(model, cluster, Arrange(cluster, selection, tp), tp, pp, policy.context_tokens);
      if (!placement.ok()) {
        refusal = placement.status();
        continue;
      }
      const double worth = more ? kWorthOneMore : 1.0;
      if (!best || placement->cost_s * worth < best->cost_s) best = *std::move(placement);
    }
  }
  if (best) return *std::move(best);
  if (!refusal.ok()) return refusal;
  return absl::InvalidArgumentError(StrCat("no layout with tensor parallel size ",
                                           policy.tensor_parallel, " and pipeline parallel size ",
                                           policy.pipeline_parallel, " (0: any) uses ",
                                           cluster.devices.size(), " devices"));
}

}  // namespace

Result<Placement> PlaceInOrder(const ModelShape& model, const ClusterShape& cluster,
                               const PlacementPolicy& policy) {
  STAFFEL_RETURN_IF_ERROR(CheckPolicy(model, cluster, policy));
  if (policy.tensor_parallel == 0 || policy.pipeline_parallel == 0) {
    return absl::InvalidArgumentError("a placement in order needs both parallel sizes");
  }
  std::vector<int> order(policy.tensor_parallel * policy.pipeline_parallel);
  std::iota(order.begin(), order.end(), 0);
  return PlaceOn(model, cluster, std::move(order), policy.tensor_parallel, policy.pipeline_parallel,
                 policy.context_tokens);
}

Result<Placement> ChoosePlacement(const ModelShape& model, const ClusterShape& cluster,
                                  const PlacementPolicy& policy) {
  return Search(model, cluster, policy, /*fewest=*/false);
}

Result<int> DevicesNeeded(const ModelShape& model, const ClusterShape& cluster,
                          const PlacementPolicy& policy) {
  STAFFEL_ASSIGN_OR_RETURN(const Placement placement,
                           Search(model, cluster, policy, /*fewest=*/true));
  return static_cast<int>(placement.devices.size());
}

Result<PlacementPlan> MakePlacement(const ModelShape& model, const ClusterShape& cluster,
                                    const PlacementPolicy& policy) {
  const bool open = policy.tensor_parallel == 0 || policy.pipeline_parallel == 0;
  STAFFEL_ASSIGN_OR_RETURN(Placement placement, open ? ChoosePlacement(model, cluster, policy)
                                                     : PlaceInOrder(model, cluster, policy));
  return std::move(placement.plan);
}

}  // namespace staffel
