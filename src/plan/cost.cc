#include "plan/cost.h"

#include <algorithm>
#include <cmath>

namespace staffel {
namespace {

// A device of speed 1: one socket of a small server. Only ratios matter where all ranks are alike;
// against links these set the scale.
constexpr double kReadBytesPerS = 20e9;
constexpr double kMacsPerS = 100e9;
constexpr double kBytesPerMac = 0.5625;  // 4.5 bits a weight, where the shape has no bytes
// Between ranks that share memory: an all-reduce of small vectors takes 1 to 4 us.
constexpr LinkShape kSharedMemory = {.latency_s = 2e-6, .bytes_per_s = 10e9};
constexpr int kManyStreams = 16;

struct Work {
  double bytes = 0;  // read once per step
  double macs = 0;   // for each row
};

Work WorkOf(const ModelShape& m, const RankShard& shard) {
  const double whole = HeadGroupMacs(m, m.q_heads, m.kv_heads) + FfnMacs(m, m.ffn);
  const double part =
      HeadGroupMacs(m, shard.q_heads.size(), shard.kv_heads.size()) + FfnMacs(m, shard.ffn.size());
  const double layer_bytes =
      m.layer_bytes > 0 ? static_cast<double>(m.layer_bytes) : whole * kBytesPerMac;
  Work work{part / whole * layer_bytes * shard.layers.size(), part * shard.layers.size()};
  if (shard.last_stage) {
    const double share = static_cast<double>(shard.vocab.size()) / m.vocab;
    const double head_macs = 1.0 * m.vocab * m.hidden;
    double head_bytes = static_cast<double>(m.head_bytes > 0 ? m.head_bytes : m.embedding_bytes);
    if (head_bytes == 0) head_bytes = head_macs * kBytesPerMac;
    work.bytes += share * head_bytes;
    work.macs += share * head_macs;
  }
  return work;
}

// To everyone at once, or reduce-scatter and all-gather: what the Communicator does with small and
// with large vectors.
double AllReduceSeconds(int members, double bytes, const LinkShape& link) {
  if (members == 1) return 0;
  const double to_all = link.latency_s + (members - 1) * bytes / link.bytes_per_s;
  const double in_parts = 2 * (link.latency_s + bytes * (members - 1) / members / link.bytes_per_s);
  return std::min(to_all, in_parts);
}

double GatherSeconds(int members, double bytes, const LinkShape& link) {
  if (members == 1) return 0;
  return link.latency_s + bytes * (members - 1) / members / link.bytes_per_s;
}

class StageTimes {
 public:
  StageTimes(const ModelShape& m, const PlacementPlan& plan, absl::Span<const DeviceShape> devices,
             absl::Span<const std::string> machines, const LinkShape& link)
      : m_(m), plan_(plan), devices_(devices), machines_(machines), link_(link) {
    for (const RankShard& shard : plan.ranks) work_.push_back(WorkOf(m, shard));
  }

  // Of `rows` tokens in one stage, with what it sends to the next.
  double Seconds(int stage, int rows) const {
    const std::vector<int>& group = plan_.tensor_groups[stage];
    const RankShard& first = plan_.ranks[group[0]];
    double compute = 0;
    bool one_machine = true;
    for (int rank : group) {
      compute = std::max(compute, std::max(work_[rank].bytes / kReadBytesPerS,
                                           rows * work_[rank].macs / kMacsPerS) /
                                      devices_[rank].speed);
      one_machine = one_machine && machines_[rank] == machines_[group[0]];
    }
    const int members = static_cast<int>(group.size());
    const LinkShape& link = one_machine ? kSharedMemory : link_;
    const double row_bytes = 4.0 * rows;
    double comm =
        2.0 * first.layers.size() * AllReduceSeconds(members, row_bytes * m_.hidden, link);
    if (first.last_stage) {
      comm += GatherSeconds(members, row_bytes * m_.vocab, link);
    } else {
      const LinkShape& hop =
          machines_[group[0]] == machines_[first.next_rank] ? kSharedMemory : link_;
      comm += hop.latency_s + row_bytes * m_.hidden / hop.bytes_per_s;
    }
    return compute + comm;
  }

  // Until each of `streams` has its next token.
  double Round(int streams) const {
    const int stages = static_cast<int>(plan_.tensor_groups.size());
    const int batches = std::min(stages, streams);
    const int rows = (streams + batches - 1) / batches;
    double sum = 0, slowest = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const double seconds = Seconds(stage, rows);
      sum += seconds;
      slowest = std::max(slowest, seconds);
    }
    return std::max(sum, batches * slowest);
  }

 private:
  const ModelShape& m_;
  const PlacementPlan& plan_;
  absl::Span<const DeviceShape> devices_;
  absl::Span<const std::string> machines_;
  const LinkShape& link_;
  std::vector<Work> work_;  // by rank
};

}  // namespace

double HeadGroupMacs(const ModelShape& m, double q_heads, double kv_heads) {
  return 2.0 * (q_heads + kv_heads) * m.head_dim * m.hidden;
}

double FfnMacs(const ModelShape& m, double columns) { return 3.0 * columns * m.hidden; }

double PlacementCost(const ModelShape& model, const PlacementPlan& plan,
                     absl::Span<const DeviceShape> devices, absl::Span<const std::string> machines,
                     const LinkShape& link) {
  const StageTimes times(model, plan, devices, machines, link);
  return std::sqrt(times.Round(1) * times.Round(kManyStreams));
}

}  // namespace staffel
