#include "modelfile/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include "base/strings.h"
#include "modelfile/foreign_format.h"

namespace staffel {
namespace {

Status OpenError(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError("there is no such file; check the path");
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          "no permission to read it; check the rights of the file and of the folders above it");
    case ENXIO:
      return absl::InvalidArgumentError("it is a socket or a device, not a model file");
    case ENAMETOOLONG:
      return absl::NotFoundError("the path is too long to be that of a file");
    default:
      return absl::UnavailableError(StrCat("it cannot be opened: ", std::strerror(error)));
  }
}

Status CheckKind(mode_t mode, const std::string& path) {
  if (S_ISREG(mode)) return absl::OkStatus();
  if (S_ISDIR(mode)) return absl::InvalidArgumentError(DescribeFolder(path));
  const char* kind = S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
  return absl::InvalidArgumentError(
      StrCat("it is ", kind, ", not a model file; give the path of a GGUF file"));
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO without a writer opens at once instead of waiting for one.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) return OpenError(errno);
  struct stat info;
  if (fstat(file.fd, &info) != 0) return OpenError(errno);
  STAFFEL_RETURN_IF_ERROR(CheckKind(info.st_mode, path));
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::unique_ptr<MappedFile>(new MappedFile({}));
  void* address = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (address == MAP_FAILED) {
    return absl::UnavailableError(
        StrCat("its ", size, " bytes cannot be mapped into memory: ", std::strerror(errno),
               "; copy it to a local disk and check `ulimit -v`"));
  }
  return std::unique_ptr<MappedFile>(new MappedFile({static_cast<const uint8_t*>(address), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

void MappedFile::DropPages(absl::Span<const uint8_t> part) const {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page_bytes - 1) / page_bytes * page_bytes;
  const uintptr_t last = (begin + part.size()) / page_bytes * page_bytes;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace staffel
