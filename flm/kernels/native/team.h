// Threads that go through a forward together.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "profile.h"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Waiting members spin, as phases take microseconds, and give the core away after a while in case
// somebody else needs it to get here.
template <typename Condition>
static inline void spin_while(Condition is_waiting) {
  for (int spins = 0; is_waiting(); spins++) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // takes about as long; "yield" takes no time on most
#endif
    if (spins > 2000) std::this_thread::yield();
  }
}

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  // Waits until every member has come.
  void barrier() {
    if (size_ == 1) return;
    FLM_TIMED(WAITING);
    unsigned phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    spin_while([&] { return phase_.load(std::memory_order_acquire) == phase; });
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

#if !defined(_OPENMP)

// Where the compiler has no OpenMP (Apple's): threads that sleep between the works. They live as
// long as the process does.
class Crew {
 public:
  static Crew& of_process() {
    static Crew* crew = new Crew;
    return *crew;
  }

  // Calls work(me, number of members) on as many threads as there are, up to num_threads.
  template <typename Work>
  void run(int num_threads, Work work) {
    std::lock_guard<std::mutex> turn(turn_);
    while ((int)threads_.size() + 1 < num_threads && add_thread()) continue;
    const int size = std::min(num_threads, (int)threads_.size() + 1);
    {
      std::lock_guard<std::mutex> guard(lock_);
      work_ = [&](int me) { work(me, size); };
      members_ = size;
      at_work_.store(size - 1, std::memory_order_relaxed);
      number_++;
    }
    wake_.notify_all();
    work(0, size);
    spin_while([&] { return at_work_.load(std::memory_order_acquire) > 0; });
  }

 private:
  bool add_thread() {
    try {
      // As many works as were given out before are none of its own.
      threads_.emplace_back([this, me = (int)threads_.size() + 1, seen = number_] { serve(me, seen); });
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

  void serve(int me, unsigned seen) {
    for (;;) {
      std::function<void(int)> work;
      {
        std::unique_lock<std::mutex> guard(lock_);
        wake_.wait(guard, [&] { return number_ != seen; });
        seen = number_;
        if (me >= members_) continue;
        work = work_;
      }
      work(me);
      at_work_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::mutex turn_, lock_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
  std::function<void(int)> work_;
  unsigned number_ = 0;  // of the work
  int members_ = 0;
  std::atomic<int> at_work_{0};
};

#endif

// Runs work(me, team) on every member; fewer than asked where the system gives no more.
template <typename Work>
static void together(int num_threads, Work work) {
  if (num_threads <= 1) {
    Team alone(1);
    work(0, alone);
    return;
  }
#if defined(_OPENMP)
  Team* team = nullptr;
#pragma omp parallel num_threads(num_threads) shared(team)
  {
#pragma omp single
    team = new Team(omp_get_num_threads());
    work(omp_get_thread_num(), *team);
  }
  delete team;
#else
  std::atomic<Team*> team{nullptr};
  Crew::of_process().run(num_threads, [&](int me, int size) {
    if (me == 0) team.store(new Team(size), std::memory_order_release);
    spin_while([&] { return team.load(std::memory_order_acquire) == nullptr; });
    work(me, *team.load(std::memory_order_relaxed));
  });
  delete team.load();
#endif
}
