#include "app/cluster_report.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace staffel {
namespace {

using Json = nlohmann::ordered_json;
using cluster::RankStatus;
using cluster::ReplicaStatus;
using cluster::WorkerStatus;

// Names and labels are workers' to choose and need not be UTF-8.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json RangeJson(Range range) { return {range.begin, range.end}; }

Json RankJson(const RankStatus& rank) {
  const RankShard& shard = rank.shard;
  Json json = {{"rank", shard.rank},
               {"stage", shard.stage},
               {"worker", rank.name},
               {"host", rank.host},
               {"address", rank.address},
               {"data_address", rank.data_address},
               {"layers", RangeJson(shard.layers)},
               {"q_heads", RangeJson(shard.q_heads)},
               {"kv_heads", RangeJson(shard.kv_heads)},
               {"ffn", RangeJson(shard.ffn)},
               {"vocab", RangeJson(shard.vocab)},
               {"weight_bytes", rank.weight_bytes},
               {"kv_bytes_per_block", rank.kv_bytes_per_block},
               {"load_share", rank.load_share},
               {"bytes_read", rank.bytes_read},
               {"bytes_fetched", rank.bytes_fetched},
               {"load_s", rank.load_s},
               {"form_s", rank.form_s},
               {"weights_kept", rank.weights_kept}};
  if (rank.heartbeat_age_s >= 0) {
    const Heartbeat& heartbeat = rank.heartbeat;
    json["heartbeat"] = {{"age_s", rank.heartbeat_age_s},
                         {"step", heartbeat.step},
                         {"collective", heartbeat.collective},
                         {"in_step", heartbeat.in_step},
                         {"waiting_for", heartbeat.waiting_for},
                         {"waiting_s", heartbeat.waiting_s},
                         {"compute_s", heartbeat.compute_s},
                         {"wait_s", heartbeat.wait_s},
                         {"wire_s", heartbeat.wire_s},
                         {"bytes_sent", heartbeat.bytes_sent},
                         {"bytes_received", heartbeat.bytes_received},
                         {"resident_bytes", heartbeat.resident_bytes}};
  }
  return json;
}

// Of each stage whose ranks' shares are known: how much of the last seconds they computed, on
// average.
std::map<int, double> StageUtilisation(const ReplicaStatus& replica) {
  std::map<int, double> sums, counts;
  for (const RankStatus& rank : replica.ranks) {
    if (rank.busy_share < 0) continue;
    sums[rank.shard.stage] += rank.busy_share;
    ++counts[rank.shard.stage];
  }
  for (auto& [stage, sum] : sums) sum /= counts[stage];
  return sums;
}

Json ReplicaJson(const ReplicaStatus& replica) {
  Json json = {{"replica", replica.replica.value},
               {"state", cluster::Name(replica.state)},
               {"epoch", replica.epoch},
               {"reason", replica.reason},
               {"state_age_s", replica.state_age_s},
               {"load_share", replica.load_share},
               {"tensor_parallel", replica.tensor_parallel},
               {"pipeline_parallel", replica.pipeline_parallel},
               {"degraded", replica.degraded},
               {"kv_blocks", replica.block_count},
               {"losses", replica.losses},
               {"planned_changes", replica.planned_changes},
               {"stages", Json::array()},
               {"ranks", Json::array()}};
  for (const auto& [stage, utilisation] : StageUtilisation(replica)) {
    json["stages"].push_back({{"stage", stage}, {"utilisation", utilisation}});
  }
  for (const RankStatus& rank : replica.ranks) json["ranks"].push_back(RankJson(rank));
  return json;
}

Json WorkerJson(const WorkerStatus& worker) {
  Json json = {{"worker", worker.name},
               {"host", worker.host},
               {"address", worker.address},
               {"build", worker.build},
               {"labels", worker.labels},
               {"state", cluster::Name(worker.state)},
               {"memory_bytes", worker.memory_bytes},
               {"speed", worker.speed}};
  if (worker.replica.valid()) {
    json["replica"] = worker.replica.value;
    json["rank"] = worker.rank;
  }
  if (!worker.reason.ok()) {
    json["reason"] = std::string(worker.reason.message());
    json["set_aside_s"] = worker.set_aside_s;
  }
  return json;
}

// Families in the order of first use; samples are added by name.
class Families {
 public:
  using Labels = std::map<std::string, std::string>;

  void Add(const char* name, const char* help, bool counter, const Labels& labels, double value) {
    for (MetricSamples& family : families_) {
      if (family.name != name) continue;
      family.samples.push_back({labels, value});
      return;
    }
    families_.push_back({name, help, counter, {{labels, value}}});
  }
  std::vector<MetricSamples> Take() { return std::move(families_); }

 private:
  std::vector<MetricSamples> families_;
};

void AddRank(Families& out, Families::Labels labels, const RankStatus& rank) {
  labels["rank"] = StrCat(rank.shard.rank);
  labels["stage"] = StrCat(rank.shard.stage);
  labels["worker"] = rank.name;
  labels["host"] = rank.host;
  const Heartbeat& h = rank.heartbeat;
  const auto gauge = [&](const char* name, const char* help, double value) {
    out.Add(name, help, false, labels, value);
  };
  gauge("staffel_rank_weight_bytes", "Weights that the rank holds.",
        static_cast<double>(rank.weight_bytes));
  gauge("staffel_rank_read_bytes", "Bytes of the model file that the rank has read.",
        static_cast<double>(rank.bytes_read));
  gauge("staffel_rank_fetched_bytes", "Of these, bytes that came from the master.",
        static_cast<double>(rank.bytes_fetched));
  if (rank.heartbeat_age_s < 0) return;
  gauge("staffel_rank_heartbeat_age_seconds", "Since the rank's last sign of life.",
        rank.heartbeat_age_s);
  gauge("staffel_rank_compute_seconds", "Time in steps of this epoch, less waiting and wire.",
        h.compute_s);
  gauge("staffel_rank_wait_seconds", "Time in steps of this epoch waiting for other ranks.",
        h.wait_s);
  gauge("staffel_rank_wire_seconds", "Time in steps of this epoch moving bytes.", h.wire_s);
  gauge("staffel_rank_sent_bytes", "Bytes sent to other ranks in this epoch.",
        static_cast<double>(h.bytes_sent));
  gauge("staffel_rank_received_bytes", "Bytes received from other ranks in this epoch.",
        static_cast<double>(h.bytes_received));
  gauge("staffel_rank_step", "The last step that the rank has finished.",
        static_cast<double>(h.step));
  gauge("staffel_rank_collective", "Collectives that the rank has finished in this epoch.",
        static_cast<double>(h.collective));
  gauge("staffel_rank_waiting_seconds", "How long the rank has been waiting for another one now.",
        h.waiting_s);
  gauge("staffel_rank_resident_bytes", "Resident memory of the worker.",
        static_cast<double>(h.resident_bytes));
}

}  // namespace

std::string ClusterJson(const cluster::Snapshot& snapshot) {
  Json json = {{"pools", Json::array()},
               {"workers", Json::array()},
               {"absent", Json::array()},
               {"broken_links", Json::array()}};
  for (const cluster::PoolStatus& pool : snapshot.pools) {
    Json replicas = Json::array();
    for (const ReplicaStatus& replica : pool.replicas) replicas.push_back(ReplicaJson(replica));
    json["pools"].push_back({{"model", pool.name},
                             {"labels", pool.labels},
                             {"tensor_parallel", pool.tensor_parallel},
                             {"pipeline_parallel", pool.pipeline_parallel},
                             {"replicas", std::move(replicas)}});
  }
  for (const WorkerStatus& worker : snapshot.workers) json["workers"].push_back(WorkerJson(worker));
  for (const WorkerStatus& worker : snapshot.absent) json["absent"].push_back(WorkerJson(worker));
  for (const cluster::LinkStatus& link : snapshot.links) {
    json["broken_links"].push_back({{"workers", {link.workers.first, link.workers.second}},
                                    {"hosts", {link.hosts.first, link.hosts.second}},
                                    {"reason", link.reason},
                                    {"age_s", link.age_s},
                                    {"avoided_s", link.avoided_s},
                                    {"failures", link.failures}});
  }
  return Dump(json);
}

std::vector<MetricSamples> ClusterMetrics(const cluster::Snapshot& snapshot) {
  Families out;
  for (const WorkerStatus& worker : snapshot.workers) {
    out.Add(
        "staffel_worker_up", "1 for each worker that is connected.", false,
        {{"worker", worker.name}, {"host", worker.host}, {"state", cluster::Name(worker.state)}},
        1);
  }
  for (const cluster::LinkStatus& link : snapshot.links) {
    out.Add("staffel_link_failures_total", "Data links that broke while both workers lived.", true,
            {{"worker", link.workers.first},
             {"host", link.hosts.first},
             {"peer", link.workers.second},
             {"peer_host", link.hosts.second}},
            static_cast<double>(link.failures));
  }
  for (const cluster::PoolStatus& pool : snapshot.pools) {
    for (const ReplicaStatus& replica : pool.replicas) {
      const Families::Labels labels = {{"model_name", pool.name},
                                       {"replica", StrCat(replica.replica.value)}};
      out.Add("staffel_replica_serving", "1 while the replica computes requests.", false, labels,
              replica.state == cluster::ReplicaState::kServing ? 1 : 0);
      out.Add("staffel_replica_epoch", "Placements of the replica so far.", false, labels,
              replica.epoch);
      out.Add("staffel_replica_losses_total", "Epochs that ended because something broke.", true,
              labels, static_cast<double>(replica.losses));
      for (const auto& [stage, utilisation] : StageUtilisation(replica)) {
        Families::Labels of_stage = labels;
        of_stage["stage"] = StrCat(stage);
        out.Add("staffel_stage_utilisation_ratio",
                "Share of the last 10 s that the stage's ranks computed.", false, of_stage,
                utilisation);
      }
      for (const RankStatus& rank : replica.ranks) AddRank(out, labels, rank);
    }
  }
  return out.Take();
}

}  // namespace staffel
