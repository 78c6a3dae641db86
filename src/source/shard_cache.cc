#include "source/shard_cache.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "base/option_values.h"
#include "base/strings.h"
#include "base/xxhash.h"
#include "source/cache_folder.h"
#include "source/disk.h"

namespace staffel {
namespace {

// Of one call to the master; another process may have its turn between two.
constexpr int64_t kBatchBytes = int64_t{16} << 20;
// One that waits for the lock looks more often than its holder lets go.
constexpr auto kLockPoll = std::chrono::milliseconds(1), kLockPause = std::chrono::milliseconds(3);
constexpr auto kLockPatience = std::chrono::seconds(60);
constexpr int64_t kDiskBlockBytes = 4096;  // usual; only estimates need it

bool IsHex(const std::string& text) {
  return !text.empty() && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool Asked(const std::function<bool()>& cancelled) { return cancelled && cancelled(); }

Status GivenUp() { return absl::CancelledError("the loading was given up"); }

}  // namespace

Result<std::unique_ptr<ShardCache>> ShardCache::Open(ShardCacheOptions options) {
  if (!IsHex(options.digest) || options.file_bytes.empty() || options.file_bytes.size() > 99999) {
    return absl::InvalidArgumentError("a cached model needs a digest and sizes of its files");
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) return DiskError("cannot be created", options.folder, error.value());
  std::unique_ptr<ShardCache> cache(new ShardCache);
  cache->options_ = std::move(options);
  STAFFEL_RETURN_IF_ERROR(cache->OpenFiles());
  return cache;
}

ShardCache::~ShardCache() {
  if (log_ != nullptr) log_->Touch();
  for (const File& file : files_) close(file.fd);
}

Status ShardCache::OpenFiles() {
  const std::string stem = StrCat(options_.folder, "/", options_.digest);
  const size_t count = options_.file_bytes.size();
  std::string title = StrCat("staffel-ranges 1 ", options_.digest);
  int64_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t bytes = options_.file_bytes[i];
    if (bytes <= 0 || bytes > (int64_t{1} << 50)) {
      return absl::InvalidArgumentError(StrCat("a model's file cannot have ", bytes, " bytes"));
    }
    File file{count == 1 ? StrCat(stem, ".gguf")
                         : absl::StrFormat("%s-%05d-of-%05d.gguf", stem, i + 1, count),
              -1, begin, bytes};
    if (i == 0) {
      STAFFEL_ASSIGN_OR_RETURN(file.fd, OpenInUse(file.path));
    } else {
      file.fd = open(file.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (file.fd < 0) return DiskError("cannot be opened", file.path, errno);
    }
    files_.push_back(file);
    struct stat info;
    if (fstat(file.fd, &info) != 0) return DiskError("cannot be read", file.path, errno);
    if (info.st_size != bytes && ftruncate(file.fd, bytes) != 0) {
      return DiskError(StrCat("cannot get its size of ", bytes, " bytes"), file.path, errno);
    }
    StrAppend(title, i == 0 ? " " : ",", bytes);
    begin += bytes;
  }
  STAFFEL_ASSIGN_OR_RETURN(log_, RangeLog::Open(StrCat(stem, ".ranges"), title));
  log_->Touch();
  return absl::OkStatus();
}

Status ShardCache::Lock(const std::function<bool()>& cancelled) {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (!log_->TryLock()) {
    if (Asked(cancelled)) return GivenUp();
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::UnavailableError(
          StrCat("another worker has held '", path(), "' for ", kLockPatience.count(),
                 " s; see whether it hangs, or give each worker a --cache-dir of its own"));
    }
    std::this_thread::sleep_for(kLockPoll);
  }
  return absl::OkStatus();
}

// Reads or writes part of the model, across its files.
Status ShardCache::Transfer(const ModelRange& range, absl::Span<uint8_t> in,
                            absl::Span<const uint8_t> out) const {
  int64_t offset = range.offset, left = range.size;
  for (const File& file : files_) {
    if (left == 0 || offset >= file.begin + file.bytes) continue;
    const int64_t size = std::min(left, file.begin + file.bytes - offset);
    const int64_t at = offset - file.begin;
    if (in.empty()) {
      STAFFEL_RETURN_IF_ERROR(WriteAll(file.fd, file.path, at, out.first(size)));
      out.remove_prefix(size);
    } else {
      STAFFEL_RETURN_IF_ERROR(ReadAll(file.fd, file.path, at, in.first(size)));
      in.remove_prefix(size);
    }
    offset += size;
    left -= size;
  }
  return absl::OkStatus();
}

// Whether the piece can be and its bytes are what they were when it was recorded.
Result<bool> ShardCache::Check(const PieceRecord& record) {
  const Piece& piece = record.piece;
  const int64_t total = files_.back().begin + files_.back().bytes;
  if (piece.offset < 0 || piece.offset >= total || piece.runs < 1 || piece.runs > kPieceRunsMax ||
      piece.run_bytes < 1 || piece.run_bytes > kPieceBytesMax || piece.bytes() > kPieceBytesMax ||
      piece.stride < 0 || piece.stride > total / piece.runs ||
      piece.run(piece.runs - 1).offset + piece.run_bytes > total) {
    return false;
  }
  std::vector<uint8_t> bytes(piece.bytes());
  for (int64_t i = 0; i < piece.runs; ++i) {
    STAFFEL_RETURN_IF_ERROR(Transfer(
        piece.run(i), absl::MakeSpan(bytes).subspan(i * piece.run_bytes, piece.run_bytes), {}));
  }
  return Xxh64(bytes) == record.checksum;
}

// With the lock. Returns whether valid_ has grown.
Result<bool> ShardCache::TakeRecords(absl::Span<const ModelRange> wanted) {
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<PieceRecord> records, log_->ReadNew());
  unchecked_.insert(unchecked_.end(), records.begin(), records.end());
  std::vector<PieceRecord> kept;
  std::vector<ModelRange> grown = valid_;
  int damaged = 0;
  for (const PieceRecord& record : unchecked_) {
    bool needed = false;
    for (int64_t i = 0; i < record.piece.runs && !needed; ++i) {
      needed = Overlaps(wanted, record.piece.run(i));
    }
    if (!needed) {
      kept.push_back(record);
      continue;
    }
    STAFFEL_ASSIGN_OR_RETURN(const bool good, Check(record));
    damaged += !good;
    if (good) checked_.push_back(record);
    for (int64_t i = 0; i < record.piece.runs && good; ++i) grown.push_back(record.piece.run(i));
  }
  unchecked_ = std::move(kept);
  if (damaged > 0) {
    spdlog::warn("{} pieces of '{}' are not what was written and are fetched again", damaged,
                 path());
  }
  const size_t before = valid_.size();
  const int64_t before_bytes = TotalBytes(valid_);
  Normalise(&grown);
  valid_ = std::move(grown);
  return valid_.size() != before || TotalBytes(valid_) != before_bytes;
}

Status ShardCache::Store(const Piece& piece, absl::Span<const uint8_t> bytes) {
  for (int64_t i = 0; i < piece.runs; ++i) {
    STAFFEL_RETURN_IF_ERROR(
        Transfer(piece.run(i), {}, bytes.subspan(i * piece.run_bytes, piece.run_bytes)));
  }
  checked_.push_back({piece, Xxh64(bytes)});
  return log_->Append(checked_.back());
}

// With the lock. Pieces that came whole are stored, whatever ends the rest.
Status ShardCache::FetchBatch(absl::Span<const Piece> batch, const Fetch& fetch,
                              const std::function<bool()>& cancelled, int64_t* fetched) {
  std::vector<ModelRange> ranges, stored;
  for (const Piece& piece : batch) {
    for (int64_t i = 0; i < piece.runs; ++i) ranges.push_back(piece.run(i));
  }
  std::vector<uint8_t> buffer;
  size_t next = 0;
  const auto sink = [&](absl::Span<const uint8_t> bytes) -> Status {
    while (!bytes.empty()) {
      if (Asked(cancelled)) return GivenUp();
      if (next == batch.size()) return absl::DataLossError("the master sent too many bytes");
      const size_t size = std::min<size_t>(bytes.size(), batch[next].bytes() - buffer.size());
      buffer.insert(buffer.end(), bytes.begin(), bytes.begin() + size);
      bytes.remove_prefix(size);
      *fetched += static_cast<int64_t>(size);
      if (static_cast<int64_t>(buffer.size()) < batch[next].bytes()) continue;
      STAFFEL_RETURN_IF_ERROR(Store(batch[next], buffer));
      for (int64_t i = 0; i < batch[next].runs; ++i) stored.push_back(batch[next].run(i));
      buffer.clear();
      ++next;
    }
    return absl::OkStatus();
  };
  Status status = fetch(ranges, sink);
  if (status.ok() && next < batch.size()) {
    status = absl::DataLossError("the master sent fewer bytes than it was asked for");
  }
  valid_.insert(valid_.end(), stored.begin(), stored.end());
  Normalise(&valid_);
  return status;
}

Status ShardCache::CheckSpace(int64_t bytes) const {
  struct statvfs info;
  if (statvfs(options_.folder.c_str(), &info) != 0) return absl::OkStatus();
  const int64_t free = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  if (free >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("'", options_.folder, "' has ", HumanBytes(free),
                                             " free; free space there, or give ",
                                             "another --cache-dir"));
}

// What the disk gives for them beyond what it has given: whole blocks.
int64_t ShardCache::DiskBytes(absl::Span<const Piece> missing) const {
  std::vector<ModelRange> wanted, there = valid_;
  for (const Piece& piece : missing) {
    for (int64_t i = 0; i < piece.runs; ++i) wanted.push_back(piece.run(i));
  }
  for (const PieceRecord& record : unchecked_) {
    for (int64_t i = 0; i < record.piece.runs; ++i) there.push_back(record.piece.run(i));
  }
  return TotalBytes(
      Subtract(RoundedToBlocks(wanted, kDiskBlockBytes), RoundedToBlocks(there, kDiskBlockBytes)));
}

// With the lock.
Status ShardCache::KeepLimit(int64_t wanted_bytes) {
  const int64_t limit = options_.limit_bytes;
  if (limit == 0 || MakeRoom(options_.folder, limit, wanted_bytes, options_.digest) == 0) {
    return absl::OkStatus();
  }
  STAFFEL_RETURN_IF_ERROR(DropUnneeded());
  const int64_t over = MakeRoom(options_.folder, limit, wanted_bytes, options_.digest);
  if (over == 0 || wanted_bytes == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("'", options_.folder, "' may take ", HumanBytes(limit),
                                             " and would take ", HumanBytes(limit + over),
                                             ", all of it in use; raise --cache-limit"));
}

// With the lock. Pieces that other parts of the model had need of go, unless another process uses
// the model.
Status ShardCache::DropUnneeded() {
  const File& first = files_.front();
  if (unchecked_.empty()) return absl::OkStatus();
  if (!TryLockAlone(first.fd)) return LockInUse(first.fd, first.path);
  const absl::Cleanup share = [&] { LockInUse(first.fd, first.path).IgnoreError(); };
  STAFFEL_RETURN_IF_ERROR(log_->Rewrite(checked_));
  std::vector<ModelRange> unneeded;
  for (const PieceRecord& record : unchecked_) {
    for (int64_t i = 0; i < record.piece.runs; ++i) unneeded.push_back(record.piece.run(i));
  }
  unchecked_.clear();
  Normalise(&unneeded);
  for (const ModelRange& range : Subtract(unneeded, valid_)) {
    for (const File& file : files_) {
      const int64_t begin = std::max<int64_t>(range.offset - file.begin, 0);
      const int64_t end = std::min(range.offset + range.size - file.begin, file.bytes);
      // Where the file system cannot, nothing is won.
      if (begin < end) {
        fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, end - begin);
      }
    }
  }
  return absl::OkStatus();
}

Status ShardCache::FetchMissing(absl::Span<const ModelRange> wanted, const Fetch& fetch,
                                const std::function<void(double)>& progress,
                                const std::function<bool()>& cancelled, Tally* tally) {
  std::vector<Piece> missing;
  size_t next = 0;
  for (bool first = true;; first = false) {
    STAFFEL_RETURN_IF_ERROR(Lock(cancelled));
    const absl::Cleanup unlock = [this] { log_->Unlock(); };
    STAFFEL_ASSIGN_OR_RETURN(const bool grown, TakeRecords(wanted));
    if (first || grown) {
      missing = CutIntoPieces(Subtract(wanted, valid_));
      next = 0;
    }
    int64_t left = 0;
    for (size_t i = next; i < missing.size(); ++i) left += missing[i].bytes();
    if (first) {
      tally->missing = left;
      const int64_t disk_bytes = DiskBytes(missing);
      STAFFEL_RETURN_IF_ERROR(KeepLimit(disk_bytes));
      STAFFEL_RETURN_IF_ERROR(CheckSpace(disk_bytes));
    }
    if (progress && tally->missing > 0) {
      progress(1 - static_cast<double>(left) / static_cast<double>(tally->missing));
    }
    if (next == missing.size()) return absl::OkStatus();
    const size_t begin = next;
    int64_t bytes = 0, runs = 0;
    for (; next < missing.size() && bytes < kBatchBytes; ++next) {
      runs += missing[next].runs;
      if (runs > MasterLink::kReadRangesMax) break;
      bytes += missing[next].bytes();
    }
    const auto batch = absl::MakeConstSpan(missing).subspan(begin, next - begin);
    // Others that share the folder may have filled it in the meantime.
    if (!first && options_.limit_bytes > 0) STAFFEL_RETURN_IF_ERROR(KeepLimit(DiskBytes(batch)));
    STAFFEL_RETURN_IF_ERROR(FetchBatch(batch, fetch, cancelled, &tally->fetched));
    log_->Unlock();
    std::this_thread::sleep_for(kLockPause);
  }
}

Result<int64_t> ShardCache::Provide(std::vector<ModelRange> ranges, const Fetch& fetch,
                                    const std::function<void(double)>& progress,
                                    const std::function<bool()>& cancelled) {
  Normalise(&ranges);
  const int64_t total = files_.back().begin + files_.back().bytes;
  if (!ranges.empty() &&
      (ranges.front().offset < 0 || ranges.back().offset + ranges.back().size > total)) {
    return absl::InvalidArgumentError(
        StrCat("a range of the model ends beyond its ", total, " bytes"));
  }
  Tally tally;
  const Status status = FetchMissing(ranges, fetch, progress, cancelled, &tally);
  if (status.ok()) return tally.fetched;
  return Status(status.code(),
                StrCat("of ", HumanBytes(tally.missing), " that are missing here, ",
                       HumanBytes(tally.fetched), " (", tally.fetched,
                       " bytes) were fetched from the master: ", std::string(status.message())));
}

}  // namespace staffel
