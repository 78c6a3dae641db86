#include "app/worker_name.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr int kSeatsMax = 1024;
constexpr size_t kIdDigits = 8;

std::string HostName() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

// Nothing: it is not what this program has written.
std::string ReadId(int fd) {
  char text[kIdDigits] = {};
  if (pread(fd, text, sizeof text, 0) != static_cast<ssize_t>(sizeof text)) return "";
  for (char digit : text) {
    if (!std::isxdigit(static_cast<unsigned char>(digit))) return "";
  }
  return std::string(text, sizeof text);
}

std::string WriteNewId(int fd) {
  char text[kIdDigits + 1];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(std::random_device{}()));
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, kIdDigits, 0) != static_cast<ssize_t>(kIdDigits)) {
    return "";
  }
  return text;
}

}  // namespace

WorkerName::WorkerName(const std::string& cache_dir) {
  std::string id;
  std::error_code error;
  if (!cache_dir.empty()) std::filesystem::create_directories(cache_dir, error);
  for (int seat = 0; seat < kSeatsMax && !cache_dir.empty() && id.empty(); ++seat) {
    const std::string path = StrCat(cache_dir, "/worker-", seat, ".name");
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) break;
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      id = ReadId(fd_);
      if (id.empty()) id = WriteNewId(fd_);
      if (!id.empty()) break;
    }
    close(fd_);
    fd_ = -1;
  }
  text_ = id.empty() ? StrCat(HostName(), "-", getpid(), "-", std::time(nullptr))
                     : StrCat(HostName(), "-", id);
}

WorkerName::~WorkerName() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace staffel
