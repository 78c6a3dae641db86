#include "plan/cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "plan/cost.h"
#include "plan/placement.h"
#include "plan/shares.h"

namespace staffel {
namespace {

// Vocabulary rows are cut at multiples of this, a whole number of any kernel's tiles.
constexpr int kVocabGranule = 64;

using Devices = absl::Span<const DeviceShape>;

Status CheckModel(const ModelShape& m) {
  for (auto [value, name] : {std::pair{m.layers, "layers"},
                             {m.hidden, "hidden size"},
                             {m.q_heads, "heads"},
                             {m.kv_heads, "KV heads"},
                             {m.head_dim, "head size"},
                             {m.ffn, "FFN columns"},
                             {m.vocab, "vocabulary"},
                             {m.ffn_granule, "FFN granule"},
                             {m.head_granule, "head granule"}}) {
    if (value <= 0) {
      return absl::InvalidArgumentError(
          StrCat("the model's ", name, " is ", value, "; it must be positive"));
    }
  }
  if (m.q_heads % m.kv_heads != 0) {
    return absl::InvalidArgumentError(StrCat(
        "the model has ", m.q_heads, " heads, not a multiple of its ", m.kv_heads, " KV heads"));
  }
  if (m.ffn % m.ffn_granule != 0) {
    return absl::InvalidArgumentError(StrCat(
        "the model has ", m.ffn, " FFN columns, not a multiple of the granule ", m.ffn_granule));
  }
  return absl::OkStatus();
}

// How the heads of a layer can be cut: `count` pieces of `heads` query heads that stand alone;
// where these are too few, each KV group into `per_group` smaller ones that share its KV head.
struct HeadUnits {
  int count = 0;
  int heads = 0;
  int per_group = 1;

  int ranks_max() const { return count * per_group; }
};

HeadUnits UnitsOf(const ModelShape& m) {
  const int group = m.q_heads / m.kv_heads;
  HeadUnits units;
  units.heads = std::lcm(group, m.head_granule);
  if (units.heads > m.q_heads || m.q_heads % units.heads != 0) units.heads = m.q_heads;
  units.count = m.q_heads / units.heads;
  if (group % m.head_granule == 0) units.per_group = group / m.head_granule;
  return units;
}

Status CheckTensorParallel(const ModelShape& m, int tensor_parallel) {
  const int head_ranks = UnitsOf(m).ranks_max();
  if (tensor_parallel > head_ranks) {
    return absl::InvalidArgumentError(
        StrCat("tensor parallel size ", tensor_parallel, " is too large: the model's ", m.q_heads,
               " heads over ", m.kv_heads, " KV heads can be cut for at most ", head_ranks,
               " ranks; choose ", head_ranks, " or less"));
  }
  if (tensor_parallel > m.ffn / m.ffn_granule) {
    return absl::InvalidArgumentError(
        StrCat("tensor parallel size ", tensor_parallel, " is too large: the model's ", m.ffn,
               " FFN columns in granules of ", m.ffn_granule, " can be cut for at most ",
               m.ffn / m.ffn_granule, " ranks"));
  }
  if (tensor_parallel > m.vocab) {
    return absl::InvalidArgumentError(StrCat("tensor parallel size ", tensor_parallel,
                                             " is larger than the vocabulary ", m.vocab));
  }
  return absl::OkStatus();
}

// Query and KV heads of each member.
void CutHeads(const ModelShape& m, absl::Span<const double> speeds, absl::Span<RankShard> members) {
  const int ranks = static_cast<int>(members.size());
  const HeadUnits units = UnitsOf(m);
  const int group = m.q_heads / m.kv_heads;
  const std::vector<double> idle(ranks, 0.0);
  std::vector<Range> q_heads;
  if (ranks <= units.count) {
    q_heads = RangesOf(Apportion(units.count, 1.0, idle, speeds), units.heads);
  } else {
    // Members go to the KV groups evenly, and share the heads of theirs.
    for (int kv = 0; kv < m.kv_heads; ++kv) {
      const int begin = ranks * kv / m.kv_heads, end = ranks * (kv + 1) / m.kv_heads;
      auto part = speeds.subspan(begin, end - begin);
      auto load = absl::MakeConstSpan(idle).subspan(begin, end - begin);
      for (Range range : RangesOf(Apportion(units.per_group, 1.0, load, part), m.head_granule)) {
        q_heads.push_back({kv * group + range.begin, kv * group + range.end});
      }
    }
  }
  for (int i = 0; i < ranks; ++i) {
    members[i].q_heads = q_heads[i];
    members[i].kv_heads = {q_heads[i].begin / group, (q_heads[i].end + group - 1) / group};
  }
}

// FFN columns of each member, by speed alone: the sum after the attention is a meeting of all, so
// that what a member lacks in heads cannot be made up for by columns; it would wait twice.
void CutFfn(const ModelShape& m, absl::Span<const double> speeds, absl::Span<RankShard> members) {
  const std::vector<double> idle(members.size(), 0.0);
  std::vector<int> shares =
      Apportion(m.ffn / m.ffn_granule, FfnMacs(m, m.ffn_granule), idle, speeds);
  std::vector<Range> ranges = RangesOf(shares, m.ffn_granule);
  for (size_t i = 0; i < members.size(); ++i) members[i].ffn = ranges[i];
}

void CutVocab(const ModelShape& m, absl::Span<const double> speeds, absl::Span<RankShard> members) {
  const int ranks = static_cast<int>(members.size());
  const int granule = m.vocab / kVocabGranule >= ranks ? kVocabGranule : 1;
  const std::vector<double> idle(ranks, 0.0);
  std::vector<Range> ranges = RangesOf(Apportion(m.vocab / granule, 1.0, idle, speeds), granule);
  ranges.back().end = m.vocab;  // with the rest of an uneven vocabulary
  std::vector<int> sizes;
  for (Range range : ranges) sizes.push_back(range.size());
  for (int i = 0; i < ranks; ++i) {
    members[i].vocab = ranges[i];
    members[i].group_vocab = sizes;
  }
}

// Shares of the members of all stages: by speed, or leaning on memory by `lean` in [0, 1].
std::vector<double> Weights(Devices devices, double lean) {
  double speeds = 0, memory = 0, memory_max = 0;
  for (const DeviceShape& d : devices) {
    speeds += d.speed;
    memory_max = std::max(memory_max, static_cast<double>(d.memory_bytes));
  }
  auto memory_of = [&](const DeviceShape& d) {
    return d.memory_bytes > 0 ? static_cast<double>(d.memory_bytes) : std::max(memory_max, 1.0);
  };
  for (const DeviceShape& d : devices) memory += memory_of(d);
  std::vector<double> weights;
  for (const DeviceShape& d : devices) {
    weights.push_back((1 - lean) * d.speed + lean * memory_of(d) * speeds / memory);
  }
  return weights;
}

// A plan with everything cut but the layers: each shard has them all.
PlacementPlan CutWithinStages(const ModelShape& m, Devices devices,
                              absl::Span<const double> weights, int tensor_parallel) {
  PlacementPlan plan;
  const int stages = static_cast<int>(devices.size()) / tensor_parallel;
  plan.ranks.resize(devices.size());
  for (int stage = 0; stage < stages; ++stage) {
    const int first = stage * tensor_parallel;
    auto members = absl::MakeSpan(plan.ranks).subspan(first, tensor_parallel);
    auto shares = weights.subspan(first, tensor_parallel);
    std::vector<int> group(tensor_parallel);
    std::iota(group.begin(), group.end(), first);
    for (int i = 0; i < tensor_parallel; ++i) {
      RankShard& shard = members[i];
      shard.rank = first + i;
      shard.stage = stage;
      shard.device = devices[shard.rank].device;
      shard.layers = {0, m.layers};
      shard.group = group;
      shard.first_stage = stage == 0;
      shard.last_stage = stage == stages - 1;
      if (!shard.first_stage) shard.previous_rank = shard.rank - tensor_parallel;
      if (!shard.last_stage) shard.next_rank = shard.rank + tensor_parallel;
    }
    CutHeads(m, shares, members);
    CutFfn(m, shares, members);
    if (stage == stages - 1) CutVocab(m, shares, members);
    plan.tensor_groups.push_back(std::move(group));
  }
  return plan;
}

int64_t NeededBytes(const ModelShape& m, const RankShard& shard, int context_tokens) {
  return WeightBytes(m, shard) + KvBytes(m, shard, context_tokens);
}

// Layers that every member of the group has memory for.
int LayersMax(const ModelShape& m, Devices devices, const PlacementPlan& plan,
              const std::vector<int>& group, int context_tokens) {
  int layers_max = m.layers;
  for (int rank : group) {
    const int64_t memory = devices[rank].memory_bytes;
    if (memory <= 0) continue;
    RankShard shard = plan.ranks[rank];
    // Bytes grow with the layers: search the largest number that fits.
    int fits = 0, exceeds = layers_max + 1;
    while (exceeds - fits > 1) {
      const int middle = (fits + exceeds) / 2;
      shard.layers = {0, middle};
      (NeededBytes(m, shard, context_tokens) <= memory ? fits : exceeds) = middle;
    }
    layers_max = fits;
  }
  return layers_max;
}

// Layers of each stage, by the weight of its group; the last one also computes the logits.
// Whether memory suffices (limited) or without regard to it.
bool CutLayers(const ModelShape& m, Devices devices, absl::Span<const double> weights,
               int context_tokens, bool limited, PlacementPlan& plan) {
  const int stages = static_cast<int>(plan.tensor_groups.size());
  std::vector<double> speeds(stages, 0.0), load(stages, 0.0);
  std::vector<int> limits(stages, m.layers);
  for (int stage = 0; stage < stages; ++stage) {
    const std::vector<int>& group = plan.tensor_groups[stage];
    for (int rank : group) speeds[stage] += weights[rank];
    if (limited) limits[stage] = LayersMax(m, devices, plan, group, context_tokens);
  }
  load.back() = 1.0 * m.vocab * m.hidden;
  const double layer = HeadGroupMacs(m, m.q_heads, m.kv_heads) + FfnMacs(m, m.ffn);
  const auto counts = ApportionWithin(m.layers, layer, load, speeds, limits);
  if (!counts.has_value()) return false;
  const std::vector<Range> layers = RangesOf(*counts, 1);
  for (RankShard& shard : plan.ranks) shard.layers = layers[shard.stage];
  return true;
}

// Says which rank lacks memory most in the plan by speed.
Status MemoryRefusal(const ModelShape& m, Devices devices, const PlacementPlan& plan,
                     int context_tokens) {
  const RankShard* worst = nullptr;
  int64_t worst_lack = std::numeric_limits<int64_t>::min();
  for (const RankShard& shard : plan.ranks) {
    if (devices[shard.rank].memory_bytes <= 0) continue;
    const int64_t lack = NeededBytes(m, shard, context_tokens) - devices[shard.rank].memory_bytes;
    if (lack > worst_lack) {
      worst = &shard;
      worst_lack = lack;
    }
  }
  const DeviceShape& device = devices[worst->rank];
  std::string needs = StrCat("needs ", WeightBytes(m, *worst) >> 20, " MiB for weights");
  if (context_tokens > 0) {
    StrAppend(needs, " and ", KvBytes(m, *worst, context_tokens) >> 20, " MiB for the KV of ",
              context_tokens, " tokens");
  }
  return absl::ResourceExhaustedError(
      StrCat("rank ", worst->rank, " of ", plan.ranks.size(), " on ", device.device.kind, ":",
             device.device.index, " of host \"", device.host, "\" ", needs, ", but has ",
             device.memory_bytes >> 20,
             " MiB of memory; use more ranks, a smaller quantisation or a shorter "
             "--max-model-len"));
}

}  // namespace

Status CheckShapes(const ModelShape& m, const ClusterShape& cluster) {
  STAFFEL_RETURN_IF_ERROR(CheckModel(m));
  if (cluster.devices.empty()) {
    return absl::InvalidArgumentError("there is no device to place the model on");
  }
  for (const DeviceShape& device : cluster.devices) {
    if (!(device.speed > 0) || !std::isfinite(device.speed)) {
      return absl::InvalidArgumentError(
          StrCat("device ", device.device.kind, ":", device.device.index, " on host \"",
                 device.host, "\" has the speed ", device.speed, "; it must be positive"));
    }
  }
  return absl::OkStatus();
}

int TensorParallelMax(const ModelShape& m) {
  return std::min({UnitsOf(m).ranks_max(), m.ffn / m.ffn_granule, m.vocab});
}

Status CheckLayout(const ModelShape& m, int tensor_parallel, int pipeline_parallel) {
  if (tensor_parallel < 0 || pipeline_parallel < 0) {
    return absl::InvalidArgumentError(StrCat("tensor parallel size ", tensor_parallel,
                                             " and pipeline parallel size ", pipeline_parallel,
                                             " must not be negative (0 chooses)"));
  }
  STAFFEL_RETURN_IF_ERROR(CheckModel(m));
  STAFFEL_RETURN_IF_ERROR(CheckTensorParallel(m, tensor_parallel));
  if (pipeline_parallel > m.layers) {
    return absl::InvalidArgumentError(StrCat("pipeline parallel size ", pipeline_parallel,
                                             " is larger than the model's ", m.layers, " layers"));
  }
  return absl::OkStatus();
}

Result<PlacementPlan> Cut(const ModelShape& m, Devices devices, int tensor_parallel,
                          int pipeline_parallel, int context_tokens) {
  STAFFEL_CHECK_EQ(static_cast<size_t>(tensor_parallel) * pipeline_parallel, devices.size());
  // By speed alone if memory allows, else ever more by memory.
  for (double lean : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const std::vector<double> weights = Weights(devices, lean);
    PlacementPlan plan = CutWithinStages(m, devices, weights, tensor_parallel);
    if (CutLayers(m, devices, weights, context_tokens, /*limited=*/true, plan)) return plan;
  }
  const std::vector<double> weights = Weights(devices, 0);
  PlacementPlan plan = CutWithinStages(m, devices, weights, tensor_parallel);
  CutLayers(m, devices, weights, context_tokens, /*limited=*/false, plan);
  return MemoryRefusal(m, devices, plan, context_tokens);
}

int64_t WeightBytes(const ModelShape& m, const RankShard& shard) {
  const double whole = HeadGroupMacs(m, m.q_heads, m.kv_heads) + FfnMacs(m, m.ffn);
  const double part =
      HeadGroupMacs(m, shard.q_heads.size(), shard.kv_heads.size()) + FfnMacs(m, shard.ffn.size());
  double bytes = part / whole * static_cast<double>(m.layer_bytes) * shard.layers.size();
  const int64_t head_bytes = m.head_bytes > 0 ? m.head_bytes : m.embedding_bytes;
  const bool holds_embedding = shard.first_stage;
  if (holds_embedding) bytes += static_cast<double>(m.embedding_bytes);
  // Rows of a tied projection are in memory already where the whole embedding is.
  if (shard.last_stage && !(holds_embedding && m.head_bytes == 0)) {
    bytes += static_cast<double>(head_bytes) * shard.vocab.size() / m.vocab;
  }
  return static_cast<int64_t>(bytes);
}

int64_t KvBytes(const ModelShape& m, const RankShard& shard, int64_t tokens) {
  constexpr int64_t kElementBytes = 2;
  return 2 * kElementBytes * shard.layers.size() * shard.kv_heads.size() * m.head_dim * tokens;
}

}  // namespace staffel
