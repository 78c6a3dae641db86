#include "app/busy_shares.h"

#include <algorithm>

namespace staffel {
namespace {

constexpr Duration kDistance = std::chrono::milliseconds(500);

}  // namespace

void BusyShares::Hear(Time now, WorkerId worker, const Heartbeat& heartbeat) {
  Series& series = series_[worker];
  // Totals are of an epoch.
  if (series.replica != heartbeat.replica || series.epoch != heartbeat.epoch) series = Series();
  series.replica = heartbeat.replica;
  series.epoch = heartbeat.epoch;
  series.last = {now, heartbeat.compute_s};
  if (series.kept.empty() || now - series.kept.back().at >= kDistance) {
    series.kept.push_back(series.last);
  }
  while (series.kept.size() > 1 && now - series.kept[1].at >= kWindow) series.kept.pop_front();
}

double BusyShares::Share(WorkerId worker) const {
  const auto found = series_.find(worker);
  if (found == series_.end() || !found->second.replica.valid()) return -1;
  const Series& series = found->second;
  const double elapsed_s =
      std::chrono::duration<double>(series.last.at - series.kept.front().at).count();
  if (elapsed_s <= 0) return -1;
  // The total goes back a little where a wait that has just ended was taken for computing.
  return std::clamp((series.last.compute_s - series.kept.front().compute_s) / elapsed_s, 0.0, 1.0);
}

}  // namespace staffel
