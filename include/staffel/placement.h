// Topology as data: which ranges of a model each rank holds. One rank is a plan with full ranges;
// uneven is the normal case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "staffel/status.h"

namespace staffel {

// Half-open.
struct Range {
  int begin = 0, end = 0;
  constexpr int size() const { return end - begin; }
  constexpr bool contains(int i) const { return begin <= i && i < end; }
  constexpr bool operator==(const Range&) const = default;
};

// What placement needs to know of a model; read from the file's metadata before any weight.
struct ModelShape {
  std::string architecture;  // "llama", "qwen2", "gemma3"
  int layers = 0;
  int hidden = 0;
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  int ffn = 0;
  int vocab = 0;
  int context_length = 0;   // trained
  int ffn_granule = 32;     // an FFN cut must be a multiple of this (quantisation blocks)
  int head_granule = 1;     // a cut of the query heads, likewise
  int64_t layer_bytes = 0;  // weights of one layer, mean
  int64_t embedding_bytes = 0, head_bytes = 0;  // head_bytes 0: tied to the embedding
};

struct DeviceId {
  std::string kind = "cpu";  // "cpu", "cuda"
  int index = 0;
};

struct DeviceShape {
  DeviceId device;
  std::string host;
  int64_t memory_bytes = 0;  // usable for weights and KV; 0: not known, not checked
  double speed = 1.0;        // relative, measured
};

// Between two machines. The defaults are a plain 1 Gbit/s network.
struct LinkShape {
  double latency_s = 100e-6;  // one way, a small message
  double bytes_per_s = 125e6;
};

struct ClusterShape {
  std::vector<DeviceShape> devices;
  // By device; equal: they share memory. Empty: the devices' hosts tell.
  std::vector<std::string> machines;
  LinkShape link;
};

struct PlacementPolicy {
  int tensor_parallel = 1;    // 0: choose
  int pipeline_parallel = 1;  // 0: choose
  int devices_max = 0;        // 0: no limit
  int context_tokens = 0;     // for which every rank must have KV memory; 0: weights alone count
};

// One rank's part of the model.
struct RankShard {
  int rank = 0;
  int stage = 0;
  DeviceId device;
  Range layers;             // of the model
  Range q_heads, kv_heads;  // KV heads may overlap between ranks (replicated)
  Range ffn;                // columns of the FFN's inner dimension
  Range vocab;              // rows of the vocabulary projection; empty before the last stage
  bool first_stage = true, last_stage = true;
  std::vector<int> group;        // ranks of its tensor group, in order; a group of one: {rank}
  std::vector<int> group_vocab;  // vocabulary rows of each member (last stage), else empty
  int previous_rank = -1;        // sends it the stage's input; -1 on the first stage
  int next_rank = -1;            // receives the stage's output; -1 on the last stage
};

struct PlacementPlan {
  int epoch = 0;
  std::vector<RankShard> ranks;                 // index is the rank
  std::vector<std::vector<int>> tensor_groups;  // by stage
};

}  // namespace staffel
