// The native kernels in a process of their own, for scripts/on_arm.py: what comes in makes memory,
// reads it and calls functions.
#include "../flm/kernels/native/forward.cpp"

#include <cstdio>

using Word = uint64_t;

static bool take(void* to, size_t size) { return std::fread(to, 1, size, stdin) == size; }

static void give(const void* from, size_t size) {
  std::fwrite(from, 1, size, stdout);
  std::fflush(stdout);
}

template <typename Function>
static void* pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

// Integers and pointers are passed alike, so one type stands for all functions.
static Word call(const Word* a) {
  void* functions[] = {pointer(flm_forward), pointer(flm_linear),      pointer(flm_product),
                       pointer(flm_best),    pointer(flm_are_numbers), pointer(flm_rule_out),
                       pointer(flm_read_row)};
  using Any = int (*)(Word, Word, Word, Word, Word, Word, Word, Word);
  const Any any = reinterpret_cast<Any>(functions[a[0]]);
  return any(a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
}

int main() {
  std::vector<void*> made;
  for (Word a[10]; take(a, sizeof a);) {
    if (a[0] == 'm') {  // as many bytes as a[1] follow
      made.push_back(std::aligned_alloc(64, (a[1] + 127) / 64 * 64));
      if (!take(made.back(), a[1])) return 1;
      give(&made.back(), sizeof(void*));
    } else if (a[0] == 'r') {
      give((const void*)a[1], a[2]);
    } else if (a[0] == 'c') {
      const Word result = call(a + 1);
      give(&result, sizeof result);
    } else {  // nothing of it is needed any more
      for (void* memory : made) std::free(memory);
      made.clear();
    }
  }
  return 0;
}
