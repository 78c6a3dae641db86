// A pool of workers for short parallel regions (microseconds). Owned by one backend; Run is called
// by one thread, the caller, which works as worker 0.
//
// Each worker starts with a contiguous share of the pieces, so that its memory streams run on, and
// then helps with the others' shares. The caller waits until all pieces are done, never for a
// particular worker: a worker whose core was taken away costs its share and nothing more. Waits
// spin for a moment and then sleep on a futex; an idle pool uses no CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace staffel {

// Cores this process may use: the affinity mask, cut by the cgroup's CPU quota (rounded up).
// At least 1.
int UsableCores();

class ThreadPool {
 public:
  // About as long as the gap between two regions of a step: shorter, and every region would pay a
  // futex wake-up; longer, and a core lost to a neighbour is burnt by waiting.
  static constexpr int kSpinUs = 40;

  // threads >= 1, the caller included.
  explicit ThreadPool(int threads, int spin_us = kSpinUs);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(tickets_.size()); }

  // Calls f(piece, worker) once for every piece in [0, pieces), worker in [0, size()); returns when
  // all have returned. f must not throw and must not call Run. What f wrote is visible to the
  // caller; what the caller wrote before is visible to f.
  template <class F>
  void Run(int pieces, F&& f) {
    RunErased(
        pieces,
        [](void* context, int piece, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(context))(piece, worker);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }
  // The same without a template, for launch tables.
  using Function = void (*)(void* context, int piece, int worker);
  void RunErased(int pieces, Function function, void* context);

  // First piece of a worker's own share.
  int ShareBegin(int pieces, int worker) const {
    return static_cast<int>(int64_t{pieces} * worker / size());
  }

 private:
  // A ticket is {end : 32, next : 32}: one fetch_add claims a piece of whatever region is current.
  // A claim below `end` pins that region until the piece is reported done, so that a late worker
  // can never touch a region that has ended. Each on its own cache line.
  struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Word {
    std::atomic<uint32_t> value{0};
  };

  void Work(int worker);
  void Drain(int worker);
  // Spins until done() or for about spin_us; returns done().
  template <class Done>
  bool Spin(Done done) const;

  std::vector<Ticket> tickets_;
  // The current region; written by the caller before the tickets are handed out.
  Function function_ = nullptr;
  void* context_ = nullptr;
  uint32_t pieces_ = 0;

  Word done_;            // pieces finished in this region; the caller's futex
  Word epoch_;           // counts regions; the workers' futex
  Word sleepers_;        // workers asleep on epoch_
  Word caller_waiting_;  // the caller sleeps on done_
  std::atomic<bool> stop_{false};
  const int spin_us_;
  std::vector<std::thread> threads_;
};

}  // namespace staffel
