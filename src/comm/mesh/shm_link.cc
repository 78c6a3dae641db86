#include "comm/mesh/shm_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace staffel {
namespace {

class ShmLink final : public Link {
 public:
  ShmLink(std::unique_ptr<ShmSegment> segment, int side, Fd socket, Fd peer_doorbell)
      : segment_(std::move(segment)),
        socket_(std::move(socket)),
        peer_doorbell_(std::move(peer_doorbell)),
        asleep_(segment_->control().asleep[side]),
        peer_asleep_(segment_->control().asleep[1 - side]),
        writer_(segment_->control().rings[side], segment_->ring(side), segment_->ring_bytes()),
        reader_(segment_->control().rings[1 - side], segment_->ring(1 - side),
                segment_->ring_bytes()) {}

  size_t Write(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second, bool) override {
    const size_t done = writer_.Write(first, second);
    if (done > 0) WakePeer();
    return done;
  }

  absl::Span<const uint8_t> Peek(size_t) override {
    const absl::Span<const uint8_t> bytes = reader_.Peek();
    if (reader_.corrupt()) End("its shared memory is damaged");
    return bytes;
  }

  void Consume(size_t bytes) override {
    reader_.Consume(bytes);
    WakePeer();
  }

  size_t Read(uint8_t* out, size_t bytes) override {
    const absl::Span<const uint8_t> here = Peek(bytes);
    const size_t size = std::min(bytes, here.size());
    if (size == 0) return 0;
    std::memcpy(out, here.data(), size);
    Consume(size);
    return size;
  }

  size_t Buffered() override { return reader_.Buffered(); }

  void Arm() override { asleep_.store(1, std::memory_order_seq_cst); }
  void Disarm() override { asleep_.store(0, std::memory_order_relaxed); }

  pollfd PollFor(bool, bool) const override { return {gone() ? -1 : socket_.get(), POLLIN, 0}; }

  void OnPoll(short events) override {
    if (events == 0) return;
    Farewell farewell;
    const ssize_t size = recv(socket_.get(), &farewell.code, sizeof farewell.code, MSG_DONTWAIT);
    if (size > 0) End(farewell);
    if (size == 0) End("it has ended or closed its connection");
    if (size < 0 && errno != EAGAIN && errno != EINTR) End(strerror(errno));
  }

  void Leave(Farewell why) override {
    send(socket_.get(), &why.code, sizeof why.code, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(socket_.get(), SHUT_RDWR);
  }

 private:
  void WakePeer() {
    if (peer_asleep_.load(std::memory_order_seq_cst) == 0) return;
    if (peer_asleep_.exchange(0, std::memory_order_seq_cst) == 0) return;
    const uint64_t one = 1;
    // Fails only if the counter is full, and then the doorbell is ringing anyway.
    [[maybe_unused]] const ssize_t written = write(peer_doorbell_.get(), &one, sizeof one);
  }

  const std::unique_ptr<ShmSegment> segment_;
  const Fd socket_, peer_doorbell_;
  std::atomic<uint32_t>& asleep_;
  std::atomic<uint32_t>& peer_asleep_;
  RingWriter writer_;
  RingReader reader_;
};

}  // namespace

std::unique_ptr<Link> MakeShmLink(std::unique_ptr<ShmSegment> segment, int side, Fd socket,
                                  Fd peer_doorbell) {
  segment->CloseFd();
  return std::make_unique<ShmLink>(std::move(segment), side, std::move(socket),
                                   std::move(peer_doorbell));
}

}  // namespace staffel
