// Parts of a model on this machine's disk: sparse files of the model's full sizes, into which the
// byte ranges that were asked for are fetched once. What is there is recorded piece by piece with
// checksums (range_log.h) and survives crashes: a piece counts when its record is whole and its
// bytes agree with it, so nothing needs to be flushed in order. Processes of one machine may share
// the folder. With a limit, models that nobody uses make room for what is fetched
// (cache_folder.h), and so do pieces of the own one that are not asked for here. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "source/range_log.h"
#include "source/range_set.h"
#include "staffel/cluster.h"
#include "staffel/status.h"

namespace staffel {

struct ShardCacheOptions {
  std::string folder;               // created if need be
  std::string digest;               // names the files
  std::vector<int64_t> file_bytes;  // of the model's files, in order
  int64_t limit_bytes = 0;          // of the whole folder on the disk; 0: none
};

class ShardCache {
 public:
  using Sink = std::function<Status(absl::Span<const uint8_t>)>;
  // Hands the ranges' bytes to the sink, one after the other. MasterLink::ReadModel.
  using Fetch = std::function<Status(absl::Span<const ModelRange>, const Sink&)>;

  // "FOLDER/DIGEST.gguf", or "FOLDER/DIGEST-00001-of-00003.gguf" and so on, and
  // "FOLDER/DIGEST.ranges". InvalidArgument: a digest or sizes that cannot be; NotFound,
  // PermissionDenied, ResourceExhausted: the folder cannot be used.
  static Result<std::unique_ptr<ShardCache>> Open(ShardCacheOptions options);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  // Of the first file. It may be opened as a model as long as only what was provided is read.
  const std::string& path() const { return files_.front().path; }

  // Makes the ranges (in any order) valid in the files: checks what is there, fetches the rest.
  // Returns the number of bytes fetched. `progress` gets the share that is there, `cancelled` is
  // asked between pieces; both may be null. On error (of `fetch`, of the disk, Cancelled) the
  // message says how many bytes came of how many, and what has come stays. ResourceExhausted: the
  // disk is full, or the limit does not allow it.
  Result<int64_t> Provide(std::vector<ModelRange> ranges, const Fetch& fetch,
                          const std::function<void(double)>& progress,
                          const std::function<bool()>& cancelled);

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t begin = 0, bytes = 0;
  };
  // Bytes of one Provide.
  struct Tally {
    int64_t missing = 0, fetched = 0;
  };

  ShardCache() = default;
  Status OpenFiles();
  Status Lock(const std::function<bool()>& cancelled);
  Result<bool> TakeRecords(absl::Span<const ModelRange> wanted);
  Result<bool> Check(const PieceRecord& record);
  Status CheckSpace(int64_t bytes) const;
  Status KeepLimit(int64_t wanted_bytes);
  Status DropUnneeded();
  int64_t DiskBytes(absl::Span<const Piece> missing) const;
  Status FetchMissing(absl::Span<const ModelRange> wanted, const Fetch& fetch,
                      const std::function<void(double)>& progress,
                      const std::function<bool()>& cancelled, Tally* tally);
  Status FetchBatch(absl::Span<const Piece> batch, const Fetch& fetch,
                    const std::function<bool()>& cancelled, int64_t* fetched);
  Status Store(const Piece& piece, absl::Span<const uint8_t> bytes);
  Status Transfer(const ModelRange& range, absl::Span<uint8_t> in,
                  absl::Span<const uint8_t> out) const;

  ShardCacheOptions options_;
  std::vector<File> files_;
  std::unique_ptr<RangeLog> log_;
  std::vector<PieceRecord> unchecked_;  // not asked for: their bytes have not been looked at
  std::vector<PieceRecord> checked_;    // valid_ consists of these
  std::vector<ModelRange> valid_;       // normalised: recorded and checked
};

}  // namespace staffel
