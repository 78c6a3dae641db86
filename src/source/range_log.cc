#include "source/range_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "base/xxhash.h"
#include "source/disk.h"

namespace staffel {
namespace {

uint64_t Checksum(std::string_view text) {
  return Xxh64(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string Line(const PieceRecord& record) {
  const Piece& piece = record.piece;
  std::string line = StrCat(piece.offset, " ", piece.run_bytes, " ", piece.stride, " ", piece.runs,
                            " ", record.checksum);
  return StrCat(line, " ", Checksum(line), "\n");
}

template <class T>
bool TakeNumber(std::string_view& line, T* number) {
  const auto [end, error] = std::from_chars(line.begin(), line.end(), *number);
  if (error != std::errc()) return false;
  line.remove_prefix(end - line.begin());
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  return true;
}

std::optional<PieceRecord> ParseLine(std::string_view line) {
  PieceRecord record;
  std::string_view rest = line;
  uint64_t check = 0;
  if (!TakeNumber(rest, &record.piece.offset) || !TakeNumber(rest, &record.piece.run_bytes) ||
      !TakeNumber(rest, &record.piece.stride) || !TakeNumber(rest, &record.piece.runs) ||
      !TakeNumber(rest, &record.checksum) || !TakeNumber(rest, &check) || !rest.empty()) {
    return std::nullopt;
  }
  // Written by Line, or not at all.
  if (Line(record) != StrCat(std::string(line), "\n")) return std::nullopt;
  return record;
}

}  // namespace

RangeLog::RangeLog(int fd, std::string path, std::string title)
    : fd_(fd), path_(std::move(path)), title_(std::move(title)) {}

RangeLog::~RangeLog() { close(fd_); }

Result<std::unique_ptr<RangeLog>> RangeLog::Open(const std::string& path, std::string title) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return DiskError("cannot be opened", path, errno);
  return std::unique_ptr<RangeLog>(new RangeLog(fd, path, std::move(title)));
}

bool RangeLog::TryLock() { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }

void RangeLog::Unlock() { flock(fd_, LOCK_UN); }

// An empty log with our title.
Status RangeLog::Begin() {
  const std::string title = title_ + "\n";
  if (ftruncate(fd_, 0) != 0) return DiskError("cannot be emptied", path_, errno);
  STAFFEL_RETURN_IF_ERROR(WriteAll(fd_, path_, 0, title));
  read_bytes_ = end_bytes_ = static_cast<int64_t>(title.size());
  return absl::OkStatus();
}

Result<std::vector<PieceRecord>> RangeLog::ReadNew() {
  struct stat info;
  if (fstat(fd_, &info) != 0) return DiskError("cannot be read", path_, errno);
  if (info.st_size < read_bytes_) read_bytes_ = 0;  // emptied by another process
  if (info.st_size == end_bytes_ && read_bytes_ > 0) return std::vector<PieceRecord>();
  end_bytes_ = info.st_size;
  std::string text(static_cast<size_t>(info.st_size - read_bytes_), '\0');
  STAFFEL_RETURN_IF_ERROR(
      ReadAll(fd_, path_, read_bytes_,
              absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size())));
  std::vector<PieceRecord> records;
  size_t at = 0;
  if (read_bytes_ == 0) {
    if (text.compare(0, title_.size() + 1, title_ + "\n") != 0) {
      STAFFEL_RETURN_IF_ERROR(Begin());
      return records;
    }
    at = title_.size() + 1;
  }
  for (size_t end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    const std::optional<PieceRecord> record =
        ParseLine(std::string_view(text).substr(at, end - at));
    if (record) records.push_back(*record);
  }
  read_bytes_ += static_cast<int64_t>(at);
  return records;
}

Status RangeLog::Append(const PieceRecord& record) {
  // Behind a torn line a new one must begin.
  const std::string line = (read_bytes_ < end_bytes_ ? "\n" : "") + Line(record);
  STAFFEL_RETURN_IF_ERROR(WriteAll(fd_, path_, end_bytes_, line));
  end_bytes_ += static_cast<int64_t>(line.size());
  read_bytes_ = end_bytes_;
  return absl::OkStatus();
}

Status RangeLog::Rewrite(const std::vector<PieceRecord>& records) {
  STAFFEL_RETURN_IF_ERROR(Begin());
  std::string lines;
  for (const PieceRecord& record : records) lines += Line(record);
  STAFFEL_RETURN_IF_ERROR(WriteAll(fd_, path_, end_bytes_, lines));
  end_bytes_ += static_cast<int64_t>(lines.size());
  read_bytes_ = end_bytes_;
  return absl::OkStatus();
}

void RangeLog::Touch() { futimens(fd_, nullptr); }

}  // namespace staffel
