// Broken links between ranks that both live: found by what heartbeats tell of waits, kept in mind
// while placing.
//
// A rank that computes for long keeps others waiting, but waits for nobody itself. Only where the
// awaited rank has sent all it had to (its step is over), or waits as well, in a circle, is nothing
// on its way: what has been sent does not arrive.
#include <algorithm>

#include "base/strings.h"
#include "cluster/state.h"

namespace staffel::cluster {
namespace {

// Heartbeats that must tell of one and the same wait: a process that was stopped for a while tells
// of a long wait once, before it has looked at its links.
constexpr int kBeatsMin = 4;
constexpr size_t kLinksMax = 1000;
// Links that are avoided in one choice; each doubles the search.
constexpr int kApartMax = 4;

}  // namespace

void State::NoteWaiting(Worker& worker, const Heartbeat& beat) {
  const Heartbeat& last = worker.heartbeat;
  const bool same = beat.waiting_for >= 0 && beat.waiting_for == last.waiting_for &&
                    beat.running_step == last.running_step && beat.collective == last.collective &&
                    beat.waiting_s >= last.waiting_s;
  if (same) {
    ++worker.cut_beats;
  } else {
    worker.cut_since.reset();
  }
}

// The rank for whose data `rank` waits although nothing can be on its way any more, or -1.
int State::CutFrom(const Replica& replica, int rank) const {
  const auto worker_of = [&](int r) -> const Worker& { return workers.at(replica.members[r]); };
  const int ranks = static_cast<int>(replica.members.size());
  // Whom a rank waits for; -1: nobody, or nothing is known of late.
  const auto awaited_by = [&](int r) {
    const Worker& worker = worker_of(r);
    const int peer = worker.heartbeat.waiting_for;
    const bool fresh =
        worker.heartbeat_at != Time{} && now - worker.heartbeat_at < options.link_stall;
    return fresh && worker.heartbeat.in_step && peer < ranks && peer != r ? peer : -1;
  };
  const int peer = awaited_by(rank);
  if (peer < 0 || IsMutant(Mutant::kOverlookLink)) return -1;
  if (IsMutant(Mutant::kHastyLink)) return peer;
  const Worker& awaited = worker_of(peer);
  if (awaited.heartbeat_at != Time{} && now - awaited.heartbeat_at < options.link_stall &&
      awaited.heartbeat.step >= worker_of(rank).heartbeat.running_step) {
    return peer;
  }
  // Along the waits: a circle that leads back here. Its oldest wait began it.
  int at = peer, oldest = rank;
  for (int hops = 0; hops < ranks; ++hops) {
    const int next = awaited_by(at);
    if (next < 0) return -1;
    if (worker_of(at).heartbeat.waiting_s > worker_of(oldest).heartbeat.waiting_s) oldest = at;
    at = next;
    if (at == rank) return hops == 0 || oldest == rank ? peer : -1;
  }
  return -1;
}

// What a rank has sent at the end of a long step is told by its own heartbeat before the next one
// of those that waited for it: a cut must last.
bool State::CheckLinks(Replica& replica) {
  int cut_rank = -1, cut_peer = -1;
  for (int rank = 0; rank < static_cast<int>(replica.members.size()); ++rank) {
    Worker& worker = workers.at(replica.members[rank]);
    const int peer = CutFrom(replica, rank);
    if (peer < 0) {
      worker.cut_since.reset();
    } else if (!worker.cut_since) {
      worker.cut_since = now;
      worker.cut_beats = 0;
    } else if (now - *worker.cut_since >= options.link_stall && worker.cut_beats >= kBeatsMin &&
               cut_rank < 0) {
      cut_rank = rank;
      cut_peer = peer;
    }
  }
  if (cut_rank < 0) return false;
  LinkBroken(replica, cut_rank, cut_peer);
  return true;
}

void State::LinkBroken(Replica& replica, int rank, int peer) {
  const Worker& waiter = workers.at(replica.members[rank]);
  const Worker& awaited = workers.at(replica.members[peer]);
  const Heartbeat& beat = waiter.heartbeat;
  const bool done = awaited.heartbeat.step >= beat.running_step;
  const auto end_of = [&](const Worker& worker) {
    return StrCat("rank ", worker.rank, ", ", Describe(worker), " (",
                  worker.capacity ? worker.capacity->comm_address.substr(
                                        0, worker.capacity->comm_address.find('?'))
                                  : "",
                  ")");
  };
  const std::string text = StrCat(
      "the data link between ", end_of(waiter), " and ", end_of(awaited), " is broken: in step ",
      beat.running_step, ", after collective ", beat.collective, ", rank ", rank,
      " has waited for rank ", peer, " for ", static_cast<int64_t>(beat.waiting_s * 1000),
      " ms, and ", done ? "that one has finished the step" : "that one waits as well");
  SuspectLink(waiter, awaited, text);
  const bool proven = now - replica.phase_since >= options.proven_after;
  EndServing(replica, absl::UnavailableError(text), /*planned=*/false);
  if (!proven) ++replica.failures;
  if (!proven && replica.improving) HoldImprovements(replica);
  // At once the first time: over other links, or fresh connections.
  replica.retry_at = now + Backoff(options.retry_min, options.retry_max, replica.failures - 1);
}

std::pair<std::string, std::string> State::LinkKey(const Worker& a, const Worker& b) {
  // Between machines: all workers there share what lies between.
  const bool apart = a.hello.machine != b.hello.machine;
  const std::string& x = apart ? a.hello.machine : a.hello.name;
  const std::string& y = apart ? b.hello.machine : b.hello.name;
  return std::minmax(x, y);
}

void State::SuspectLink(const Worker& a, const Worker& b, const std::string& reason) {
  if (links.size() > kLinksMax) {
    std::erase_if(links, [&](const auto& link) { return link.second.avoid_until <= now; });
  }
  LinkRecord& link = links[LinkKey(a, b)];
  link.workers = {a.hello.name, b.hello.name};
  link.hosts = {a.hello.host, b.hello.host};
  link.machines_apart = a.hello.machine != b.hello.machine;
  link.reason = reason;
  link.broken_at = now;
  ++link.total;
  link.avoid_until = now + Backoff(options.link_avoid_min, options.link_avoid_max, ++link.failures);
  replace = true;
}

const LinkRecord* State::AvoidedLink(WorkerId a, WorkerId b) const {
  if (links.empty()) return nullptr;
  const auto link = links.find(LinkKey(workers.at(a), workers.at(b)));
  return link == links.end() || link->second.avoid_until <= now ? nullptr : &link->second;
}

std::optional<Choice> State::ChooseApart(
    const std::vector<Candidate>& candidates, const LinkRecord*& avoided,
    const std::function<Result<Choice>(const std::vector<Candidate>&)>& choose, int depth) const {
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (size_t j = i + 1; j < candidates.size(); ++j) {
      const LinkRecord* link = AvoidedLink(candidates[i].worker, candidates[j].worker);
      if (link == nullptr) continue;
      avoided = link;
      if (depth == kApartMax) return std::nullopt;
      std::optional<Choice> best;
      for (const Candidate& out : {candidates[j], candidates[i]}) {
        // All that are at the same end of the link go.
        std::vector<Candidate> rest = candidates;
        std::erase_if(rest, [&](const Candidate& candidate) {
          return link->machines_apart ? candidate.machine == out.machine
                                      : candidate.name == out.name;
        });
        if (rest.empty()) continue;
        const LinkRecord* inner = nullptr;
        std::optional<Choice> choice = ChooseApart(rest, inner, choose, depth + 1);
        if (inner == nullptr) {
          if (Result<Choice> plain = choose(rest); plain.ok()) choice = *std::move(plain);
        }
        if (choice && (!best || std::pair(choice->degraded, choice->placement.cost_s) <
                                    std::pair(best->degraded, best->placement.cost_s))) {
          best = std::move(choice);
        }
      }
      return best;
    }
  }
  return std::nullopt;
}

// An epoch has shown that links between its members work.
void State::ForgiveLinks(const Replica& replica) {
  for (WorkerId a : replica.members) {
    for (WorkerId b : replica.members) {
      if (!a.valid() || !b.valid() || a == b) continue;
      const auto link = links.find(LinkKey(workers.at(a), workers.at(b)));
      if (link != links.end() && link->second.broken_at < replica.phase_since) {
        link->second.failures = 0;
      }
    }
  }
}

}  // namespace staffel::cluster
