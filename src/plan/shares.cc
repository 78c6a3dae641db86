#include "plan/shares.h"

#include <queue>
#include <utility>

#include "base/check.h"

namespace staffel {

std::vector<int> Apportion(int count, double cost, absl::Span<const double> load,
                           absl::Span<const double> speeds) {
  const std::vector<int> no_limits(speeds.size(), count);
  return *ApportionWithin(count, cost, load, speeds, no_limits);
}

std::optional<std::vector<int>> ApportionWithin(int count, double cost,
                                                absl::Span<const double> load,
                                                absl::Span<const double> speeds,
                                                absl::Span<const int> limits) {
  const int ranks = static_cast<int>(speeds.size());
  STAFFEL_CHECK_GE(count, ranks);
  STAFFEL_CHECK_EQ(load.size(), speeds.size());
  STAFFEL_CHECK_EQ(limits.size(), speeds.size());
  // By the time at which the rank would end with one unit more.
  using End = std::pair<double, int>;
  std::priority_queue<End, std::vector<End>, std::greater<End>> soonest;
  std::vector<int> shares(ranks, 1);
  auto offer = [&](int rank) {
    if (shares[rank] < limits[rank]) {
      soonest.push({(load[rank] + cost * (shares[rank] + 1)) / speeds[rank], rank});
    }
  };
  for (int rank = 0; rank < ranks; ++rank) {
    if (limits[rank] < 1) return std::nullopt;
    offer(rank);
  }
  for (int left = count - ranks; left > 0; --left) {
    if (soonest.empty()) return std::nullopt;
    const int rank = soonest.top().second;
    soonest.pop();
    ++shares[rank];
    offer(rank);
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
