// The part of a model that a worker holds: first only described, then loaded; it outlives epochs
// and connections. Owned by a worker node; used by its step thread, but for the group (see
// EpochCommunicator).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/epoch_communicator.h"
#include "app/model_store.h"
#include "staffel/backend.h"
#include "staffel/cluster.h"
#include "staffel/program.h"
#include "worker/worker.h"

namespace staffel {

class ResidentShard {
 public:
  // Works out what the shard of `configure.rank` needs; nothing is read. InvalidArgument: the plan
  // does not fit the model.
  static Result<std::unique_ptr<ResidentShard>> Describe(const Configure& configure,
                                                         std::shared_ptr<const StoredModel> model,
                                                         const Backend& backend,
                                                         int64_t memory_bytes);

  // Whether it is just what `configure` asks for: content, part, and options.
  bool Matches(const Configure& configure, const StoredModel& model) const;

  // The numbers of Capacity. limit_bytes: most that the shard may use of the worker's memory; 0:
  // all. ResourceExhausted: the weights do not fit.
  Status FillCapacity(Capacity* capacity, int64_t limit_bytes) const;

  // Weights, work and KV of so many blocks.
  int64_t bytes_with(int block_count) const {
    return need_.weights + need_.work + block_count * kv_bytes_per_block_;
  }
  // ResourceExhausted: with so many KV blocks the shard takes more than `memory_bytes`.
  Status CheckRoom(int block_count, int64_t memory_bytes) const;

  // Loaded, with a KV pool of at least so many blocks.
  bool IsLoaded(int block_count) const { return block_count_ > 0 && block_count_ >= block_count; }
  // Reads and packs the weights. Cancelled: `cancelled` said so, and nothing is loaded.
  Status Load(Backend& backend, const Clock& clock, int block_count,
              std::function<void(double)> progress, std::function<bool()> cancelled);

  // Of a loaded shard: an epoch with an empty mirror begins.
  Status BeginEpoch(int epoch) { return worker_->BeginEpoch(epoch); }
  StepOutcome Run(const StepPlan& plan) { return worker_->Run(plan); }

  EpochCommunicator& group() { return *group_; }
  const std::shared_ptr<const StoredModel>& model() const { return model_; }
  const std::vector<ModelRange>& ranges() const { return ranges_; }
  // Bytes of the model file that this shard consists of.
  int64_t model_bytes() const { return model_bytes_; }
  // Weights, work and KV; 0: not loaded.
  int64_t resident_bytes() const;
  // What the worker could give before it held this.
  int64_t memory_bytes() const { return memory_bytes_; }
  std::string Description() const;  // "layers 0-14, 812 MiB"

 private:
  ResidentShard() = default;

  std::string key_;
  RankShard shard_;
  int vocab_ = 0;
  std::shared_ptr<const StoredModel> model_;
  Program program_;
  BackendOptions options_;
  std::vector<ModelRange> ranges_;
  int64_t model_bytes_ = 0;
  MemoryNeed need_;
  int64_t kv_bytes_per_block_ = 0;
  int64_t memory_bytes_ = 0;
  int block_count_ = 0;
  std::unique_ptr<EpochCommunicator> group_;
  std::unique_ptr<Worker> worker_;  // holds the executable, which uses the group
};

}  // namespace staffel
