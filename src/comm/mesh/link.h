// The way between this rank and one other: two byte streams. Nothing here blocks; one thread.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace staffel {

// Vectors up to this size are sent whole to all members of a group and summed by each of them.
inline constexpr size_t kWholeVectorBytes = 64 << 10;
// In front of each message.
inline constexpr size_t kHeaderBytes = 16;
// Of both directions of a link. A member may be one collective behind: two vectors sent whole must
// find room, or members that wait for each other's room would wait for ever.
inline constexpr size_t kLinkBufferBytesMin = 4 * kWholeVectorBytes;

class Link {
 public:
  virtual ~Link() = default;
  // Takes as many bytes as there is room for, `first` before `second`; returns how many.
  virtual size_t Write(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second) = 0;
  // Unread bytes that lie in one piece; looks for new ones if there are fewer than `wanted`. Valid
  // until the next call.
  virtual absl::Span<const uint8_t> Peek(size_t wanted) = 0;
  virtual void Consume(size_t bytes) = 0;
  // Copies up to `bytes` unread bytes to `out`; returns how many.
  virtual size_t Read(uint8_t* out, size_t bytes) = 0;
  // Unread bytes at hand; does not look for new ones.
  virtual size_t Buffered() = 0;

  // Before and after sleeping: the other side is to wake this one when it has written or read.
  virtual void Arm() {}
  virtual void Disarm() {}
  // What to wait for when more is wanted, or when there was no room; `fd` also shows the end of the
  // other side.
  virtual pollfd PollFor(bool wants_input, bool wants_room) const = 0;
  // After poll.
  virtual void OnPoll(short events) = 0;
  // The other side sees the end; what it has not read yet may be lost.
  virtual void Shutdown() = 0;
  // The other side is gone: nothing more can be written, nor read beyond what is buffered. Why.
  bool gone() const { return !end_.empty(); }
  const std::string& end() const { return end_; }

 protected:
  void End(std::string why) {
    if (end_.empty()) end_ = std::move(why);
  }

 private:
  std::string end_;
};

}  // namespace staffel
