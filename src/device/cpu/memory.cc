#include "device/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "base/strings.h"

namespace staffel::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::string Gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

// The number in a one-line file; kNoLimit if there is none ("max", no such file).
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kNoLimit;
}

// The value after `key` in a file of "key value" lines, in the file's own unit; `absent` if there
// is none.
int64_t ReadKey(const std::string& path, const std::string& key, int64_t absent) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  while (file >> word) {
    if (word == key && file >> number) return number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return absent;
}

// Room left under one cgroup's limit; file pages that it could drop count as room.
int64_t CgroupRoom(const std::string& folder, const char* limit_file, const char* usage_file) {
  const int64_t limit = ReadNumber(folder + limit_file);
  const int64_t usage = ReadNumber(folder + usage_file);
  if (limit == kNoLimit || usage == kNoLimit) return kNoLimit;
  const int64_t reclaimable = ReadKey(folder + "/memory.stat", "inactive_file", 0);
  return std::max<int64_t>(0, limit - usage + reclaimable);
}

// Least room of the process's own cgroup and all above it.
int64_t AllCgroupsRoom() {
  int64_t room = kNoLimit;
  std::ifstream list("/proc/self/cgroup");  // "0::/a/b" (v2), "7:memory:/a/b" (v1)
  for (std::string line; std::getline(list, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    for (;;) {
      if (path == "/") path.clear();
      room = std::min(
          room, v2 ? CgroupRoom(root + path, "/memory.max", "/memory.current")
                   : CgroupRoom(root + path, "/memory.limit_in_bytes", "/memory.usage_in_bytes"));
      if (path.empty()) break;
      path.resize(path.find_last_of('/'));
    }
  }
  return room;
}

}  // namespace

Result<HugeMemory> HugeMemory::Map(int64_t bytes, std::string_view what) {
  // One huge page more than asked for, so that an aligned start can be cut out.
  const int64_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat("The system refuses ", Gigabytes(size), " of address space for ", what, "."));
  }
  auto* start = static_cast<uint8_t*>(map);
  const int64_t skip = (kHugePage - reinterpret_cast<intptr_t>(start) % kHugePage) % kHugePage;
  if (skip > 0) munmap(start, skip);
  const int64_t tail = kHugePage - skip;
  if (tail > 0) munmap(start + size - tail, tail);
  HugeMemory memory;
  memory.data_ = start + skip;
  memory.bytes_ = size - kHugePage;
  // Advice only: without huge pages everything works, with more TLB misses.
  if (memory.bytes_ > 0) madvise(memory.data_, memory.bytes_, MADV_HUGEPAGE);
  return memory;
}

HugeMemory::~HugeMemory() {
  if (data_ != nullptr && bytes_ > 0) munmap(data_, bytes_);
}

Status CheckMemory(const MemoryNeeds& needs, int64_t available_bytes) {
  if (needs.total() <= available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("The model needs ", Gigabytes(needs.total()), " of memory (weights ",
             Gigabytes(needs.weights), ", KV ", Gigabytes(needs.kv), " for ", needs.kv_blocks,
             " blocks of ", needs.block_size, " tokens, activations ", Gigabytes(needs.activations),
             ") but ", Gigabytes(available_bytes),
             " are available: ", Gigabytes(needs.total() - available_bytes),
             " are missing; use fewer KV blocks, a smaller model or more ranks."));
}

int64_t AvailableMemoryBytes() {
  const int64_t machine = ReadKey("/proc/meminfo", "MemAvailable:", kNoLimit / 1024) * 1024;
  return std::min(machine, AllCgroupsRoom());
}

}  // namespace staffel::cpu
