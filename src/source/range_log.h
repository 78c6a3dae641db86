// Which pieces of a cached model are there: lines in a file beside it, each with the checksum of
// its piece's bytes and one of the line. Only ever appended to, after the bytes; several processes
// may share it. A line that was torn by a crash, or that does not check, does not count.
//
//   staffel-ranges 1 DIGEST SIZE[,SIZE...]
//   OFFSET RUN_BYTES STRIDE RUNS XXH64-OF-THE-BYTES XXH64-OF-THE-LINE-SO-FAR
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "source/range_set.h"
#include "staffel/status.h"

namespace staffel {

struct PieceRecord {
  Piece piece;
  uint64_t checksum = 0;
};

class RangeLog {
 public:
  // Creates it if it is not there. `title`: its first line; a file with another one is emptied.
  // PermissionDenied, Unavailable: says what to do.
  static Result<std::unique_ptr<RangeLog>> Open(const std::string& path, std::string title);
  ~RangeLog();
  RangeLog(const RangeLog&) = delete;
  RangeLog& operator=(const RangeLog&) = delete;

  // Other processes wait while one has the lock. False: another has it now.
  bool TryLock();
  void Unlock();

  // The records that have been added since the last call, by whomever. With the lock.
  Result<std::vector<PieceRecord>> ReadNew();
  // With the lock, after ReadNew. The own record is not read again.
  Status Append(const PieceRecord& record);
  // With the lock, after ReadNew, while no other process has it open: these records and no others.
  Status Rewrite(const std::vector<PieceRecord>& records);
  // The time of the file becomes the present.
  void Touch();

 private:
  RangeLog(int fd, std::string path, std::string title);
  Status Begin();

  const int fd_;
  const std::string path_, title_;
  int64_t read_bytes_ = 0;  // whole lines up to here are known
  int64_t end_bytes_ = 0;   // of the file, when it was read last
};

}  // namespace staffel
