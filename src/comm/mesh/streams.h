// The two halves of a message on a link: what a call still has to write and to read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "comm/mesh/link.h"

namespace staffel {

class OutStream {
 public:
  // The header goes first if there is one. `data` must stay as it is until it is written.
  void Start(const MessageHeader* header, const void* data, size_t size) {
    header_left_ = header != nullptr ? kHeaderBytes : 0;
    if (header != nullptr) std::memcpy(header_, header, kHeaderBytes);
    data_ = static_cast<const uint8_t*>(data);
    size_ = size;
    written_ = 0;
  }
  // Writes up to `limit` more bytes, of data before `ready`; returns whether any went. The header
  // waits for the first of them.
  bool Advance(Link& link, size_t ready, size_t limit) {
    const size_t size = std::min(limit, std::min(ready, size_) - written_);
    if (size == 0 && (header_left_ == 0 || size_ > 0)) return false;
    size_t went = link.Write({header_ + (kHeaderBytes - header_left_), header_left_},
                             {data_ + written_, size}, written_ + size == size_);
    if (went == 0) return false;
    const size_t of_header = std::min(went, header_left_);
    header_left_ -= of_header;
    written_ += went - of_header;
    return true;
  }
  size_t written() const { return written_; }
  bool done() const { return header_left_ == 0 && written_ == size_; }
  // Everything that is ready has been written: the next step is not the link's.
  bool idle(size_t ready) const {
    return done() || (size_ > 0 && written_ >= std::min(ready, size_));
  }

 private:
  uint8_t header_[kHeaderBytes];
  size_t header_left_ = 0, size_ = 0, written_ = 0;
  const uint8_t* data_ = nullptr;
};

class InStream {
 public:
  void Start(bool with_header, size_t size) {
    expects_header_ = with_header;
    header_read_ = with_header ? 0 : kHeaderBytes;
    size_ = size;
    read_ = 0;
  }
  // As AdvanceHeader, for a stream that is summed from the link's own memory.
  bool AdvanceHeaderToSum(Link& link) {
    if (header_read_ < kHeaderBytes) link.Peek(wanted());
    return AdvanceHeader(link);
  }
  // True once the header is complete.
  bool AdvanceHeader(Link& link) {
    if (header_read_ == kHeaderBytes) return true;
    header_read_ += link.Read(header_ + header_read_, kHeaderBytes - header_read_);
    return header_read_ == kHeaderBytes;
  }
  bool expects_header() const { return expects_header_; }
  bool has_header() const { return header_read_ == kHeaderBytes; }
  MessageHeader header() const {
    MessageHeader header;
    std::memcpy(&header, header_, kHeaderBytes);
    return header;
  }
  // Whole floats that lie ready.
  absl::Span<const uint8_t> Peek(Link& link) {
    const absl::Span<const uint8_t> here = link.Peek(left());
    return here.subspan(0, std::min(here.size(), left()) & ~size_t{3});
  }
  void Consume(Link& link, size_t bytes) {
    link.Consume(bytes);
    read_ += bytes;
  }
  // Copies what there is to `out`, the place of the first byte of the stream.
  bool ReadTo(Link& link, void* out) {
    if (left() == 0) return false;
    const size_t size = link.Read(static_cast<uint8_t*>(out) + read_, left());
    read_ += size;
    return size > 0;
  }
  size_t size() const { return size_; }
  size_t read() const { return read_; }
  size_t left() const { return size_ - read_; }
  bool done() const { return has_header() && left() == 0; }
  // Bytes that the link must still bring.
  size_t wanted() const { return kHeaderBytes - header_read_ + left(); }

 private:
  uint8_t header_[kHeaderBytes];
  bool expects_header_ = false;
  size_t header_read_ = kHeaderBytes, size_ = 0, read_ = 0;
};

}  // namespace staffel
