// Who gets which workers: replicas that wait, replicas whose worker leaves, replicas that could do
// better.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/strings.h"
#include "cluster/state.h"

namespace staffel::cluster {
namespace {

// A layout of the planner's own choice is left for one that costs less by this much: the change
// costs a load.
constexpr double kWorthAChange = 1.1;
// Joins that go on and on hold a first placement or a change up by so many settle times at most.
constexpr int kSettlesMax = 4;
// A degraded attempt starts over for the wanted layout as long as it has loaded less than this.
constexpr double kLateToRestart = 0.5;

// After so many attempts that failed one after another, a replica that waits does without the
// workers that are held responsible, in a smaller layout if need be; the wanted one is tried again
// later, as any better one.
constexpr int kFailuresMax = 3;

class Placer {
 public:
  explicit Placer(State& state) : s_(state) {}

  void Run() {
    s_.place_at = Time::max();
    const bool any_waits = std::any_of(s_.replicas.begin(), s_.replicas.end(),
                                       [](const Replica& replica) { return replica.waiting(); });
    for (auto& [id, worker] : s_.workers) {
      Note(s_.RecordOf(worker).set_aside_until);
      // Memory that was short is looked for again only by those who cannot serve without.
      if (!any_waits) continue;
      if (worker.memory_known_until <= s_.now) {
        worker.memory_bytes = worker.hello.devices[0].memory_bytes;
        worker.memory_known_until = Time::max();
      }
      Note(worker.memory_known_until);
    }
    for (const auto& [key, link] : s_.links) Note(link.avoid_until);
    CollectFree();
    RestartDegraded();
    PlaceWaiting();
    TakeFromOthers();
    HandOver();
    Improve();
    s_.ReleaseLeavers();
  }

 private:
  struct Wish {
    Replica* replica;
    Choice choice;
  };

  void Note(Time time) {
    if (time > s_.now) s_.place_at = std::min(s_.place_at, time);
  }

  Candidate CandidateOf(const Worker& worker, ReplicaId replica = ReplicaId()) const {
    DeviceShape device = worker.hello.devices[0];
    device.memory_bytes = s_.MemoryFor(worker, replica);
    return {worker.id, worker.hello.name, worker.hello.machine, device};
  }

  // By name, and not by the order of joining: a master that has started anew gives its workers the
  // ranks whose weights they hold.
  static void SortByName(std::vector<Candidate>& candidates) {
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.name, a.worker) < std::tie(b.name, b.worker);
    });
  }

  void CollectFree() {
    free_.clear();
    for (const auto& [id, worker] : s_.workers) {
      if (!worker.replica.valid() && s_.Eligible(worker)) free_.push_back(CandidateOf(worker));
    }
    SortByName(free_);
  }

  std::vector<Candidate> FreeFor(const Replica& replica) const {
    return MatchingOf(replica, free_);
  }

  // By name.
  std::vector<Candidate> MatchingOf(const Replica& replica,
                                    const std::vector<Candidate>& candidates) const {
    std::vector<Candidate> matching;
    for (const Candidate& candidate : candidates) {
      if (s_.LabelsMatch(s_.pool(replica), s_.workers.at(candidate.worker))) {
        matching.push_back(candidate);
      }
    }
    SortByName(matching);
    return matching;
  }

  // Members that may stay, and free workers.
  std::vector<Candidate> OwnAndFree(const Replica& replica) const {
    std::vector<Candidate> candidates;
    for (const Candidate& candidate : FreeFor(replica)) {
      candidates.push_back(CandidateOf(s_.workers.at(candidate.worker), replica.id));
    }
    for (WorkerId member : replica.members) {
      const Worker& worker = s_.workers.at(member);
      if (!worker.leaving) candidates.push_back(CandidateOf(worker, replica.id));
    }
    SortByName(candidates);
    return candidates;
  }

  static void Remove(const Choice& choice, std::vector<Candidate>& candidates) {
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return std::find(choice.workers.begin(), choice.workers.end(), candidate.worker) !=
             choice.workers.end();
    });
  }

  static bool IsOpen(const PoolConfig& pool) {
    return pool.tensor_parallel == 0 || pool.pipeline_parallel == 0;
  }

  PlacementPolicy WantedPolicy(const PoolConfig& pool) const {
    PlacementPolicy policy{pool.tensor_parallel, pool.pipeline_parallel};
    if (pool.kv_blocks > 0) {
      policy.context_tokens = static_cast<int>(std::min<int64_t>(
          pool.kv_blocks * pool.options.block_size, std::numeric_limits<int>::max()));
    } else if (pool.kv_memory_bytes == 0) {
      policy.context_tokens = pool.max_model_len;
    }
    return policy;
  }

  // fewest: no more workers than needed. may_degrade: any layout, if the wanted one is impossible.
  // Without workers whose link has failed, if others can do, in a degraded layout too.
  Result<Choice> ChooseFor(const Replica& replica, const std::vector<Candidate>& candidates,
                           int workers_max, bool fewest, bool may_degrade) const {
    if (std::optional<Choice> without = WithoutFailing(replica, candidates, may_degrade)) {
      return *std::move(without);
    }
    const LinkRecord* avoided = nullptr;
    std::optional<Choice> apart =
        s_.ChooseApart(candidates, avoided, [&](const std::vector<Candidate>& rest) {
          return ChooseFrom(replica, rest, workers_max, fewest, may_degrade || replica.has_served);
        });
    if (!apart) return ChooseFrom(replica, candidates, workers_max, fewest, may_degrade);
    if (!apart->degraded) return *std::move(apart);
    apart->why = StrCat("the link between workers \"", avoided->workers.first, "\" and \"",
                        avoided->workers.second, "\" has failed and is avoided for a while");
    if (!may_degrade) return absl::UnavailableError(apart->why);
    return *std::move(apart);
  }

  std::optional<Choice> WithoutFailing(const Replica& replica, std::vector<Candidate> candidates,
                                       bool may_degrade) const {
    if (!replica.waiting() || replica.failures < kFailuresMax || !may_degrade ||
        !s_.pool(replica).allow_degraded) {
      return std::nullopt;
    }
    const size_t count = s_.LeaveOutBlamed(candidates);
    if (count == 0) return std::nullopt;
    Result<Choice> choice = ChooseFrom(replica, candidates, 0, /*fewest=*/true, true);
    if (!choice.ok()) return std::nullopt;
    choice->why = StrCat(replica.failures, " attempts have failed; the ", count,
                         count == 1 ? " worker" : " workers", " that did are left out for now");
    return *std::move(choice);
  }

  Result<Choice> ChooseFrom(const Replica& replica, const std::vector<Candidate>& candidates,
                            int workers_max, bool fewest, bool may_degrade) const {
    const PoolConfig& pool = s_.pool(replica);
    PlacementPolicy policy = WantedPolicy(pool);
    policy.devices_max = workers_max;
    Result<Choice> choice = ChooseWith(replica, candidates, policy, fewest);
    const bool any_layout = pool.tensor_parallel == 0 && pool.pipeline_parallel == 0;
    may_degrade = may_degrade && pool.allow_degraded;
    if (choice.ok() || any_layout || !may_degrade || candidates.empty()) return choice;
    policy.tensor_parallel = policy.pipeline_parallel = 0;
    Result<Choice> other = ChooseWith(replica, candidates, policy, fewest);
    if (!other.ok()) {
      return Status(choice.status().code(),
                    StrCat(std::string(choice.status().message()),
                           "; in any other layout: ", std::string(other.status().message())));
    }
    other->degraded = true;
    other->why = std::string(choice.status().message());
    return other;
  }

  Result<Choice> ChooseWith(const Replica& replica, std::vector<Candidate> candidates,
                            PlacementPolicy policy, bool fewest) const {
    const PoolConfig& pool = s_.pool(replica);
    for (Candidate& candidate : candidates) {
      int64_t& memory = candidate.device.memory_bytes;
      if (memory > 0) memory = std::max<int64_t>(memory - pool.kv_memory_bytes, 1);
    }
    const size_t needed = static_cast<size_t>(std::max(policy.tensor_parallel, 1)) *
                          std::max(policy.pipeline_parallel, 1);
    if (candidates.size() < needed)
      return absl::UnavailableError(Missing(pool, candidates, needed));
    if (fewest) {
      ClusterShape cluster;
      for (const Candidate& candidate : candidates) {
        cluster.devices.push_back(candidate.device);
        cluster.machines.push_back(candidate.machine);
      }
      STAFFEL_ASSIGN_OR_RETURN(policy.devices_max, DevicesNeeded(pool.shape, cluster, policy));
    }
    return Choose(pool.shape, s_.options.link, policy, candidates, replica.seats);
  }

  static std::string Missing(const PoolConfig& pool, const std::vector<Candidate>& candidates,
                             size_t needed) {
    std::string text = StrCat("waits for ", needed - candidates.size(), " more worker",
                              needed - candidates.size() == 1 ? "" : "s");
    for (const auto& [key, value] : pool.labels) StrAppend(text, " with ", key, "=", value);
    if (needed > 1) {
      StrAppend(text, ": tensor parallel ", std::max(pool.tensor_parallel, 1),
                " times pipeline parallel ", std::max(pool.pipeline_parallel, 1), " needs ", needed,
                ", ", candidates.size(), candidates.size() == 1 ? " is" : " are", " free");
    }
    return text;
  }

  // Attempts of others that fail take workers for moments, again and again: the wait goes on.
  void NoteCandidates(Replica& replica) {
    if (replica.has_served) return;
    if (FreeFor(replica).empty()) {
      if (!replica.candidates_gone_at) replica.candidates_gone_at = s_.now;
      return;
    }
    const bool long_gone =
        replica.candidates_gone_at && s_.now - *replica.candidates_gone_at >= s_.options.settle;
    if (!replica.candidates_since || long_gone) replica.candidates_since = s_.now;
    replica.candidates_gone_at.reset();
  }

  // The first placement waits for the workers of the wanted layout, but not for ever.
  bool MayDegrade(const Replica& replica) {
    if (replica.has_served) return true;
    if (!replica.candidates_since || IsMutant(Mutant::kWaitForAll)) return false;
    const Time until =
        *replica.candidates_since + std::max(s_.options.worker_wait, s_.options.settle);
    Note(until);
    return until <= s_.now;
  }

  bool WaitsForMore(Replica& replica) {
    if (replica.has_served || !IsOpen(s_.pool(replica)) || !replica.candidates_since) return false;
    const Time until = std::min(s_.joined_at + s_.options.settle,
                                *replica.candidates_since + kSettlesMax * s_.options.settle);
    if (until <= s_.now) return false;
    replica.reason = "waits a moment for more workers";
    Note(until);
    return true;
  }

  // Each waiting replica gets what it needs, in order; then those that can use more share the rest.
  void PlaceWaiting() {
    std::vector<Wish> wishes;
    for (Replica& replica : s_.replicas) {
      if (!replica.waiting()) continue;
      held_back_.insert(replica.pool);
      NoteCandidates(replica);
      if (replica.retry_at > s_.now || WaitsForMore(replica)) {
        Note(replica.retry_at);
        continue;
      }
      const bool may_degrade = MayDegrade(replica);
      Result<Choice> choice = ChooseFewest(replica, free_, may_degrade);
      if (!choice.ok()) {
        lacking_.push_back(&replica);
        std::string reason(choice.status().message());
        const PoolConfig& pool = s_.pool(replica);
        const bool given = pool.tensor_parallel > 0 || pool.pipeline_parallel > 0;
        if (given && !may_degrade && !FreeFor(replica).empty() && pool.allow_degraded) {
          StrAppend(reason, "; fewer may serve after ",
                    std::chrono::ceil<std::chrono::seconds>(s_.options.worker_wait).count(), " s");
        }
        replica.reason = reason + s_.DescribeSetAside(replica.pool);
        if (replica.said != reason) {
          replica.said = reason;
          s_.Say(absl::IsUnavailable(choice.status()) ? LogLevel::kInfo : LogLevel::kWarning,
                 StrCat(s_.NameOf(replica), " is not placed: ", reason));
        }
        continue;
      }
      Remove(*choice, free_);
      wishes.push_back({&replica, *std::move(choice)});
    }
    for (size_t begin = 0, end = 0; begin < wishes.size(); begin = end) {
      while (end < wishes.size() && wishes[end].replica->pool == wishes[begin].replica->pool) ++end;
      ShareRest(absl::MakeSpan(wishes).subspan(begin, end - begin));
    }
    for (Wish& wish : wishes) {
      s_.Begin(*wish.replica, std::move(wish.choice), /*improving=*/false);
      if (!AnyWaits(wish.replica->pool)) held_back_.erase(wish.replica->pool);
    }
  }

  bool AnyWaits(int pool) const {
    return std::any_of(s_.replicas.begin(), s_.replicas.end(), [&](const Replica& replica) {
      return replica.pool == pool && replica.waiting();
    });
  }

  // As few workers as possible, none that another pool asks for by more labels if others do.
  Result<Choice> ChooseFewest(const Replica& replica, const std::vector<Candidate>& candidates,
                              bool may_degrade) const {
    const std::vector<Candidate> all = MatchingOf(replica, candidates);
    std::vector<Candidate> plain;
    for (const Candidate& candidate : all) {
      if (!IsSpecial(replica, s_.workers.at(candidate.worker))) plain.push_back(candidate);
    }
    if (plain.size() < all.size()) {
      Result<Choice> choice = ChooseFor(replica, plain, 0, /*fewest=*/true, false);
      if (choice.ok()) return choice;
    }
    return ChooseFor(replica, all, 0, /*fewest=*/true, may_degrade);
  }

  bool IsSpecial(const Replica& replica, const Worker& worker) const {
    const PoolConfig& own = s_.pool(replica);
    return std::any_of(s_.pools.begin(), s_.pools.end(), [&](const PoolConfig& pool) {
      return pool.labels.size() > own.labels.size() && s_.LabelsMatch(pool, worker);
    });
  }

  // A replica that cannot be placed gets workers of others that can do without them.
  void TakeFromOthers() {
    if (IsMutant(Mutant::kHoard)) return;
    for (Replica* replica : lacking_) {
      std::vector<Wish> wishes = PlanTaking(*replica);
      if (!wishes.empty()) Take(*replica, std::move(wishes));
    }
  }

  // `replica` in its wanted layout, and those it takes workers from with what is left: one of them,
  // the last first, or else several. Empty: impossible.
  std::vector<Wish> PlanTaking(Replica& replica) {
    std::vector<Replica*> all;
    for (auto donor = s_.replicas.rbegin(); donor != s_.replicas.rend(); ++donor) {
      if (donor->serving() && &*donor != &replica) all.push_back(&*donor);
    }
    for (Replica* donor : all) {
      std::vector<Wish> wishes = PlanTakingFrom(replica, {donor});
      if (!wishes.empty()) return wishes;
    }
    return all.size() > 1 ? PlanTakingFrom(replica, all) : std::vector<Wish>();
  }

  std::vector<Wish> PlanTakingFrom(Replica& replica, const std::vector<Replica*>& donors) {
    std::vector<Candidate> rest = free_;
    for (WorkerId member : replica.members) {
      const Worker& worker = s_.workers.at(member);
      if (!worker.leaving) rest.push_back(CandidateOf(worker, replica.id));
    }
    for (const Replica* donor : donors) {
      for (WorkerId member : donor->members) {
        const Worker& worker = s_.workers.at(member);
        if (worker.leaving) return {};  // the donor is about to change anyway
        rest.push_back(CandidateOf(worker, donor->id));
      }
    }
    // Those that can take few workers choose first.
    std::vector<Replica*> order = {&replica};
    order.insert(order.end(), donors.begin(), donors.end());
    std::stable_sort(order.begin(), order.end(), [&](const Replica* a, const Replica* b) {
      return s_.pool(*a).labels.size() > s_.pool(*b).labels.size();
    });
    std::vector<Wish> wishes;
    for (Replica* each : order) {
      Result<Choice> choice = ChooseFewest(*each, rest, each != &replica && each->degraded);
      if (!choice.ok()) return {};
      Remove(*choice, rest);
      wishes.push_back({each, *std::move(choice)});
    }
    return wishes;
  }

  void Take(const Replica& taker, std::vector<Wish> wishes) {
    const std::string reason = StrCat(s_.NameOf(taker), " needs workers of other replicas");
    for (const Wish& wish : wishes) {
      if (!wish.replica->serving()) continue;
      s_.EndServing(*wish.replica, absl::UnavailableError(reason), /*planned=*/true);
    }
    CollectFree();
    for (Wish& wish : wishes) {
      Remove(wish.choice, free_);
      s_.Begin(*wish.replica, std::move(wish.choice), /*improving=*/false);
    }
  }

  // Wishes of one pool: those with an open layout divide what they and nobody have.
  void ShareRest(absl::Span<Wish> wishes) {
    std::vector<Wish*> open;
    for (Wish& wish : wishes) {
      if (wish.choice.degraded || IsOpen(s_.pool(*wish.replica))) open.push_back(&wish);
    }
    if (open.empty()) return;
    std::vector<Candidate> rest = FreeFor(*open[0]->replica);
    for (const Wish* wish : open) {
      for (WorkerId worker : wish->choice.workers) {
        rest.push_back(CandidateOf(s_.workers.at(worker)));
      }
    }
    SortByName(rest);
    std::vector<Choice> choices;
    for (size_t i = 0; i < open.size(); ++i) {
      const size_t left = open.size() - i;
      Result<Choice> choice =
          ChooseFor(*open[i]->replica, rest, static_cast<int>((rest.size() + left - 1) / left),
                    /*fewest=*/false, MayDegrade(*open[i]->replica));
      if (!choice.ok()) return;  // what each needs is reserved
      Remove(*choice, rest);
      choices.push_back(*std::move(choice));
    }
    for (size_t i = 0; i < open.size(); ++i) {
      for (WorkerId worker : open[i]->choice.workers) {
        free_.push_back(CandidateOf(s_.workers.at(worker)));
      }
    }
    for (size_t i = 0; i < open.size(); ++i) {
      Remove(choices[i], free_);
      open[i]->choice = std::move(choices[i]);
    }
    SortByName(free_);
  }

  // A worker that comes back early in a degraded attempt.
  void RestartDegraded() {
    for (Replica& replica : s_.replicas) {
      if (!replica.attempting() || !replica.degraded) continue;
      double share = 1;
      for (WorkerId member : replica.members) {
        share = std::min(share, s_.workers.at(member).load_share);
      }
      if (share >= kLateToRestart) continue;
      Result<Choice> choice = ChooseFor(replica, OwnAndFree(replica), 0, /*fewest=*/false,
                                        /*may_degrade=*/false);
      if (!choice.ok()) continue;
      s_.LeaveEpoch(replica, "workers for the wanted layout are here");
      Remove(*choice, free_);
      s_.Begin(replica, *std::move(choice), /*improving=*/false);
    }
  }

  // Before a worker leaves: over to others, or to fewer; while nobody can, it serves on.
  void HandOver() {
    for (Replica& replica : s_.replicas) {
      const Worker* leaver = nullptr;
      for (WorkerId member : replica.members) {
        if (s_.workers.at(member).leaving) leaver = &s_.workers.at(member);
      }
      if (leaver == nullptr || IsMutant(Mutant::kKeepLeavers)) continue;
      Result<Choice> choice = ChooseFor(replica, OwnAndFree(replica), 0, /*fewest=*/false,
                                        /*may_degrade=*/replica.has_served);
      if (!choice.ok()) {
        SayWhyNotHandedOver(replica, *leaver, choice.status());
        continue;
      }
      const std::string reason = StrCat(s_.DescribeRank(*leaver), " leaves");
      if (replica.serving()) {
        Change(replica, *std::move(choice), reason, /*improving=*/false);
      } else {
        s_.LeaveEpoch(replica, reason);
        Remove(*choice, free_);
        s_.Begin(replica, *std::move(choice), /*improving=*/false);
      }
    }
  }

  void SayWhyNotHandedOver(Replica& replica, const Worker& leaver, const Status& status) {
    const std::string text =
        StrCat(s_.DescribeRank(leaver),
               " is about to leave, but nobody can take over: ", std::string(status.message()),
               "; it serves on until it ends, at most ",
               static_cast<int64_t>(std::ceil(leaver.leaving_grace_s)), " s");
    if (replica.serving()) replica.reason = text;
    if (replica.said == text) return;
    replica.said = text;
    s_.Say(LogLevel::kWarning, text);
  }

  void Improve() {
    std::vector<Replica*> order;  // small ones first
    for (Replica& replica : s_.replicas) {
      if (replica.serving()) order.push_back(&replica);
    }
    std::stable_sort(order.begin(), order.end(), [](const Replica* a, const Replica* b) {
      return a->members.size() < b->members.size();
    });
    for (Replica* replica : order) {
      if (!replica->serving()) continue;  // has given workers to another
      std::vector<Wish> wishes = PlanBetter(*replica);
      if (wishes.empty()) {
        replica->improvable_since.reset();
        continue;
      }
      if (!replica->improvable_since) replica->improvable_since = s_.now;
      const Time since = *replica->improvable_since;
      const Time quiet =
          std::min(s_.joined_at + s_.options.settle, since + kSettlesMax * s_.options.settle);
      const Time due = std::max(replica->idle ? quiet : since + s_.options.improve_patience,
                                replica->improve_after);
      if (due > s_.now) {
        Note(due);
      } else if (wishes.size() > 1) {
        Take(*replica, std::move(wishes));
      } else {
        const size_t count = wishes[0].choice.workers.size();
        Change(*replica, std::move(wishes[0].choice),
               StrCat("a better layout over ", count, " workers is possible"), /*improving=*/true);
      }
    }
  }

  // A better layout with free workers, or the wanted one with workers of others.
  std::vector<Wish> PlanBetter(Replica& replica) {
    std::vector<Wish> wishes;
    std::vector<Candidate> candidates = OwnAndFree(replica);
    std::erase_if(candidates, [&](const Candidate& candidate) {
      const Worker& worker = s_.workers.at(candidate.worker);
      return !worker.replica.valid() && IsHeldBack(worker, replica);
    });
    if (candidates.size() > replica.members.size()) {
      Result<Choice> choice =
          ChooseFor(replica, candidates, 0, /*fewest=*/false, /*may_degrade=*/true);
      if (choice.ok() && IsBetter(replica, *choice)) {
        wishes.push_back({&replica, *std::move(choice)});
        return wishes;
      }
    }
    const bool take = replica.degraded && !IsMutant(Mutant::kStayDegraded);
    return take ? PlanTaking(replica) : wishes;
  }

  // Workers that a waiting replica may need are kept for it; but what a pool asked for at least
  // comes before the needs of later pools.
  bool IsHeldBack(const Worker& worker, const Replica& replica) const {
    return std::any_of(held_back_.begin(), held_back_.end(), [&](int pool) {
      return s_.LabelsMatch(s_.pools[pool], worker) && !(replica.degraded && replica.pool <= pool);
    });
  }

  bool IsBetter(const Replica& replica, const Choice& choice) const {
    if (replica.degraded && IsMutant(Mutant::kStayDegraded)) return false;
    if (IsMutant(Mutant::kRestless)) return true;
    if (replica.degraded != choice.degraded) return replica.degraded;
    const bool open = replica.degraded || IsOpen(s_.pool(replica));
    return open && choice.placement.cost_s * kWorthAChange < replica.placement.cost_s;
  }

  void Change(Replica& replica, Choice choice, const std::string& reason, bool improving) {
    s_.EndServing(replica, absl::UnavailableError(reason), /*planned=*/true);
    Remove(choice, free_);
    s_.Begin(replica, std::move(choice), improving);
  }

  State& s_;
  std::vector<Candidate> free_;    // no rank of a replica, may be one; in the order of joining
  std::set<int> held_back_;        // pools with a replica that waits
  std::vector<Replica*> lacking_;  // replicas that free workers do not suffice for
};

}  // namespace

void State::Place() {
  replace = false;
  Placer(*this).Run();
}

}  // namespace staffel::cluster
