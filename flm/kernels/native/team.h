// Threads that go through a forward together.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "profile.h"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  // Waits until every member has come. Members spin, as phases take microseconds, and give the
  // core away after a while in case somebody else needs it to get here.
  void barrier() {
    if (size_ == 1) return;
    FLM_TIMED(WAITING);
    unsigned phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; spins++) {
#if defined(__x86_64__)
      _mm_pause();
#elif defined(__aarch64__)
      asm volatile("isb");  // takes about as long; "yield" takes no time on most
#endif
      if (spins > 2000) std::this_thread::yield();
    }
  }

  int size() const { return size_; }

 private:
  const int size_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
};

// The share of member `me` in `count` things.
struct Share {
  int first, last;
  Share(int count, int me, int size)
      : first((int)((int64_t)count * me / size)), last((int)((int64_t)count * (me + 1) / size)) {}
};

// Runs work(me, team) on every member; fewer than asked where the system gives no more.
template <typename Work>
static void together([[maybe_unused]] int num_threads, Work work) {
#if defined(_OPENMP)
  if (num_threads > 1) {
    Team* team = nullptr;
#pragma omp parallel num_threads(num_threads) shared(team)
    {
#pragma omp single
      team = new Team(omp_get_num_threads());
      work(omp_get_thread_num(), *team);
    }
    delete team;
    return;
  }
#endif
  Team alone(1);
  work(0, alone);
}
