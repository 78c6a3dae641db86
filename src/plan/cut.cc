#include "plan/cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
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

// Query heads that stay together.
int HeadGranule(const ModelShape& m) {
  return m.q_heads % m.head_granule == 0 ? m.head_granule : m.q_heads;
}

int HeadRanksMax(const ModelShape& m) { return m.q_heads / HeadGranule(m); }

Status CheckTensorParallel(const ModelShape& m, int tensor_parallel) {
  const int head_ranks = HeadRanksMax(m);
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

// The KV heads that query heads read: a group that is cut has its KV head in several ranges.
Range KvHeadsOf(const ModelShape& m, Range q_heads) {
  const int group = m.q_heads / m.kv_heads;
  return {q_heads.begin / group, (q_heads.end + group - 1) / group};
}

// Cuts heads into one range a rank, in the order of the ranks, so that the slowest ends soonest.
//
// A group that is cut has its KV head on both sides, which costs work and room for KV. So ranks
// keep to their share of the KV heads, rounded up, unless more would be worth a good deal of time.
class HeadCut {
 public:
  HeadCut(const ModelShape& m, absl::Span<const double> speeds)
      : m_(m), speeds_(speeds), granule_(HeadGranule(m)), units_(m.q_heads / granule_) {
    const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    for (double speed : speeds) {
      kv_heads_max_.push_back(static_cast<int>(std::ceil(m.kv_heads * speed / sum - 1e-9)));
    }
  }

  std::vector<Range> Best() {
    constexpr double kWorthMoreKv = 0.875;
    const double slowest_within = SlowestEnd();
    std::vector<int> kv_heads_max =
        std::exchange(kv_heads_max_, std::vector<int>(speeds_.size(), m_.kv_heads));
    double slowest = SlowestEnd();
    if (slowest > kWorthMoreKv * slowest_within) {
      slowest = slowest_within;
      kv_heads_max_ = std::move(kv_heads_max);
    }
    // Of the cuts that end then the one with the least work, so the fewest KV heads; of these the
    // most even one.
    Solve(slowest * (1 + 1e-9), [&](double so_far, double work, double seconds) {
      return so_far + work * (1 + 1e-3 * seconds / slowest);
    });
    std::vector<Range> ranges(speeds_.size());
    for (int rank = static_cast<int>(speeds_.size()) - 1, end = units_; rank >= 0; --rank) {
      const int begin = begins_[rank][end];
      ranges[rank] = {begin * granule_, end * granule_};
      end = begin;
    }
    return ranges;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  double SlowestEnd() {
    return Solve(kNever,
                 [](double so_far, double, double seconds) { return std::max(so_far, seconds); });
  }

  // The least total over all cuts in which no rank takes longer than `seconds_max` or has more KV
  // heads than it may; where each rank begins is left in begins_. kNever: there is no such cut.
  // `sum` adds one range, given its MACs and its time, to the total of those before.
  template <class Sum>
  double Solve(double seconds_max, Sum sum) {
    const int ranks = static_cast<int>(speeds_.size());
    std::vector<double> totals(units_ + 1, kNever);
    totals[0] = 0;
    begins_.assign(ranks, std::vector<int>(units_ + 1, 0));
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double> next(units_ + 1, kNever);
      for (int end = rank + 1; end <= units_ - (ranks - 1 - rank); ++end) {
        for (int begin = rank; begin < end; ++begin) {
          if (totals[begin] == kNever) continue;
          const Range q_heads{begin * granule_, end * granule_};
          const int kv_heads = KvHeadsOf(m_, q_heads).size();
          const double work = HeadGroupMacs(m_, q_heads.size(), kv_heads);
          const double seconds = work / speeds_[rank];
          if (seconds > seconds_max || kv_heads > kv_heads_max_[rank]) continue;
          // Of equal cuts the one in which earlier ranks have more.
          const double total = sum(totals[begin], work, seconds);
          if (total > next[end] || total == kNever) continue;
          next[end] = total;
          begins_[rank][end] = begin;
        }
      }
      totals = std::move(next);
    }
    return totals[units_];
  }

  const ModelShape& m_;
  const absl::Span<const double> speeds_;
  const int granule_, units_;
  std::vector<int> kv_heads_max_;         // by rank
  std::vector<std::vector<int>> begins_;  // [rank][end]
};

// Query and KV heads of each member.
void CutHeads(const ModelShape& m, absl::Span<const double> speeds, absl::Span<RankShard> members) {
  const std::vector<Range> q_heads = HeadCut(m, speeds).Best();
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].q_heads = q_heads[i];
    members[i].kv_heads = KvHeadsOf(m, q_heads[i]);
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
  return std::min({HeadRanksMax(m), m.ffn / m.ffn_granule, m.vocab});
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
