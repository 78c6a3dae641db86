// A regular file mapped read-only into memory. Leaf class, immutable, usable from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "staffel/status.h"

namespace staffel {

class MappedFile {
 public:
  // Never waits: anything but a regular file (folder, FIFO, socket, device) is refused by kind.
  // Messages do not repeat the path. An empty file maps to an empty span.
  static Result<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Span<const uint8_t> bytes() const { return bytes_; }

  // Drops the whole pages inside `part` from this process; they are read again when touched.
  void DropPages(absl::Span<const uint8_t> part) const;

 private:
  explicit MappedFile(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}
  absl::Span<const uint8_t> bytes_;
};

}  // namespace staffel
