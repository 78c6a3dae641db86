// The timing table of CpuExecutable.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "device/cpu/executable.h"
#include "device/program_check.h"

namespace staffel::cpu {
namespace {

// What a launch is called in the table: its op, or what it does for the op.
std::string NameOf(const Launch& launch, const Program& program) {
  const Op& op = program.ops[launch.op];
  if (std::holds_alternative<PrepareLaunch>(launch.kind)) {
    return std::holds_alternative<AddRmsNormOp>(op) ? "AddRmsNorm" : "Convert";
  }
  if (const auto* attention = std::get_if<AttentionLaunch>(&launch.kind)) {
    if (attention->rope >= 0 && attention->attend >= 0) return "Rope+PagedAttention";
  }
  if (const auto* linear = std::get_if<LinearOp>(&op)) {
    return std::string("Linear ") +
           program.value(linear->out)
               .name.substr(program.value(linear->out).name.find_last_of('.') + 1);
  }
  return OpName(op);
}

}  // namespace

std::string CpuExecutable::TakeTimingReport() {
  if (!parts_.timing || steps_ == 0) return "";
  std::map<std::string, LaunchTime> kinds;
  int64_t total = 0;
  for (size_t i = 0; i < times_.size(); ++i) {
    LaunchTime& kind = kinds[NameOf(parts_.plan.launches[i], parts_.program)];
    kind.nanoseconds += times_[i].nanoseconds;
    kind.runs += times_[i].runs;
    total += times_[i].nanoseconds;
    times_[i] = {};
  }
  std::vector<std::pair<std::string, LaunchTime>> order(kinds.begin(), kinds.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.nanoseconds > b.second.nanoseconds;
  });
  std::string table;
  char line[160];
  std::snprintf(line, sizeof line, "%-24s %10s %12s %7s\n", "op", "runs/step", "us/step", "share");
  table += line;
  for (const auto& [name, time] : order) {
    std::snprintf(line, sizeof line, "%-24s %10.1f %12.1f %6.1f%%\n", name.c_str(),
                  static_cast<double>(time.runs) / steps_, time.nanoseconds * 1e-3 / steps_,
                  100.0 * time.nanoseconds / std::max<int64_t>(1, total));
    table += line;
  }
  steps_ = 0;
  return table;
}

}  // namespace staffel::cpu
