#include "app/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/strings.h"

namespace staffel {
StopRule::Answer StopRule::At(Time now) {
  if (!first_) {
    first_ = now;
    return Answer::kAsk;
  }
  return now - *first_ < kSameWish ? Answer::kRepeat : Answer::kEndAtOnce;
}

StopSignals::StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  end_fd_ = eventfd(0, EFD_CLOEXEC);
  STAFFEL_CHECK(signal_fd_ >= 0 && end_fd_ >= 0);
  thread_ = std::thread([this] { Watch(); });
}

StopSignals::~StopSignals() {
  eventfd_write(end_fd_, 1);
  thread_.join();
  close(signal_fd_);
  close(end_fd_);
}

void StopSignals::EndAtFirst(bool on) {
  std::lock_guard lock(mutex_);
  end_at_first_ = on;
}

bool StopSignals::end_at_first() {
  std::lock_guard lock(mutex_);
  return end_at_first_;
}

void StopSignals::Request(std::string reason) {
  std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = std::move(reason);
  asked_.notify_all();
}

std::string StopSignals::Wait(Duration timeout) {
  std::unique_lock lock(mutex_);
  asked_.wait_for(lock, timeout, [this] { return !reason_.empty(); });
  return reason_;
}

void StopSignals::Watch() {
  StopRule rule;
  while (true) {
    pollfd files[] = {{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}};
    while (poll(files, 2, -1) < 0) {
    }
    if (files[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof info) != sizeof info) continue;
    const StopRule::Answer answer = rule.At(SystemClock().Now());
    if (answer == StopRule::Answer::kRepeat) continue;
    const std::string name = info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM";
    if (answer == StopRule::Answer::kEndAtOnce) {
      spdlog::warn("second signal ({}): ending at once", name);
      _exit(128 + static_cast<int>(info.ssi_signo));
    }
    if (end_at_first()) {
      spdlog::info("{}: ending before the model was ready", name);
      _exit(0);
    }
    Request(name);
  }
}

}  // namespace staffel
