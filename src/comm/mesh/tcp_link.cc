#include "comm/mesh/tcp_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace staffel {
namespace {

// From this size on bytes go from the kernel to where they are wanted, without the buffer between.
constexpr size_t kDirectBytes = 16 << 10;
// The size that a farewell claims: floats at the end of a stream do not look like this by chance.
constexpr uint64_t kFarewellBytes = 0x2e96d483b70bc95a;

class TcpLink final : public Link {
 public:
  explicit TcpLink(Fd socket)
      : socket_(std::move(socket)), buffer_(new uint8_t[2 * kLinkBufferBytesMin]) {}

  size_t Write(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second,
               bool completes) override {
    iovec parts[2] = {{const_cast<uint8_t*>(first.data()), first.size()},
                      {const_cast<uint8_t*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = first.empty() ? parts + 1 : parts;
    message.msg_iovlen = first.empty() ? 1 : 2;
    std::lock_guard lock(mutex_);
    if (left_) return 0;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      const size_t went = static_cast<size_t>(sent);
      if (went > 0) within_message_ = !completes || went < first.size() + second.size();
      return went;
    }
    Fail();
    return 0;
  }

  absl::Span<const uint8_t> Peek(size_t wanted) override {
    if (end_ - begin_ < wanted) Fill(kLinkBufferBytesMin);
    return {buffer_.get() + begin_, end_ - begin_};
  }

  void Consume(size_t bytes) override { begin_ += bytes; }

  size_t Read(uint8_t* out, size_t bytes) override {
    if (begin_ == end_ && bytes >= kDirectBytes) {
      const size_t size = Receive(out, bytes);
      begin_ = end_ = (begin_ + size) % 4;
      return size;
    }
    // Of a large message, most is left for the direct way.
    if (begin_ == end_) Fill(kDirectBytes);
    const size_t size = std::min(bytes, end_ - begin_);
    if (size == 0) return 0;
    std::memcpy(out, buffer_.get() + begin_, size);
    Consume(size);
    return size;
  }

  size_t Buffered() override { return end_ - begin_; }

  pollfd PollFor(bool wants_input, bool wants_room) const override {
    const bool has_room = end_ - begin_ < kLinkBufferBytesMin;
    const short events =
        static_cast<short>((wants_input && has_room ? POLLIN : 0) | (wants_room ? POLLOUT : 0));
    return {gone() || events == 0 ? -1 : socket_.get(), events, 0};
  }
  void OnPoll(short) override {}  // the next Peek or Write finds out

  // A message like others, and therefore only between two of them: the end of the connection in the
  // middle of one must not look like the rest of its data.
  void Leave(Farewell why) override {
    const MessageHeader header{MessageKind::kFarewell, why.code, kFarewellBytes};
    std::lock_guard lock(mutex_);
    if (std::exchange(left_, true)) return;
    if (!within_message_) {
      send(socket_.get(), &header, sizeof header, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    shutdown(socket_.get(), SHUT_RDWR);
  }

 private:
  // At most kLinkBufferBytesMin bytes are unread; twice as much is there, so that they are rarely
  // moved. Floats stay aligned: an offset in the buffer equals that in the stream, modulo 4.
  void Fill(size_t limit) {
    if (begin_ == end_) {
      begin_ = end_ = begin_ % 4;
    } else if (begin_ > kLinkBufferBytesMin) {
      const size_t aligned = begin_ - begin_ % 4;
      std::memmove(buffer_.get(), buffer_.get() + aligned, end_ - aligned);
      begin_ -= aligned;
      end_ -= aligned;
    }
    const size_t room =
        std::min({limit, kLinkBufferBytesMin - (end_ - begin_), 2 * kLinkBufferBytesMin - end_});
    if (room > 0) end_ += Receive(buffer_.get() + end_, room);
  }

  size_t Receive(uint8_t* out, size_t bytes) {
    if (gone()) return 0;
    const ssize_t size = recv(socket_.get(), out, bytes, MSG_DONTWAIT);
    if (size > 0) {
      KeepTail(out, static_cast<size_t>(size));
      return static_cast<size_t>(size);
    }
    if (size == 0) {
      OnEnd("it has ended or closed its connection");
    } else {
      Fail();
    }
    return 0;
  }

  void KeepTail(const uint8_t* bytes, size_t size) {
    const size_t kept = std::min(size, tail_.size());
    std::memmove(tail_.data(), tail_.data() + kept, tail_.size() - kept);
    std::memcpy(tail_.data() + tail_.size() - kept, bytes + size - kept, kept);
  }

  void Fail() {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
    const char* const why = strerror(errno);
    // A peer that has left refuses what is still sent to it; its farewell may have come before.
    uint8_t rest[4096];
    ssize_t size;
    while ((size = recv(socket_.get(), rest, sizeof rest, MSG_DONTWAIT)) > 0) {
      KeepTail(rest, static_cast<size_t>(size));
    }
    OnEnd(why);
  }

  void OnEnd(const char* why) {
    MessageHeader header;
    std::memcpy(&header, tail_.data(), sizeof header);
    if (header.kind == MessageKind::kFarewell && header.bytes == kFarewellBytes) {
      End(Farewell{header.sequence});
    } else {
      End(why);
    }
  }

  const Fd socket_;
  const std::unique_ptr<uint8_t[]> buffer_;
  size_t begin_ = 0, end_ = 0;                  // unread part of the buffer
  std::array<uint8_t, kHeaderBytes> tail_{};    // the last bytes that have come
  std::mutex mutex_;                            // nothing is written after the farewell
  bool left_ = false, within_message_ = false;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Link> MakeTcpLink(Fd socket) {
  return std::make_unique<TcpLink>(std::move(socket));
}

}  // namespace staffel
