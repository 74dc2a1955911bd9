// Pages of keys and values: 32 positions of one layer, in one of two formats. What belongs to one
// head lies together, head_bytes of it.
//
// BRAIN: bfloat16. Keys are [head_dim / 2, 32, 2]: a 32-bit lane is a position, with two
// neighbouring dimensions in it. Values are [16, head_dim, 2]: a lane is a dimension, with two
// neighbouring positions in it.
//
// BYTE: 8 bits. Keys are [head_dim / 4, 32, 4], each 128 more than it is; values [8, head_dim, 4].
// After them come the scales of the 32 positions, in bfloat16: a number is its byte times the scale
// of its position.
#pragma once

#include "numbers.h"

constexpr int PAGE = 32;
constexpr int GROUP = 4;  // positions that are written together: those that share lanes

enum KvFormat : int32_t { BRAIN = 0, BYTE = 1 };

struct Pages {
  uint8_t *keys, *values;
  int num_kv_heads, head_dim;
  KvFormat format;

  size_t scales_at() const { return (size_t)head_dim * PAGE; }  // where bytes end
  size_t head_bytes() const {
    return format == BRAIN ? (size_t)head_dim * PAGE * 2 : (size_t)(head_dim + 2) * PAGE;
  }
  uint8_t* keys_of(int page, int kv_head) const { return keys + offset(page, kv_head); }
  uint8_t* values_of(int page, int kv_head) const { return values + offset(page, kv_head); }

 private:
  size_t offset(int page, int kv_head) const {
    return ((size_t)page * num_kv_heads + kv_head) * head_bytes();
  }
};

// The key of one position.
static inline void write_key_brain(const float* key, int dim, int slot, uint8_t* page) {
  int32_t* lanes = (int32_t*)page + slot;
  for (int d = 0; d < dim; d += LANES) {
    int32_t pairs[LANES / 2];
    store_brain(pairs, load(key + d));
    for (int i = 0; i < LANES / 2; i++) lanes[(d / 2 + i) * PAGE] = pairs[i];
  }
}

// Values of positions that share lanes, `count` rows from `slot` on. Those behind the last row get
// zeros: what a former holder left must not reach a sum, not even times zero.
static inline void write_values_brain(const float* values, size_t stride, int count, int dim,
                                      int slot, uint8_t* page) {
  for (int end = slot + count; slot < end;) {
    const bool has_first = slot % 2 == 0, has_second = !has_first || slot + 1 < end;
    int32_t* lanes = (int32_t*)page + slot / 2 * dim;
    const float* second = has_first ? values + stride : values;
    for (int d = 0; d < dim; d += LANES) {
      vi pair = has_first ? to_brain(load(values + d)) : load_int(lanes + d) & 0xffff;
      if (has_second) pair |= to_brain(load(second + d)) << 16;
      store_int(lanes + d, pair);
    }
    const int done = has_first && has_second ? 2 : 1;
    slot += done;
    values += done * stride;
  }
}

// The scale of a vector, rounded up so that no number of it goes beyond 127, and its inverse.
struct Scale {
  brain_t bits;
  float inverse;
};

static FLM_INLINE Scale scale_of(const float* x, int dim) {
  vf top = splat(0.0f);
  for (int d = 0; d < dim; d += LANES) top = vmax(top, vmax(load(x + d), -load(x + d)));
  float scale = lane_max(top) / 127.0f;
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof bits);
  bits = (bits + 0xffff) & 0xffff0000;
  std::memcpy(&scale, &bits, sizeof bits);
  return {(brain_t)(bits >> 16), scale > 1e-30f ? 1.0f / scale : 0.0f};
}

static inline void write_key_byte(const float* key, int dim, int slot, uint8_t* page) {
  const Scale scale = scale_of(key, dim);
  int32_t* lanes = (int32_t*)page + slot;
  for (int d = 0; d < dim; d += LANES) {
    int32_t fours[LANES / 4];
    store_bytes(fours, round_to_int(load(key + d) * scale.inverse));
    for (int i = 0; i < LANES / 4; i++)  // 128 more is the other upper bit
      lanes[(d / 4 + i) * PAGE] = fours[i] ^ (int32_t)0x80808080;
  }
  ((brain_t*)(page + (size_t)dim * PAGE))[slot] = scale.bits;
}

static inline void write_values_byte(const float* values, size_t stride, int count, int dim,
                                     int slot, uint8_t* page) {
  int32_t* lanes = (int32_t*)page + slot / 4 * dim;
  const int first = slot % 4;
  const int32_t kept = (int32_t)((1u << (8 * first)) - 1);
  float inverses[GROUP];
  for (int i = 0; i < count; i++) {
    const Scale scale = scale_of(values + i * stride, dim);
    inverses[i] = scale.inverse;
    ((brain_t*)(page + (size_t)dim * PAGE))[slot + i] = scale.bits;
  }
  for (int d = 0; d < dim; d += LANES) {
    vi four = first == 0 ? splat_int(0) : load_int(lanes + d) & kept;
    for (int i = 0; i < count; i++) {
      vi byte = round_to_int(load(values + i * stride + d) * inverses[i]) & 0xff;
      four |= byte << (8 * (first + i));
    }
    store_int(lanes + d, four);
  }
}

// Writes `count` neighbouring positions of one head from `slot` on, no more than to the end of a
// group; rows of keys and values are `stride` floats apart.
static inline void write_group(const Pages& pages, int page, int kv_head, int slot, int count,
                               const float* keys, const float* values, size_t stride) {
  const int dim = pages.head_dim;
  uint8_t *to_keys = pages.keys_of(page, kv_head), *to_values = pages.values_of(page, kv_head);
  if (pages.format == BRAIN) {
    for (int i = 0; i < count; i++) write_key_brain(keys + i * stride, dim, slot + i, to_keys);
    write_values_brain(values, stride, count, dim, slot, to_values);
  } else {
    for (int i = 0; i < count; i++) write_key_byte(keys + i * stride, dim, slot + i, to_keys);
    write_values_byte(values, stride, count, dim, slot, to_values);
  }
}
