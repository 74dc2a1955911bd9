// The best of many numbers, and whether they are numbers at all.
#pragma once

#include <algorithm>
#include <vector>

#include "vec.h"

struct Choice {
  float value;
  int32_t id;
};

// Higher first, the lower id among equals.
static inline bool is_better(const Choice& a, const Choice& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// NaN or plus infinity among `count` values.
static inline bool has_no_number(const float* values, int count) {
  vi bad = splat_int(0);
  int i = 0;
  for (; i + LANES <= count; i += LANES) bad |= ~(load(values + i) < splat(INFINITY));
  bool found = any(bad);
  for (; i < count; i++) found |= !(values[i] < INFINITY);
  return found;
}

// The `wanted` best of `count` values, best first; `wanted` <= count, and no value is NaN.
class Best {
 public:
  explicit Best(int wanted) : wanted_(wanted) { kept_.reserve(2 * wanted + 2 * LANES); }

  const std::vector<Choice>& of(const float* values, int count) {
    kept_.clear();
    int i = 0;
    for (; i < count && (int)kept_.size() < wanted_; i++) kept_.push_back({values[i], i});
    shrink();
    for (; i + LANES <= count; i += LANES) {
      // Later equals of the worst that is kept have a higher id: they never count.
      if (!any(load(values + i) > splat(worst_))) continue;
      for (int lane = 0; lane < LANES; lane++) consider(values[i + lane], i + lane);
      if ((int)kept_.size() > 2 * wanted_) shrink();
    }
    for (; i < count; i++) consider(values[i], i);
    shrink();
    std::sort(kept_.begin(), kept_.end(), is_better);
    return kept_;
  }

 private:
  void consider(float value, int id) {
    if (value > worst_) kept_.push_back({value, id});
  }

  // Cuts to the best and puts the worst of them last.
  void shrink() {
    if ((int)kept_.size() > wanted_) {
      std::nth_element(kept_.begin(), kept_.begin() + wanted_ - 1, kept_.end(), is_better);
      kept_.resize(wanted_);
    } else {
      std::iter_swap(std::max_element(kept_.begin(), kept_.end(), is_better), kept_.end() - 1);
    }
    worst_ = kept_.back().value;
  }

  const int wanted_;
  float worst_ = 0.0f;
  std::vector<Choice> kept_;
};

// Minus infinity where the bit of a value is 0; bits behind the end of `mask` are.
static inline void rule_out(float* values, int count, const uint8_t* mask, int mask_bytes) {
  const vf out = splat(-INFINITY);
  int32_t bits_of_lanes[LANES];
  for (int i = 0; i < LANES; i++) bits_of_lanes[i] = 1 << i;
  const vi bit_of = load_int(bits_of_lanes);
  for (int at = 0; at < count; at += LANES) {
    const int byte = at / 8;
    int32_t bits = byte < mask_bytes ? mask[byte] : 0;
    if (byte + 1 < mask_bytes) bits |= mask[byte + 1] << 8;
    if (at + LANES <= count) {
      store(values + at, select((bit_of & bits) != 0, load(values + at), out));
      continue;
    }
    for (int i = 0; at + i < count; i++)
      if (!(bits >> i & 1)) values[at + i] = -INFINITY;
  }
}
