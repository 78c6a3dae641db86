#include "plan/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "base/strings.h"
#include "plan/shares.h"

namespace staffel {
namespace {

// Vocabulary rows are cut at multiples of this, a whole number of any kernel's tiles.
constexpr int kVocabGranule = 64;

using Devices = absl::Span<const DeviceShape>;

std::vector<double> Speeds(Devices devices) {
  std::vector<double> speeds;
  for (const DeviceShape& device : devices) speeds.push_back(device.speed);
  return speeds;
}

// Multiply-adds of a token in one layer, by weights.
double HeadGroupCost(const ModelShape& m, double q_heads, double kv_heads) {
  return 2.0 * (q_heads + kv_heads) * m.head_dim * m.hidden;
}
double FfnCost(const ModelShape& m, double columns) { return 3.0 * columns * m.hidden; }

Status CheckShapes(const ModelShape& m, const ClusterShape& cluster) {
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

// The largest tensor group that the model can be cut for.
int TensorParallelMax(const ModelShape& m) {
  return std::min({UnitsOf(m).ranks_max(), m.ffn / m.ffn_granule, m.vocab});
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

// FFN columns of each member: what evens out its share of the heads.
void CutFfn(const ModelShape& m, absl::Span<const double> speeds, absl::Span<RankShard> members) {
  std::vector<double> load;
  for (const RankShard& member : members) {
    load.push_back(HeadGroupCost(m, member.q_heads.size(), member.kv_heads.size()));
  }
  std::vector<int> shares =
      Apportion(m.ffn / m.ffn_granule, FfnCost(m, m.ffn_granule), load, speeds);
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

// Layers of each stage, by the speed of its group; the last one also computes the logits.
std::vector<Range> CutLayers(const ModelShape& m, Devices devices, int tensor_parallel,
                             int stages) {
  std::vector<double> speeds, load(stages, 0.0);
  for (int stage = 0; stage < stages; ++stage) {
    double speed = 0;
    for (const DeviceShape& d : devices.subspan(stage * tensor_parallel, tensor_parallel)) {
      speed += d.speed;
    }
    speeds.push_back(speed);
  }
  load.back() = 1.0 * m.vocab * m.hidden;
  double layer = HeadGroupCost(m, m.q_heads, m.kv_heads) + FfnCost(m, m.ffn);
  return RangesOf(Apportion(m.layers, layer, load, speeds), 1);
}

PlacementPlan Cut(const ModelShape& m, Devices devices, int tensor_parallel, int stages) {
  PlacementPlan plan;
  std::vector<Range> layers = CutLayers(m, devices, tensor_parallel, stages);
  plan.ranks.resize(tensor_parallel * stages);
  for (int stage = 0; stage < stages; ++stage) {
    const int first = stage * tensor_parallel;
    auto members = absl::MakeSpan(plan.ranks).subspan(first, tensor_parallel);
    std::vector<double> speeds = Speeds(devices.subspan(first, tensor_parallel));
    std::vector<int> group(tensor_parallel);
    std::iota(group.begin(), group.end(), first);
    for (int i = 0; i < tensor_parallel; ++i) {
      RankShard& shard = members[i];
      shard.rank = first + i;
      shard.stage = stage;
      shard.device = devices[shard.rank].device;
      shard.layers = layers[stage];
      shard.group = group;
      shard.first_stage = stage == 0;
      shard.last_stage = stage == stages - 1;
      if (!shard.first_stage) shard.previous_rank = shard.rank - tensor_parallel;
      if (!shard.last_stage) shard.next_rank = shard.rank + tensor_parallel;
    }
    CutHeads(m, speeds, members);
    CutFfn(m, speeds, members);
    if (stage == stages - 1) CutVocab(m, speeds, members);
    plan.tensor_groups.push_back(std::move(group));
  }
  return plan;
}

Status CheckMemory(const ModelShape& m, Devices devices, const PlacementPlan& plan) {
  for (const RankShard& shard : plan.ranks) {
    const DeviceShape& device = devices[shard.rank];
    const int64_t weight_bytes = WeightBytes(m, shard);
    if (device.memory_bytes > 0 && weight_bytes > device.memory_bytes) {
      return absl::ResourceExhaustedError(StrCat(
          "rank ", shard.rank, " on ", device.device.kind, ":", device.device.index, " needs ",
          weight_bytes >> 20, " MiB for weights, but has ", device.memory_bytes >> 20,
          " MiB of memory; use more ranks or a smaller quantisation"));
    }
  }
  return absl::OkStatus();
}

// Of the layouts that the policy leaves open: the one that fits and uses the most devices, with the
// widest groups among those.
Result<PlacementPlan> Choose(const ModelShape& m, Devices devices, const PlacementPolicy& policy) {
  const int device_count = static_cast<int>(devices.size());
  const int tp_max = policy.tensor_parallel > 0 ? policy.tensor_parallel
                                                : std::min(TensorParallelMax(m), device_count);
  const int pp_max =
      policy.pipeline_parallel > 0 ? policy.pipeline_parallel : std::min(m.layers, device_count);
  PlacementPlan best;
  Status refusal;
  for (int tp = policy.tensor_parallel > 0 ? tp_max : 1; tp <= tp_max; ++tp) {
    for (int pp = policy.pipeline_parallel > 0 ? pp_max : 1; pp <= pp_max; ++pp) {
      if (tp * pp > device_count || tp * pp < static_cast<int>(best.ranks.size())) continue;
      PlacementPlan plan = Cut(m, devices, tp, pp);
      Status fits = CheckMemory(m, devices, plan);
      if (fits.ok()) {
        best = std::move(plan);
      } else {
        refusal = fits;
      }
    }
  }
  if (best.ranks.empty()) return refusal;
  return best;
}

}  // namespace

Result<PlacementPlan> MakePlacement(const ModelShape& model, const ClusterShape& cluster,
                                    const PlacementPolicy& policy) {
  STAFFEL_RETURN_IF_ERROR(CheckShapes(model, cluster));
  const int64_t tp = policy.tensor_parallel, pp = policy.pipeline_parallel;
  const int device_count = static_cast<int>(cluster.devices.size());
  if (tp < 0 || pp < 0) {
    return absl::InvalidArgumentError(StrCat("tensor parallel size ", tp,
                                             " and pipeline parallel size ", pp,
                                             " must not be negative (0 chooses)"));
  }
  STAFFEL_RETURN_IF_ERROR(CheckTensorParallel(model, policy.tensor_parallel));
  if (pp > model.layers) {
    return absl::InvalidArgumentError(StrCat(
        "pipeline parallel size ", pp, " is larger than the model's ", model.layers, " layers"));
  }
  if (std::max<int64_t>(tp, 1) * std::max<int64_t>(pp, 1) > device_count) {
    return absl::InvalidArgumentError(StrCat(
        "tensor parallel size ", tp, " times pipeline parallel size ", pp, " needs ",
        std::max<int64_t>(tp, 1) * std::max<int64_t>(pp, 1), " devices; there are ", device_count));
  }
  return Choose(model, cluster.devices, policy);
}

int64_t WeightBytes(const ModelShape& m, const RankShard& shard) {
  const double whole = HeadGroupCost(m, m.q_heads, m.kv_heads) + FfnCost(m, m.ffn);
  const double part =
      HeadGroupCost(m, shard.q_heads.size(), shard.kv_heads.size()) + FfnCost(m, shard.ffn.size());
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

}  // namespace staffel
