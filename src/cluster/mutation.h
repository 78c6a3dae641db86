// Planted bugs for the mutation check (tests/sim/cluster): a build with STAFFEL_MUTANTS can switch
// one on at run time; everywhere else the switch is the constant false and leaves no code.
#pragma once

namespace staffel::cluster {

enum class Mutant {
  kNone,
  kFormEarly,        // Form goes out when one Capacity is missing
  kKeepEpoch,        // an attempt does not raise the epoch
  kAcceptOldEpoch,   // answers of another epoch count
  kServeEarly,       // one Formed is enough
  kForgetAbort,      // survivors are not told that their epoch is over
  kForgetRelease,    // a leaver that has nothing to do is not let go
  kKeepLeavers,      // a leaving worker is kept although others could do without
  kUseLeavers,       // a leaving worker is placed again
  kWaitForAll,       // the first placement waits for all workers for ever
  kIgnoreLabels,     // any worker will do
  kNoBackoff,        // a failed attempt is repeated at once
  kOverlookLoss,     // a rank lost while serving is not told
  kOverlookTimeout,  // a missing Capacity is waited for without end
  kOverlookStall,    // likewise a load that stands still
  kOverlookHang,     // likewise a step that stands still
  kOverlookLink,     // likewise a broken link
  kHastyLink,        // a rank that computes for long is taken for a broken link
  kStayDegraded,     // the wanted layout is not returned to
  kHoard,            // a replica keeps workers that another needs
  kLargestPool,      // the block count is that of the rank with most memory
  kPromiseTwice,     // workers that share memory each get all of it
  kGiveUpTwice,      // a loss is given up again and again
  kNeverGiveUp,      // and this one never
  kRestless,         // every layout is worse than the next
  kForgetBlame,      // a failed Formed is not judged until all have answered
  kEnd
};

#if defined(STAFFEL_MUTANTS)
extern Mutant active_mutant;
inline bool IsMutant(Mutant mutant) { return active_mutant == mutant; }
#else
constexpr bool IsMutant(Mutant) { return false; }
#endif

}  // namespace staffel::cluster
