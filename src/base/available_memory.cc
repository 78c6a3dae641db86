#include "base/available_memory.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace staffel {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The number after `name` on a line of its own ("MemAvailable:  123 kB"), in the file's unit.
std::optional<int64_t> ReadField(const std::string& path, std::string_view name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t number = 0;
    if (words >> key >> number && key == name) return number;
  }
  return std::nullopt;
}

// A file that holds one number; "max" and the like are no limit.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  int64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

// What a cgroup folder leaves: its limit less what is used, page cache not counted.
int64_t CgroupFree(const std::string& folder, const char* limit_file, const char* usage_file) {
  const std::optional<int64_t> limit = ReadNumber(folder + "/" + limit_file);
  const std::optional<int64_t> usage = ReadNumber(folder + "/" + usage_file);
  if (!limit || !usage) return kNoLimit;
  const std::string stat = folder + "/memory.stat";
  const int64_t cache =
      ReadField(stat, "inactive_file").value_or(0) + ReadField(stat, "active_file").value_or(0);
  return std::max<int64_t>(0, *limit - *usage + cache);
}

// The limits of a process's cgroup and of all above it. /proc/self/cgroup has lines
// "hierarchy:controllers:/path"; inside a container the path may lie outside of what is mounted, so
// the mount's own root counts always.
// folder: the one that leaves least.
int64_t CgroupsFree(const std::string& root, std::string* folder) {
  int64_t free = kNoLimit;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t controllers = line.find(':'), path = line.find(':', controllers + 1);
    if (controllers == line.npos || path == line.npos) continue;
    const std::string names = line.substr(controllers + 1, path - controllers - 1);
    const bool v2 = names.empty();
    if (!v2 && names.find("memory") == names.npos) continue;
    const std::string mount = root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (std::string group = line.substr(path + 1);;) {
      const int64_t left = CgroupFree(mount + group, v2 ? "memory.max" : "memory.limit_in_bytes",
                                      v2 ? "memory.current" : "memory.usage_in_bytes");
      if (left < free) {
        free = left;
        *folder = mount + group;
      }
      if (group.empty()) break;
      group.resize(group.rfind('/') == group.npos ? 0 : group.rfind('/'));
    }
  }
  return free;
}

int64_t AddressSpaceFree(const std::string& root) {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const int64_t used_kib = ReadField(root + "/proc/self/status", "VmSize:").value_or(0);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used_kib * 1024);
}

}  // namespace

MemorySupply AvailableMemory(const std::string& root) {
  const std::optional<int64_t> system_kib = ReadField(root + "/proc/meminfo", "MemAvailable:");
  const int64_t system = system_kib ? *system_kib * 1024 : kNoLimit;
  std::string folder;
  const int64_t cgroups = CgroupsFree(root, &folder);
  const int64_t own = AddressSpaceFree(root);
  if (own < std::min(system, cgroups)) return {own, ""};
  std::string kernel;
  std::ifstream(root + "/proc/sys/kernel/random/boot_id") >> kernel;
  if (kernel.empty()) return {std::min(system, cgroups), ""};
  if (system <= cgroups) return {system, kernel};
  // Its path is another one in each container, its number is not.
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return {cgroups, kernel};
  return {cgroups, kernel + "/cgroup-" + std::to_string(status.st_ino)};
}

int64_t AvailableMemoryBytes(const std::string& root) { return AvailableMemory(root).bytes; }

}  // namespace staffel
