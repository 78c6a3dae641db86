// One client over several replicas of a model: each request goes to the replica that has computed
// the start of its prompt before, unless that one is much busier than another. Deterministic: the
// same calls with the same states of the replicas give the same choices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/siphash.h"
#include "staffel/request.h"

namespace staffel {

struct ReplicaRouterOptions {
  // Prompts are compared by leading blocks of that many tokens, up to blocks_max of them.
  int block_tokens = 64;
  int blocks_max = 128;
  // Blocks that are remembered; the least recently used are forgotten. About 100 bytes each.
  int prefixes_max = 1 << 16;
  // A replica that has a whole prompt may have that many sequences more than the one with the
  // least; one that has half of it, half as many more.
  int imbalance_max = 8;
  // Of the hashes; a secret one keeps clients from steering requests.
  Hash128 hash_key = {0x9ae16a3b2f90404fu, 0xc949d7c7509e6557u};
};

class ReplicaRouter final : public EngineClient {
 public:
  static constexpr int kReplicasMax = 64;

  // 1 to kReplicasMax replicas, of one model; they outlive the router. What is left of their
  // requests may end after it.
  explicit ReplicaRouter(std::vector<EngineClient*> replicas, ReplicaRouterOptions options = {});
  ~ReplicaRouter() override;

  // Any thread from here on.

  // Replicas whose health is not OK get requests only if there is no other; what they have already
  // stays with them. If the chosen one is full (ResourceExhausted) or has failed meanwhile
  // (Unavailable), the others are asked, the least busy first; the answer of the first is returned
  // if none takes it.
  Status Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) override;
  void Cancel(RequestId request, int index = -1) override;
  // The least of all replicas: whatever is within them, each can serve.
  EngineLimits limits() const override;
  // Sums; the greatest epoch and age of the last step.
  EngineStats stats() const override;
  // OK if one replica's is; else what they say.
  Status health() const override;

  // Index of the replica that has an open request; -1: not open.
  int ReplicaOf(RequestId request) const;

 private:
  class RoutedSink;
  struct State;
  struct Candidate {
    int replica;
    bool healthy;
    int64_t load;  // hundredths of a sequence
  };
  struct Match {
    uint64_t replicas;  // bits: that have most of the prompt
    int64_t tokens;
  };

  std::vector<Hash128> KeysOf(const GenerateRequest& request) const;
  std::vector<Candidate> Candidates() const;
  Match FindPrefix(const std::vector<Hash128>& keys, uint64_t among) const;
  void PreferPrefix(const std::vector<Hash128>& keys, size_t prompt_tokens,
                    std::vector<Candidate>& candidates) const;
  void Remember(const std::vector<Hash128>& keys, int replica);

  const std::vector<EngineClient*> replicas_;
  const ReplicaRouterOptions options_;
  const std::shared_ptr<State> state_;  // shared with the sinks of open requests
};

}  // namespace staffel
