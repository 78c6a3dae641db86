#include "device/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/check.h"

namespace staffel {
namespace {

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// CPU quota of the cgroup in cores (cgroup v2 cpu.max, then v1), or a large number.
double CgroupCores() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0)
    return std::atof(quota.c_str()) / period;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double us = 0;
  if (v1_quota >> us && v1_period >> period && us > 0 && period > 0) return us / period;
  return INT_MAX;
}

}  // namespace

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  const double quota = CgroupCores();
  if (quota < cores) cores = static_cast<int>(quota + 0.999);
  return std::max(1, cores);
}

ThreadPool::ThreadPool(int threads, int spin_us) : tickets_(threads), spin_us_(spin_us) {
  STAFFEL_CHECK_GE(threads, 1);
  threads_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    threads_.emplace_back([this, worker] { Work(worker); });
    const std::string name = "staffel-cpu-" + std::to_string(worker);
    pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_seq_cst);
  epoch_.value.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(epoch_.value, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

template <class Done>
bool ThreadPool::Spin(Done done) const {
  using Clock = std::chrono::steady_clock;
  // The clock is read every 16 pauses only: reading it costs about as much as they do.
  const auto deadline = Clock::now() + std::chrono::microseconds(spin_us_);
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (Clock::now() < deadline);
  return done();
}

void ThreadPool::RunErased(int pieces, Function function, void* context) {
  if (size() == 1 || pieces <= 1) {
    for (int piece = 0; piece < pieces; ++piece) function(context, piece, 0);
    return;
  }
  function_ = function;
  context_ = context;
  pieces_ = static_cast<uint32_t>(pieces);
  done_.value.store(0, std::memory_order_relaxed);
  for (int worker = 0; worker < size(); ++worker) {
    const uint64_t begin = ShareBegin(pieces, worker), end = ShareBegin(pieces, worker + 1);
    tickets_[worker].value.store(end << 32 | begin, std::memory_order_release);
  }
  // Sequentially consistent against the worker's "count me as a sleeper, look at the epoch again":
  // one of the two sees the other.
  epoch_.value.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.value.load(std::memory_order_seq_cst) != 0) {
    FutexWake(epoch_.value, std::min(pieces - 1, INT_MAX));
  }
  Drain(0);
  const auto all_done = [&] { return done_.value.load(std::memory_order_acquire) == pieces_; };
  if (Spin(all_done)) return;
  caller_waiting_.value.store(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t done = done_.value.load(std::memory_order_seq_cst);
    if (done == pieces_) break;
    FutexWait(done_.value, done);
  }
  caller_waiting_.value.store(0, std::memory_order_relaxed);
}

void ThreadPool::Drain(int worker) {
  const auto next = [](uint64_t ticket) { return static_cast<uint32_t>(ticket); };
  const auto end = [](uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); };
  for (int i = 0; i < size(); ++i) {
    std::atomic<uint64_t>& ticket = tickets_[(worker + i) % size()].value;
    for (;;) {
      // Looked at first so that `next` cannot run far beyond `end`.
      uint64_t claim = ticket.load(std::memory_order_relaxed);
      if (next(claim) >= end(claim)) break;
      claim = ticket.fetch_add(1, std::memory_order_acq_rel);
      if (next(claim) >= end(claim)) break;
      function_(context_, static_cast<int>(next(claim)), worker);
      // Read before reporting: afterwards the region may be gone.
      const uint32_t pieces = pieces_;
      if (done_.value.fetch_add(1, std::memory_order_seq_cst) + 1 == pieces &&
          caller_waiting_.value.load(std::memory_order_seq_cst) != 0) {
        FutexWake(done_.value, 1);
      }
    }
  }
}

void ThreadPool::Work(int worker) {
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const auto changed = [&] { return epoch_.value.load(std::memory_order_acquire) != seen; };
    if (!Spin(changed)) {
      sleepers_.value.fetch_add(1, std::memory_order_seq_cst);
      while (epoch_.value.load(std::memory_order_seq_cst) == seen) FutexWait(epoch_.value, seen);
      sleepers_.value.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen = epoch_.value.load(std::memory_order_acquire);
    Drain(worker);
  }
}

}  // namespace staffel
