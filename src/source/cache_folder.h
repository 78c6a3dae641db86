// The models in a cache folder as a whole: what they take on the disk, and which may go. Processes
// of one machine may share the folder: each holds a shared lock on the first file of every model
// that it uses, and only what nobody uses is removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "staffel/status.h"

namespace staffel {

struct CachedModel {
  std::string digest;
  std::vector<std::string> paths;  // its first file, the others, its log
  int64_t disk_bytes = 0;          // what they take, holes apart
  int64_t used_ns = 0;             // when it was in use last, since 1970
};

// Those that have not been used for longest first. Other files of the folder are none of them.
std::vector<CachedModel> CachedModels(const std::string& folder);

// Opens the first file of a model, creates it if need be, and locks it as in use until it is
// closed. Waits while another process removes it.
Result<int> OpenInUse(const std::string& path);
// The same for one that is open already. Unavailable: it has been removed.
Status LockInUse(int fd, const std::string& path);
// Whether nobody else has it in use; if so, nobody else can begin to until LockInUse. If not, the
// own lock may be lost.
bool TryLockAlone(int fd);

// Removes models but `kept`, those that have not been used for longest first, until the folder
// takes `limit_bytes` or less with `wanted_bytes` more. Returns how much it takes too much then.
int64_t MakeRoom(const std::string& folder, int64_t limit_bytes, int64_t wanted_bytes,
                 const std::string& kept);

}  // namespace staffel
