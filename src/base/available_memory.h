// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace staffel {

// The least of: memory the system could give without swapping (MemAvailable), what is left below
// the limits of this process's cgroup and those above it (cgroup v2, or v1's memory controller;
// page cache counts as free), and what RLIMIT_AS leaves. `root` is put before /proc and /sys
// (tests).
int64_t AvailableMemoryBytes(const std::string& root = "");

struct MemorySupply {
  int64_t bytes = 0;  // AvailableMemoryBytes
  // Names the limit that it comes from: equal for two processes that each could take it all (this
  // kernel's memory, a cgroup). "": a limit of this process alone.
  std::string pool;
};
MemorySupply AvailableMemory(const std::string& root = "");

}  // namespace staffel
