// Where the time of a forward goes. In a build with -DFLM_PROFILE (scripts/bench profile makes one)
// every member of a team keeps a clock that is in one phase at a time; otherwise nothing is here.
#pragma once

#if defined(FLM_PROFILE)

#include <chrono>
#include <mutex>

enum Phase { OTHER, PRODUCTS, HEAD, ATTENTION, INPUTS, WAITING, NUM_PHASES };

struct Ledger {
  std::mutex lock;
  double seconds[NUM_PHASES] = {};
  double forward = 0;  // of the first members, from their first to their last phase
};

static Ledger ledger;

struct Clock {
  using Moment = std::chrono::steady_clock::time_point;
  Phase now = OTHER;
  Moment since;
  double seconds[NUM_PHASES] = {};

  Phase turn_to(Phase next) {
    Moment moment = std::chrono::steady_clock::now();
    seconds[now] += std::chrono::duration<double>(moment - since).count();
    since = moment;
    Phase before = now;
    now = next;
    return before;
  }
};

static thread_local Clock own_clock;

// From here to the end of the block, this member is in a phase.
class Timed {
 public:
  explicit Timed(Phase phase) : before_(own_clock.turn_to(phase)) {}
  ~Timed() { own_clock.turn_to(before_); }

 private:
  const Phase before_;
};

// From here to the end of the block, this member's clock runs.
class Timing {
 public:
  explicit Timing(bool is_first) : is_first_(is_first) {
    own_clock = Clock();
    own_clock.since = std::chrono::steady_clock::now();
  }
  ~Timing() {
    own_clock.turn_to(OTHER);
    std::lock_guard<std::mutex> guard(ledger.lock);
    for (int i = 0; i < NUM_PHASES; i++) {
      ledger.seconds[i] += own_clock.seconds[i];
      if (is_first_) ledger.forward += own_clock.seconds[i];
    }
  }

 private:
  const bool is_first_;
};

#define FLM_TIMED(phase) Timed timed(phase)
#define FLM_TIMING(is_first) Timing timing(is_first)

extern "C" {
// Seconds of all members in each phase, then of the forwards, since the last call.
void flm_profile_take(double* out) {
  std::lock_guard<std::mutex> guard(ledger.lock);
  for (int i = 0; i < NUM_PHASES; i++) {
    out[i] = ledger.seconds[i];
    ledger.seconds[i] = 0;
  }
  out[NUM_PHASES] = ledger.forward;
  ledger.forward = 0;
}
}

#else

#define FLM_TIMED(phase) ((void)0)
#define FLM_TIMING(is_first) ((void)0)

#endif
