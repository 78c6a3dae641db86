#include "source/cache_folder.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "base/option_values.h"
#include "base/strings.h"
#include "source/disk.h"

namespace staffel {
namespace {

constexpr int kOpenTries = 100;
// "-00001-of-00003.gguf"
constexpr size_t kPartDigits = 5, kPartSuffix = 20;

bool AllDigits(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

// The parts of a name that this cache gives.
struct Name {
  std::string digest;
  std::string first;  // name of the model's first file; empty: not told by this name
  bool log = false;
};

bool ParseName(const std::string& name, Name* out) {
  const size_t end = name.find_first_not_of("0123456789abcdef");
  if (end == 0 || end == name.npos) return false;
  out->digest = name.substr(0, end);
  const std::string_view rest = std::string_view(name).substr(end);
  out->log = rest == ".ranges";
  if (rest == ".gguf") out->first = name;
  if (rest == ".gguf" || out->log) return true;
  if (rest.size() != kPartSuffix || rest[0] != '-' || rest.substr(6, 4) != "-of-" ||
      rest.substr(15) != ".gguf" || !AllDigits(rest.substr(1, kPartDigits)) ||
      !AllDigits(rest.substr(10, kPartDigits))) {
    return false;
  }
  out->first = StrCat(out->digest, "-00001", std::string(rest.substr(6)));
  return true;
}

bool IsAt(int fd, const std::string& path) {
  struct stat open_file, named;
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

// Waits. A file system without locks is one without other processes.
void Flock(int fd, int operation) {
  while (flock(fd, operation) != 0 && errno == EINTR) {
  }
}

// Whether it is gone now.
bool RemoveIfUnused(const CachedModel& model) {
  const int fd = open(model.paths.front().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const absl::Cleanup close_it = [fd] { close(fd); };
  if (!TryLockAlone(fd) || !IsAt(fd, model.paths.front())) return false;
  // The locked one last: until then others wait.
  for (auto path = model.paths.rbegin(); path != model.paths.rend(); ++path) unlink(path->c_str());
  return true;
}

}  // namespace

std::vector<CachedModel> CachedModels(const std::string& folder) {
  std::map<std::string, CachedModel> found;
  std::map<std::string, std::string> first;  // by digest
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    Name name;
    struct stat info;
    if (!ParseName(at->path().filename().string(), &name) || stat(at->path().c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    CachedModel& model = found[name.digest];
    model.digest = name.digest;
    model.disk_bytes += int64_t{info.st_blocks} * 512;
    if (!name.first.empty()) first[name.digest] = StrCat(folder, "/", name.first);
    if (name.log) {
      model.used_ns = info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec;
    }
    model.paths.push_back(at->path().string());
  }
  std::vector<CachedModel> models;
  for (auto& [digest, model] : found) {
    // A log alone is not worth the trouble: its model's file has been deleted by hand.
    if (first[digest].empty()) continue;
    std::erase(model.paths, first[digest]);
    model.paths.insert(model.paths.begin(), first[digest]);
    models.push_back(std::move(model));
  }
  std::sort(models.begin(), models.end(), [](const CachedModel& a, const CachedModel& b) {
    return a.used_ns != b.used_ns ? a.used_ns < b.used_ns : a.digest < b.digest;
  });
  return models;
}

Result<int> OpenInUse(const std::string& path) {
  for (int i = 0; i < kOpenTries; ++i) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return DiskError("cannot be opened", path, errno);
    Flock(fd, LOCK_SH);
    if (IsAt(fd, path)) return fd;
    close(fd);  // removed before the lock was there
  }
  return absl::UnavailableError(StrCat("'", path, "' is removed again and again; give each worker ",
                                       "a --cache-dir of its own, or a larger --cache-limit"));
}

Status LockInUse(int fd, const std::string& path) {
  Flock(fd, LOCK_SH);
  if (IsAt(fd, path)) return absl::OkStatus();
  return absl::UnavailableError(StrCat("'", path, "' was removed while it was in use"));
}

bool TryLockAlone(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0; }

int64_t MakeRoom(const std::string& folder, int64_t limit_bytes, int64_t wanted_bytes,
                 const std::string& kept) {
  const std::vector<CachedModel> models = CachedModels(folder);
  int64_t over = wanted_bytes - limit_bytes;
  for (const CachedModel& model : models) over += model.disk_bytes;
  for (const CachedModel& model : models) {
    if (over <= 0) break;
    if (model.digest == kept || !RemoveIfUnused(model)) continue;
    over -= model.disk_bytes;
    spdlog::info("removed the cached parts of model {}... ({}), for '{}' may take {}",
                 model.digest.substr(0, 12), HumanBytes(model.disk_bytes), folder,
                 HumanBytes(limit_bytes));
  }
  return std::max<int64_t>(over, 0);
}

}  // namespace staffel
