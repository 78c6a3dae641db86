// Ranks of a mesh as threads of one process, each with an endpoint of its own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/mesh/mesh_endpoint.h"
#include "staffel/communicator.h"

namespace staffel {

using Communicators = std::vector<std::unique_ptr<Communicator>>;
using Endpoints = std::vector<std::unique_ptr<CommEndpoint>>;
using Groups = std::vector<std::vector<int>>;

struct MeshWay {
  const char* name;
  const char* host;
  bool shared_memory;
};
inline constexpr MeshWay kMeshWays[] = {
    {"shm", "127.0.0.1", true}, {"tcp4", "127.0.0.1", false}, {"tcp6", "::1", false}};

inline MeshOptions OptionsFor(const MeshWay& way) {
  MeshOptions options;
  options.host = way.host;
  options.shared_memory = way.shared_memory;
  return options;
}

inline Endpoints MakeEndpoints(int count, const MeshOptions& options) {
  Endpoints endpoints;
  for (int i = 0; i < count; ++i) {
    Result<std::unique_ptr<CommEndpoint>> endpoint = MakeMeshEndpoint(options);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

inline GroupSpec SpecFor(const Endpoints& endpoints, const Groups& groups, int rank,
                         int epoch = 1) {
  GroupSpec spec;
  spec.epoch = epoch;
  spec.rank = rank;
  spec.tensor_groups = groups;
  for (const auto& endpoint : endpoints) {
    spec.addresses.push_back(endpoint->address());
    spec.machines.push_back("here");
  }
  spec.secret = "secret of the epoch";
  return spec;
}

inline int RankCount(const Groups& groups) {
  int count = 0;
  for (const auto& group : groups) count += static_cast<int>(group.size());
  return count;
}

// body(rank) on one thread for each rank.
inline void OnThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

inline Communicators FormAll(const Endpoints& endpoints, const Groups& groups, int epoch = 1) {
  Communicators communicators(endpoints.size());
  OnThreads(static_cast<int>(endpoints.size()), [&](int rank) {
    Result<std::unique_ptr<Communicator>> formed =
        endpoints[rank]->Form(SpecFor(endpoints, groups, rank, epoch), std::chrono::seconds(20));
    ASSERT_TRUE(formed.ok()) << formed.status();
    communicators[rank] = *std::move(formed);
  });
  return communicators;
}

}  // namespace staffel
