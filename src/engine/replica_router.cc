#include "engine/replica_router.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/strings.h"
#include "sched/block_manager.h"

namespace staffel {

struct ReplicaRouter::State {
  struct Prefix {
    uint64_t replicas = 0;  // bits
    std::list<Hash128>::iterator age;
  };
  std::mutex mutex;  // held for a few moves only, never while a replica is called
  absl::flat_hash_map<RequestId, int> open;  // replica of each request without its last event
  absl::flat_hash_map<Hash128, Prefix> prefixes;
  std::list<Hash128> ages;      // keys of prefixes, the least recently used first
  std::vector<uint64_t> turns;  // when each replica was last given a request
  uint64_t turn = 0;
};

// Passes events on; notices the last one.
class ReplicaRouter::RoutedSink final : public EventSink {
 public:
  RoutedSink(std::shared_ptr<State> state, std::shared_ptr<EventSink> sink, int sequences)
      : state_(std::move(state)), sink_(std::move(sink)), unfinished_(sequences) {}
  void OnEvent(const SeqEvent& event) override {
    if (event.finish.has_value() && --unfinished_ == 0) {
      std::lock_guard lock(state_->mutex);
      state_->open.erase(event.request);
    }
    sink_->OnEvent(event);
  }

 private:
  const std::shared_ptr<State> state_;
  const std::shared_ptr<EventSink> sink_;
  int unfinished_;
};

ReplicaRouter::ReplicaRouter(std::vector<EngineClient*> replicas, ReplicaRouterOptions options)
    : replicas_(std::move(replicas)), options_(options), state_(std::make_shared<State>()) {
  STAFFEL_CHECK(!replicas_.empty() && replicas_.size() <= kReplicasMax);
  STAFFEL_CHECK(options_.block_tokens > 0 && options_.prefixes_max > 0);
  state_->turns.resize(replicas_.size());
}

ReplicaRouter::~ReplicaRouter() = default;

std::vector<Hash128> ReplicaRouter::KeysOf(const GenerateRequest& request) const {
  const size_t block = options_.block_tokens;
  const size_t count = std::min<size_t>(options_.blocks_max, request.prompt.size() / block);
  std::vector<Hash128> keys;
  keys.reserve(count);
  Hash128 parent = sched::RootKey(options_.hash_key, request.cache_salt);
  for (size_t i = 0; i < count; ++i) {
    parent = sched::ChainKey(options_.hash_key, parent,
                             absl::MakeConstSpan(request.prompt).subspan(i * block, block));
    keys.push_back(parent);
  }
  return keys;
}

// Healthy ones (all, if none is), the least busy first; of equal ones that which was given a
// request least recently. A full KV pool counts like one more sequence.
std::vector<ReplicaRouter::Candidate> ReplicaRouter::Candidates() const {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const EngineStats stats = replicas_[i]->stats();
    const int64_t held = stats.blocks_total - stats.blocks_free - stats.blocks_cached;
    const int64_t held_percent = stats.blocks_total > 0 ? 100 * held / stats.blocks_total : 0;
    candidates.push_back({.replica = static_cast<int>(i),
                          .healthy = replicas_[i]->health().ok(),
                          .load = 100 * int64_t{stats.running + stats.waiting} + held_percent});
  }
  const bool any_healthy = std::any_of(candidates.begin(), candidates.end(),
                                       [](const Candidate& c) { return c.healthy; });
  if (any_healthy) std::erase_if(candidates, [](const Candidate& c) { return !c.healthy; });
  std::lock_guard lock(state_->mutex);
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return std::make_tuple(a.load, state_->turns[a.replica], a.replica) <
           std::make_tuple(b.load, state_->turns[b.replica], b.replica);
  });
  return candidates;
}

ReplicaRouter::Match ReplicaRouter::FindPrefix(const std::vector<Hash128>& keys,
                                               uint64_t among) const {
  Match match{among, 0};
  std::lock_guard lock(state_->mutex);
  for (const Hash128& key : keys) {
    const auto it = state_->prefixes.find(key);
    if (it == state_->prefixes.end() || (it->second.replicas & match.replicas) == 0) break;
    match.replicas &= it->second.replicas;
    match.tokens += options_.block_tokens;
  }
  return match;
}

// Moves the least busy of those that have the prompt's start to the front, if it is not too busy.
void ReplicaRouter::PreferPrefix(const std::vector<Hash128>& keys, size_t prompt_tokens,
                                 std::vector<Candidate>& candidates) const {
  uint64_t among = 0;
  for (const Candidate& candidate : candidates) among |= uint64_t{1} << candidate.replica;
  const Match match = FindPrefix(keys, among);
  if (match.tokens == 0) return;
  const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return (match.replicas >> c.replica & 1) != 0;
  });
  const int64_t allowed =
      100 * options_.imbalance_max * match.tokens / static_cast<int64_t>(prompt_tokens);
  if (found->load - candidates.front().load <= allowed) {
    std::rotate(candidates.begin(), found, found + 1);
  }
}

void ReplicaRouter::Remember(const std::vector<Hash128>& keys, int replica) {
  State& state = *state_;
  std::lock_guard lock(state.mutex);
  state.turns[replica] = ++state.turn;
  // From the end: the start of a prompt is forgotten last.
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto [it, inserted] = state.prefixes.try_emplace(*key);
    if (inserted) {
      it->second.age = state.ages.insert(state.ages.end(), *key);
    } else {
      state.ages.splice(state.ages.end(), state.ages, it->second.age);
    }
    it->second.replicas |= uint64_t{1} << replica;
  }
  while (static_cast<int>(state.prefixes.size()) > options_.prefixes_max) {
    state.prefixes.erase(state.ages.front());
    state.ages.pop_front();
  }
}

Status ReplicaRouter::Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) {
  const std::vector<Hash128> keys = KeysOf(request);
  std::vector<Candidate> candidates = Candidates();
  PreferPrefix(keys, request.prompt.size(), candidates);
  Status first;
  for (const Candidate& candidate : candidates) {
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->open.try_emplace(request.id, candidate.replica).second) {
        return absl::InvalidArgumentError(StrCat("request ", request.id.value, " exists already"));
      }
    }
    const Status status = replicas_[candidate.replica]->Submit(
        request, std::make_shared<RoutedSink>(state_, sink, request.n));
    if (status.ok()) {
      Remember(keys, candidate.replica);
      return status;
    }
    {
      std::lock_guard lock(state_->mutex);
      state_->open.erase(request.id);
    }
    if (!absl::IsResourceExhausted(status) && !absl::IsUnavailable(status)) return status;
    if (first.ok()) first = status;
  }
  return first;
}

void ReplicaRouter::Cancel(RequestId request, int index) {
  const int replica = ReplicaOf(request);
  if (replica >= 0) replicas_[replica]->Cancel(request, index);
}

int ReplicaRouter::ReplicaOf(RequestId request) const {
  std::lock_guard lock(state_->mutex);
  const auto it = state_->open.find(request);
  return it == state_->open.end() ? -1 : it->second;
}

EngineLimits ReplicaRouter::limits() const {
  EngineLimits least = replicas_.front()->limits();
  for (const EngineClient* replica : replicas_) {
    const EngineLimits limits = replica->limits();
    least.max_model_len = std::min(least.max_model_len, limits.max_model_len);
    least.kv_capacity_tokens = std::min(least.kv_capacity_tokens, limits.kv_capacity_tokens);
    least.vocab_size = std::min(least.vocab_size, limits.vocab_size);
    least.max_queue = std::min(least.max_queue, limits.max_queue);
  }
  return least;
}

EngineStats ReplicaRouter::stats() const {
  EngineStats sum;
  for (const EngineClient* replica : replicas_) {
    const EngineStats stats = replica->stats();
    for (auto field :
         {&EngineStats::running, &EngineStats::waiting, &EngineStats::blocks_total,
          &EngineStats::blocks_free, &EngineStats::blocks_cached, &EngineStats::steps_in_flight}) {
      sum.*field += stats.*field;
    }
    for (auto field : {&EngineStats::preemptions, &EngineStats::prefix_queries_tokens,
                       &EngineStats::prefix_hits_tokens, &EngineStats::prompt_tokens,
                       &EngineStats::generation_tokens, &EngineStats::forced_tokens,
                       &EngineStats::finished_stop, &EngineStats::finished_length,
                       &EngineStats::finished_cancelled, &EngineStats::finished_error,
                       &EngineStats::steps, &EngineStats::losses, &EngineStats::resumes}) {
      sum.*field += stats.*field;
    }
    for (auto field : {&EngineStats::compute_s, &EngineStats::wait_s, &EngineStats::plan_s,
                       &EngineStats::paused_s}) {
      sum.*field += stats.*field;
    }
    sum.epoch = std::max(sum.epoch, stats.epoch);
    sum.last_step_age_s = std::max(sum.last_step_age_s, stats.last_step_age_s);
  }
  return sum;
}

Status ReplicaRouter::health() const {
  std::string reasons;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Status status = replicas_[i]->health();
    if (status.ok() || replicas_.size() == 1) return status;
    StrAppend(reasons, i == 0 ? "" : "; ", "replica ", i, ": ", std::string(status.message()));
  }
  return absl::UnavailableError(
      StrCat("none of the ", replicas_.size(), " replicas serves: ", reasons));
}

}  // namespace staffel
