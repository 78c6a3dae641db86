#include "comm/mesh/shm_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr size_t kControlBytes = 4096;
static_assert(sizeof(ShmControl) <= kControlBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A quarter of a second-level cache; holds two of the largest messages that are sent whole.
constexpr size_t kLapBytes = 256 << 10;
// The reader begins on a piece while the next is being copied.
constexpr size_t kPieceBytes = 32 << 10;
// The writer stays this far behind the reader: equal offsets mean an empty ring.
constexpr size_t kGapBytes = 64;

size_t SegmentBytes(size_t ring_bytes) { return kControlBytes + 2 * ring_bytes; }

Status SystemError(const char* what) {
  return absl::UnavailableError(StrCat("shared memory: ", what, " failed: ", strerror(errno)));
}

}  // namespace

// Free bytes in one piece at written_, going back to the beginning where that is better.
size_t RingWriter::Room(size_t wanted) {
  const auto free_here = [&] {
    if (written_ >= read_seen_) return capacity_ - written_;
    const size_t gap = read_seen_ - written_;
    return gap > kGapBytes ? gap - kGapBytes : 0;
  };
  if (written_ < read_seen_ ? free_here() < wanted
                            : written_ >= kLapBytes || free_here() < wanted) {
    read_seen_ = std::min<uint64_t>(control_.read.load(std::memory_order_seq_cst), capacity_);
  }
  if (written_ >= read_seen_) {
    const size_t front = read_seen_ > kGapBytes ? read_seen_ - kGapBytes : 0;
    const bool fits = front >= std::min(wanted, kPieceBytes);
    if ((written_ >= kLapBytes && fits) || (written_ == capacity_ && front > 0)) {
      control_.lap_end.store(written_, std::memory_order_relaxed);
      written_ = 0;
      return front;
    }
  }
  return free_here();
}

size_t RingWriter::Write(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second) {
  size_t done = 0;
  const size_t total = first.size() + second.size();
  while (done < total) {
    const size_t room = Room(total - done);
    size_t piece = std::min({room, total - done, kPieceBytes});
    if (piece == 0) break;
    const size_t end = done + piece;
    if (done < first.size()) {
      const size_t size = std::min(piece, first.size() - done);
      std::memcpy(data_ + written_, first.data() + done, size);
      written_ += size;
      done += size;
    }
    if (done < end) {
      std::memcpy(data_ + written_, second.data() + (done - first.size()), end - done);
      written_ += end - done;
      done = end;
    }
    // Sequentially consistent: ordered before the look at the reader's `asleep`.
    control_.written.store(written_, std::memory_order_seq_cst);
  }
  return done;
}

void RingReader::Refresh() {
  written_seen_ = control_.written.load(std::memory_order_seq_cst);
  if (written_seen_ < read_) {
    lap_end_ = control_.lap_end.load(std::memory_order_relaxed);
    if (read_ == lap_end_) read_ = 0;
  }
  if (written_seen_ > capacity_ ||
      (written_seen_ < read_ && (lap_end_ < read_ || lap_end_ > capacity_))) {
    corrupt_ = true;
  }
}

absl::Span<const uint8_t> RingReader::Peek() {
  if (written_seen_ == read_ || (written_seen_ < read_ && read_ == lap_end_)) Refresh();
  if (corrupt_) return {};
  return {data_ + read_, (written_seen_ >= read_ ? written_seen_ : lap_end_) - read_};
}

void RingReader::Consume(size_t bytes) {
  read_ += bytes;
  control_.read.store(read_, std::memory_order_seq_cst);
}

size_t RingReader::Buffered() {
  Refresh();
  if (corrupt_) return 0;
  return written_seen_ >= read_ ? written_seen_ - read_ : lap_end_ - read_ + written_seen_;
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::Create(size_t ring_bytes) {
  Fd fd(memfd_create("staffel-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.ok()) return SystemError("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(SegmentBytes(ring_bytes))) != 0) {
    return SystemError("ftruncate");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError("sealing");
  }
  return Map(std::move(fd), ring_bytes);
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::Map(Fd fd, size_t ring_bytes) {
  const size_t bytes = SegmentBytes(ring_bytes);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return SystemError("fstat");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (static_cast<uint64_t>(status.st_size) != bytes || seals < 0 || !(seals & F_SEAL_SHRINK)) {
    return absl::InvalidArgumentError("shared memory: the peer's segment has another form");
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return SystemError("mmap");
  return std::unique_ptr<ShmSegment>(
      new ShmSegment(std::move(fd), static_cast<uint8_t*>(base), ring_bytes));
}

ShmSegment::~ShmSegment() { munmap(base_, SegmentBytes(ring_bytes_)); }

uint8_t* ShmSegment::ring(int side) const { return base_ + kControlBytes + side * ring_bytes_; }

}  // namespace staffel
