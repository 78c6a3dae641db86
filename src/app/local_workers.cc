#include "app/local_workers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr char kSelf[] = "/proc/self/exe";
constexpr Duration kLivedLong = std::chrono::seconds(10);
constexpr Duration kDelayMin = std::chrono::milliseconds(100), kDelayMax = std::chrono::seconds(5);
constexpr Duration kGrace = std::chrono::seconds(1);

// Options of this command mean nothing to a worker: only what is not ours is handed on.
std::vector<std::string> WorkerEnvironment(const std::string& token) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (variable.starts_with("STAFFEL_") || variable.starts_with("NOTIFY_SOCKET=") ||
        variable.starts_with("WATCHDOG_")) {
      continue;
    }
    out.emplace_back(variable);
  }
  out.push_back(StrCat("STAFFEL_TOKEN=", token));
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) {
    return StrCat("was ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return StrCat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<LocalWorkers>> LocalWorkers::Start(LocalWorkerOptions options) {
  if (access(kSelf, X_OK) != 0) {
    return absl::NotFoundError(
        StrCat("the workers cannot be started: ", kSelf, ": ", std::strerror(errno)));
  }
  std::unique_ptr<LocalWorkers> workers(new LocalWorkers(std::move(options)));
  std::future<Status> all_started = workers->started_.get_future();
  workers->thread_ = std::thread([w = workers.get()] { w->Watch(); });
  STAFFEL_RETURN_IF_ERROR(all_started.get());
  return workers;
}

LocalWorkers::LocalWorkers(LocalWorkerOptions options)
    : options_(std::move(options)),
      processes_(options_.count),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

LocalWorkers::~LocalWorkers() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  close(stop_fd_);
}

// The parent's death signal belongs to the thread that forks, which is this one: it lives as long
// as the object.
void LocalWorkers::Watch() {
  Status status;
  for (int i = 0; i < options_.count && status.ok(); ++i) status = Spawn(i);
  started_.set_value(status);
  if (status.ok()) WatchOn();
  EndAll();
}

void LocalWorkers::WatchOn() {
  while (true) {
    std::vector<pollfd> polled{{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    for (const Process& process : processes_) {
      polled.push_back({.fd = process.pidfd, .events = POLLIN, .revents = 0});
    }
    if (poll(polled.data(), polled.size(), MillisecondsToNextStart()) < 0 && errno != EINTR) break;
    if (polled[0].revents != 0) break;
    for (int i = 0; i < options_.count; ++i) {
      if (processes_[i].pid > 0 && polled[i + 1].revents != 0) Reap(i);
      if (processes_[i].pid > 0 || SystemClock().Now() < processes_[i].restart_at) continue;
      if (const Status status = Spawn(i); !status.ok()) {
        spdlog::error("{}", std::string(status.message()));
        processes_[i].restart_at = processes_[i].started + kDelayMax;
      }
    }
  }
}

Status LocalWorkers::Spawn(int index) {
  std::vector<std::string> arguments{"staffel",       "worker", "--master",
                                     options_.master, "--name", StrCat("local-", index)};
  arguments.insert(arguments.end(), options_.flags.begin(), options_.flags.end());
  std::vector<std::string> environment = WorkerEnvironment(options_.token);
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
  Process& process = processes_[index];
  process.started = SystemClock().Now();
  const int parent = getpid();
  const int pid = fork();
  if (pid == 0) {
    // Only calls that are safe after fork in a process with threads.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it ended before the line above
    setpgid(0, 0);  // a terminal's Ctrl-C is for the server, which then ends its workers in order
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(kSelf, argv.data(), envp.data());
    _exit(127);
  }
  if (pid < 0) {
    return absl::UnavailableError(
        StrCat("worker local-", index, " cannot be started: ", std::strerror(errno)));
  }
  process.pid = pid;
  process.pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  return absl::OkStatus();
}

void LocalWorkers::Reap(int index) {
  Process& process = processes_[index];
  int status = 0;
  if (waitpid(process.pid, &status, WNOHANG) != process.pid) return;
  const Time now = SystemClock().Now();
  process.failures = now - process.started > kLivedLong ? 0 : process.failures + 1;
  const Duration delay =
      std::min(kDelayMax, kDelayMin * (int64_t{1} << std::min(process.failures, 10)));
  spdlog::error("worker local-{} (pid {}) {}; it is started again in {:.1f} s", index, process.pid,
                HowItEnded(status), std::chrono::duration<double>(delay).count());
  close(process.pidfd);
  process.pid = process.pidfd = -1;
  process.restart_at = now + delay;
}

int LocalWorkers::MillisecondsToNextStart() const {
  int64_t least = -1;
  for (const Process& process : processes_) {
    if (process.pid > 0) continue;
    const int64_t left = std::chrono::duration_cast<std::chrono::milliseconds>(process.restart_at -
                                                                               SystemClock().Now())
                             .count();
    const int64_t wait = std::max<int64_t>(0, left + 1);
    least = least < 0 ? wait : std::min(least, wait);
  }
  return static_cast<int>(least);
}

void LocalWorkers::EndAll() {
  for (const Process& process : processes_) {
    if (process.pid > 0) kill(process.pid, SIGTERM);
  }
  const Time deadline = SystemClock().Now() + kGrace;
  for (Process& process : processes_) {
    if (process.pid <= 0) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SystemClock().Now());
    pollfd polled{.fd = process.pidfd, .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) != 1) {
      kill(process.pid, SIGKILL);
    }
    waitpid(process.pid, nullptr, 0);
    close(process.pidfd);
    process.pid = process.pidfd = -1;
  }
}

}  // namespace staffel
