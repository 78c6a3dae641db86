#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace staffel {
namespace {

// The shortest that the kernel takes.
constexpr uint64_t kShortSliceNs = 100'000;

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kPollsPerYield = 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The first version of the kernel's struct sched_attr, which glibc of Debian 12 lacks; the call
// takes its size.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

}  // namespace

void SpinWhileZero(const std::atomic<int>& waiting) {
  const auto spin_end = std::chrono::steady_clock::now() + kSpin;
  while (waiting.load(std::memory_order_acquire) == 0 &&
         std::chrono::steady_clock::now() < spin_end) {
    for (int poll = 0; poll < kPollsPerYield; ++poll) {
      if (waiting.load(std::memory_order_acquire) != 0) break;
      Pause();
    }
    std::this_thread::yield();
  }
}

void NameThread(const char* name) { pthread_setname_np(pthread_self(), name); }

void PreferShortSlices() {
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  SchedAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;  // somebody has chosen another: theirs it is
  attributes.size = sizeof attributes;
  attributes.flags = 0;
  attributes.runtime_ns = kShortSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

}  // namespace staffel
