// Products of bytes with numbers of 15 bits and a sign, on ARM.
#pragma once

#include "attention.h"

#if defined(__ARM_FEATURE_DOTPROD)

// A product takes bytes, so a number is split into its lower and upper byte, both with a sign: four
// lower bytes, then the upper ones of the same numbers.
template <int COUNT>
struct Numbers {
  int32_t fours[COUNT / 4][2];
};

struct Bytes {
  int8x16_t quarters[4];
};

static FLM_INLINE Bytes load_values(const uint8_t* p) {
  Bytes bytes;
  for (int i = 0; i < 4; i++) bytes.quarters[i] = vld1q_s8((const int8_t*)p + i * 16);
  return bytes;
}

static FLM_INLINE Bytes load_keys(const uint8_t* p) {
  Bytes bytes = load_values(p);
  for (int8x16_t& quarter : bytes.quarters) quarter = veorq_s8(quarter, vdupq_n_s8(-128));
  return bytes;
}

struct Sums {
  int32x4_t low[4] = {}, high[4] = {};

  template <int COUNT>
  FLM_INLINE void add_values(const Bytes& bytes, const Numbers<COUNT>& numbers, int four) {
    const int8x8_t both = vreinterpret_s8_s32(vld1_s32(numbers.fours[four]));
    for (int i = 0; i < 4; i++) {
      low[i] = vdotq_lane_s32(low[i], bytes.quarters[i], both, 0);
      high[i] = vdotq_lane_s32(high[i], bytes.quarters[i], both, 1);
    }
  }
  template <int COUNT>
  FLM_INLINE void add_keys(const Bytes& bytes, const Numbers<COUNT>& numbers, int four) {
    add_values(bytes, numbers, four);
  }
  FLM_INLINE vf of_values() const {
    return {{whole(0), whole(1)}, {whole(2), whole(3)}};
  }
  FLM_INLINE vf of_keys(int32_t) const { return of_values(); }

 private:
  FLM_INLINE float4 whole(int i) const {
    return vcvtq_f32_s32(vaddq_s32(low[i], vshlq_n_s32(high[i], 8)));
  }
};

template <int COUNT>
static FLM_INLINE void put_signed(Numbers<COUNT>& to, int at, const vi& numbers) {
  int32_t low[LANES / 4], high[LANES / 4];
  store_bytes(low, numbers);
  store_bytes(high, (numbers + 128) >> 8);
  const int32x4x2_t both = {{vld1q_s32(low), vld1q_s32(high)}};
  vst2q_s32(to.fours[at / 4], both);
}

#else

// A product takes 16 bits.
template <int COUNT>
struct Numbers {
  int16_t fours[COUNT / 4][4];
};

struct Bytes {
  int16x8_t low[4], high[4];  // of the lower and upper eight lanes: one vector for each of a four
};

static FLM_INLINE Bytes load_values(const uint8_t* p) {
  const int8x16x4_t fours = vld4q_s8((const int8_t*)p);
  Bytes bytes;
  for (int i = 0; i < 4; i++) {
    bytes.low[i] = vmovl_s8(vget_low_s8(fours.val[i]));
    bytes.high[i] = vmovl_high_s8(fours.val[i]);
  }
  return bytes;
}

static FLM_INLINE Bytes load_keys(const uint8_t* p) {
  const uint8x16x4_t fours = vld4q_u8(p);
  const uint8x8_t more = vdup_n_u8(128);
  Bytes bytes;
  for (int i = 0; i < 4; i++) {
    bytes.low[i] = vreinterpretq_s16_u16(vsubl_u8(vget_low_u8(fours.val[i]), more));
    bytes.high[i] = vreinterpretq_s16_u16(vsubl_high_u8(fours.val[i], vdupq_n_u8(128)));
  }
  return bytes;
}

struct Sums {
  int32x4_t sums[4] = {};

  template <int COUNT>
  FLM_INLINE void add_values(const Bytes& bytes, const Numbers<COUNT>& numbers, int four) {
    const int16x4_t own = vld1_s16(numbers.fours[four]);
    add<0>(bytes, own);
    add<1>(bytes, own);
    add<2>(bytes, own);
    add<3>(bytes, own);
  }
  template <int COUNT>
  FLM_INLINE void add_keys(const Bytes& bytes, const Numbers<COUNT>& numbers, int four) {
    add_values(bytes, numbers, four);
  }
  FLM_INLINE vf of_values() const {
    return {{vcvtq_f32_s32(sums[0]), vcvtq_f32_s32(sums[1])},
            {vcvtq_f32_s32(sums[2]), vcvtq_f32_s32(sums[3])}};
  }
  FLM_INLINE vf of_keys(int32_t) const { return of_values(); }

 private:
  template <int I>
  FLM_INLINE void add(const Bytes& bytes, int16x4_t numbers) {
    const int16x8_t low = bytes.low[I], high = bytes.high[I];
    sums[0] = vmlal_lane_s16(sums[0], vget_low_s16(low), numbers, I);
    sums[1] = vmlal_high_lane_s16(sums[1], low, numbers, I);
    sums[2] = vmlal_lane_s16(sums[2], vget_low_s16(high), numbers, I);
    sums[3] = vmlal_high_lane_s16(sums[3], high, numbers, I);
  }
};

template <int COUNT>
static FLM_INLINE void put_signed(Numbers<COUNT>& to, int at, const vi& numbers) {
  put(to.fours[at / 4], narrowed(numbers.low));
  put(to.fours[at / 4 + 2], narrowed(numbers.high));
}

#endif

template <int COUNT>
static FLM_INLINE void put_unsigned(Numbers<COUNT>& to, int at, const vi& numbers) {
  put_signed(to, at, numbers);
}
