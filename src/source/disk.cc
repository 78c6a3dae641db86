#include "source/disk.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/strings.h"

namespace staffel {

Status DiskError(std::string_view what, const std::string& path, int error) {
  const std::string text = StrCat("'", path, "' ", std::string(what), ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(
          StrCat(text, "; free space there, or give another --cache-dir"));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(
          StrCat(text, "; give a --cache-dir that this user may write to"));
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(StrCat(text, "; check --cache-dir"));
    default:
      return absl::UnavailableError(text);
  }
}

Status ReadAll(int fd, const std::string& path, int64_t offset, absl::Span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t count = pread(fd, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DiskError("cannot be read", path, errno);
    if (count == 0) return absl::DataLossError(StrCat("'", path, "' ends at byte ", offset));
    out.remove_prefix(count);
    offset += count;
  }
  return absl::OkStatus();
}

Status WriteAll(int fd, const std::string& path, int64_t offset, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DiskError("cannot be written", path, errno);
    bytes.remove_prefix(count);
    offset += count;
  }
  return absl::OkStatus();
}

Status WriteAll(int fd, const std::string& path, int64_t offset, std::string_view text) {
  return WriteAll(fd, path, offset,
                  absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

}  // namespace staffel
