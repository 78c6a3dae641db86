// Two byte rings in memory shared by two processes, one for each direction; each has one writer
// and one reader. Neither side trusts the other's counters further than the size of the mapping.
//
// A ring is a bip buffer: the writer goes back to the beginning when it reaches the end, and
// already after kLapBytes if the beginning is free, so that messages which are read at once stay
// in a second-level cache although the ring is large. Pages are touched as they are used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "base/fd.h"
#include "staffel/status.h"

namespace staffel {

// Lies in shared memory; zeroed is its valid initial state. Lines are apart, so that a side that
// spins on one does not slow the other's writes to the next.
struct RingControl {
  alignas(128) std::atomic<uint64_t> written{0};  // offset of the next byte to write
  std::atomic<uint64_t> lap_end{0};  // where the reader goes back to 0; valid if written < read
  alignas(128) std::atomic<uint64_t> read{0};  // offset of the next byte to read
};

struct ShmControl {
  RingControl rings[2];                               // by writing side
  alignas(128) std::atomic<uint32_t> asleep[2] = {};  // by side: wants its doorbell rung
};

class RingWriter {
 public:
  RingWriter(RingControl& control, uint8_t* data, size_t capacity)
      : control_(control), data_(data), capacity_(capacity) {}
  // Copies as much as there is room for, in pieces that the reader can use at once; returns how
  // many bytes. `first` and `second` come out as one sequence. All sizes are multiples of 4, so
  // that floats are never torn.
  size_t Write(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second);

 private:
  size_t Room(size_t wanted);

  RingControl& control_;
  uint8_t* const data_;
  const size_t capacity_;
  uint64_t written_ = 0, read_seen_ = 0;
};

class RingReader {
 public:
  RingReader(RingControl& control, const uint8_t* data, size_t capacity)
      : control_(control), data_(data), capacity_(capacity) {}
  // What can be read in one piece; empty: nothing is there. Valid until consumed.
  absl::Span<const uint8_t> Peek();
  void Consume(size_t bytes);
  // All unread bytes.
  size_t Buffered();
  // The other side wrote counters that make no sense.
  bool corrupt() const { return corrupt_; }

 private:
  void Refresh();

  RingControl& control_;
  const uint8_t* const data_;
  const size_t capacity_;
  uint64_t read_ = 0, written_seen_ = 0, lap_end_ = 0;
  bool corrupt_ = false;
};

// The shared memory of one link.
class ShmSegment {
 public:
  // ring_bytes: of each direction; a multiple of 4096.
  static Result<std::unique_ptr<ShmSegment>> Create(size_t ring_bytes);
  // Of a descriptor from the other side: it must have the size, and be sealed against shrinking.
  static Result<std::unique_ptr<ShmSegment>> Map(Fd fd, size_t ring_bytes);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  int fd() const { return fd_.get(); }
  ShmControl& control() const { return *reinterpret_cast<ShmControl*>(base_); }
  uint8_t* ring(int side) const;
  size_t ring_bytes() const { return ring_bytes_; }
  // The descriptor is not needed once both sides have mapped it.
  void CloseFd() { fd_.Close(); }

 private:
  ShmSegment(Fd fd, uint8_t* base, size_t ring_bytes)
      : fd_(std::move(fd)), base_(base), ring_bytes_(ring_bytes) {}

  Fd fd_;
  uint8_t* const base_;
  const size_t ring_bytes_;
};

}  // namespace staffel
