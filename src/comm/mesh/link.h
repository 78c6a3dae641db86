// The way between this rank and one other: two byte streams. Nothing here blocks; one thread.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace staffel {

// Vectors up to this size are sent whole to all members of a group and summed by each of them.
inline constexpr size_t kWholeVectorBytes = 64 << 10;
// Of both directions of a link. A member may be one collective behind: two vectors sent whole must
// find room, or members that wait for each other's room would wait for ever.
inline constexpr size_t kLinkBufferBytesMin = 4 * kWholeVectorBytes;

enum class MessageKind : uint32_t { kAllReduce = 0x53544601, kPoint, kFarewell };

// In front of each message. Native byte order: machines of a cluster are little endian.
struct MessageHeader {
  MessageKind kind{};
  uint32_t sequence = 0;  // of messages on the link in this direction; of kFarewell: its code
  uint64_t bytes = 0;  // of the vector that the call is about, of which the link may carry a part
};
inline constexpr size_t kHeaderBytes = 16;
static_assert(sizeof(MessageHeader) == kHeaderBytes);

// Why a rank leaves an epoch: 0, it was aborted; r + 1, it has lost rank r.
struct Farewell {
  uint32_t code = 0;
  static Farewell Aborted() { return {}; }
  static Farewell Lost(int rank) { return {static_cast<uint32_t>(rank) + 1}; }
  int lost_rank() const { return static_cast<int>(code) - 1; }  // -1: aborted
};

class Link {
 public:
  virtual ~Link() = default;
  // Takes as many bytes as there is room for, `first` before `second`; returns how many.
  // completes: they are all that is missing of a message.
  virtual size_t Write(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second,
                       bool completes) = 0;
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
  // Any thread. Ends the link at once and tells the other side why, if it can; what that has not
  // read yet may be lost.
  virtual void Leave(Farewell why) = 0;
  // The other side is gone: nothing more can be written, nor read beyond what is buffered. Why.
  bool gone() const { return !end_.empty(); }
  const std::string& end() const { return end_; }
  // What the other side said at the end, if it left by itself.
  std::optional<Farewell> farewell() const { return farewell_; }

 protected:
  void End(std::string why) {
    if (end_.empty()) end_ = std::move(why);
  }
  void End(Farewell farewell) {
    farewell_ = farewell;
    End("it has left");
  }

 private:
  std::string end_;
  std::optional<Farewell> farewell_;
};

}  // namespace staffel
