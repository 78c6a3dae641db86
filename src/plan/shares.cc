#include "plan/shares.h"

#include "base/check.h"

namespace staffel {

std::vector<int> Apportion(int count, double cost, absl::Span<const double> load,
                           absl::Span<const double> speeds) {
  const int ranks = static_cast<int>(speeds.size());
  STAFFEL_CHECK_GE(count, ranks);
  STAFFEL_CHECK_EQ(load.size(), speeds.size());
  std::vector<int> shares(ranks, 1);
  for (int left = count - ranks; left > 0; --left) {
    int soonest = 0;
    double soonest_end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      double end = (load[rank] + cost * (shares[rank] + 1)) / speeds[rank];
      if (rank == 0 || end < soonest_end) {
        soonest = rank;
        soonest_end = end;
      }
    }
    ++shares[soonest];
  }
  return shares;
}

std::vector<Range> RangesOf(absl::Span<const int> sizes, int granule) {
  std::vector<Range> ranges;
  int begin = 0;
  for (int size : sizes) {
    ranges.push_back({begin, begin + size * granule});
    begin = ranges.back().end;
  }
  return ranges;
}

}  // namespace staffel
