// What happens because nothing happens.
#include <algorithm>

#include "base/check.h"
#include "base/strings.h"
#include "cluster/state.h"

namespace staffel::cluster {
namespace {

int64_t Seconds(Duration duration) {
  return std::chrono::floor<std::chrono::seconds>(duration).count();
}

}  // namespace

void State::CheckTimers(Replica& replica) {
  if (replica.phase == Phase::kConfiguring && !IsMutant(Mutant::kOverlookTimeout) &&
      now >= replica.phase_since + options.capacity_timeout) {
    std::string text;
    for (WorkerId member : replica.members) {
      const Worker& worker = workers.at(member);
      if (worker.capacity) continue;
      const Status reason = absl::DeadlineExceededError(
          StrCat("no answer to Configure within ", Seconds(options.capacity_timeout), " s"));
      if (text.empty()) {
        text = StrCat(DescribeRank(worker), " gave ", std::string(reason.message()));
      }
      SetAside(worker, reason);
    }
    FailAttempt(replica, text, /*counts=*/true);
  } else if (replica.phase == Phase::kLoading && now >= replica.blame_at) {
    JudgeForming(replica);
  } else if (replica.phase == Phase::kLoading && now >= replica.progress_at + options.load_stall &&
             !IsMutant(Mutant::kOverlookStall)) {
    // Ranks that are done wait for the slowest: it is to blame.
    Worker* slowest = nullptr;
    for (WorkerId member : replica.members) {
      Worker& worker = workers.at(member);
      if (worker.formed) continue;
      if (slowest == nullptr || worker.load_share < slowest->load_share) slowest = &worker;
    }
    STAFFEL_CHECK(slowest != nullptr);
    const Status reason = absl::DeadlineExceededError(
        StrCat("no progress for ", Seconds(options.load_stall), " s at ",
               static_cast<int>(100 * slowest->load_share), " % of its weights"));
    SetAside(*slowest, reason);
    FailAttempt(replica,
                StrCat(DescribeRank(*slowest), " has made ", std::string(reason.message())),
                /*counts=*/true);
  } else if (replica.serving()) {
    CheckServing(replica);
  }
  GiveUpIfDue(replica);
}

void State::CheckServing(Replica& replica) {
  Time progress_at = replica.phase_since;
  bool in_step = false;
  const Worker* behind = nullptr;  // in a step, with the fewest collectives
  for (size_t rank = 0; rank < replica.members.size(); ++rank) {
    const Worker& worker = workers.at(replica.members[rank]);
    if (now >= worker.agreed_at + options.wrong_epoch_wait && worker.heard_at > worker.agreed_at) {
      StepFailed(replica, static_cast<int>(rank),
                 absl::InternalError(StrCat("its heartbeats have not named epoch ", replica.epoch,
                                            " for ", Seconds(now - worker.agreed_at), " s")));
      return;
    }
    progress_at = std::max(progress_at, worker.progress_at);
    if (!worker.heartbeat.in_step) continue;
    in_step = true;
    if (behind == nullptr || worker.heartbeat.collective < behind->heartbeat.collective) {
      behind = &worker;
    }
  }
  if (CheckLinks(replica)) return;
  if (in_step && now >= progress_at + options.step_stall && !IsMutant(Mutant::kOverlookHang)) {
    StepFailed(replica, behind->rank,
               absl::DeadlineExceededError(
                   StrCat("no rank has finished a collective for ", Seconds(now - progress_at),
                          " s; this one is behind, at collective ", behind->heartbeat.collective,
                          " after step ", behind->heartbeat.step)));
  }
}

Time State::TimerOf(const Replica& replica) const {
  Time due = Time::max();
  if (replica.loss_open && replica.waiting() && !IsMutant(Mutant::kNeverGiveUp))
    due = replica.lost_at + options.worker_wait;
  if (replica.phase == Phase::kConfiguring) {
    if (IsMutant(Mutant::kOverlookTimeout)) return due;
    due = std::min(due, replica.phase_since + options.capacity_timeout);
  } else if (replica.phase == Phase::kLoading) {
    if (IsMutant(Mutant::kOverlookStall)) return std::min(due, replica.blame_at);
    due = std::min({due, replica.blame_at, replica.progress_at + options.load_stall});
  } else if (replica.serving()) {
    Time progress_at = replica.phase_since;
    bool in_step = false;
    for (WorkerId member : replica.members) {
      const Worker& worker = workers.at(member);
      if (worker.heard_at > worker.agreed_at) {
        due = std::min(due, worker.agreed_at + options.wrong_epoch_wait);
      }
      progress_at = std::max(progress_at, worker.progress_at);
      in_step = in_step || worker.heartbeat.in_step;
    }
    if (in_step && !IsMutant(Mutant::kOverlookHang))
      due = std::min(due, progress_at + options.step_stall);
  }
  return due;
}

}  // namespace staffel::cluster
