// Sums with panels on ARM, whose vectors hold a quarter of a panel: four outputs. Those of a few rows
// stay in registers, and every weight is unpacked once for them.
#pragma once

#include "matrix.h"

// The weights of four outputs for the 16 inputs of half a block: in each vector four of them.
struct QuarterWeights {
  int8x16_t fours[4];
};

template <Format F>
static FLM_INLINE QuarterWeights quarter_weights(const uint8_t* block, int quarter, int half) {
  QuarterWeights weights;
  for (int v = 0; v < 4; v++) {
    const uint8x16_t bytes = vld1q_u8(block + v * 64 + quarter * 16 + (F == Q8 ? half * 256 : 0));
    if (F == Q8)
      weights.fours[v] = vreinterpretq_s8_u8(bytes);
    else
      weights.fours[v] = vreinterpretq_s8_u8(half == 0 ? vandq_u8(bytes, vdupq_n_u8(15))
                                                       : vshrq_n_u8(bytes, 4));
  }
  return weights;
}

#if defined(__ARM_FEATURE_DOTPROD)

// The products of four outputs with 16 inputs.
template <Format F>
static FLM_INLINE int32x4_t quarter_products(const QuarterWeights& w, int8x16_t x) {
  int32x4_t sums = vdotq_laneq_s32(vdupq_n_s32(0), w.fours[0], x, 0);
  sums = vdotq_laneq_s32(sums, w.fours[1], x, 1);
  sums = vdotq_laneq_s32(sums, w.fours[2], x, 2);
  return vdotq_laneq_s32(sums, w.fours[3], x, 3);
}

#else

// Products are of 16 bits: eight of them are those of two outputs.
struct Products {
  int16x8_t low, high;

  FLM_INLINE Products(int8x16_t weights, int8x16_t x)
      : low(vmull_s8(vget_low_s8(weights), vget_low_s8(x))), high(vmull_high_s8(weights, x)) {}

  FLM_INLINE void add(int8x16_t weights, int8x16_t x) {
    low = vmlal_s8(low, vget_low_s8(weights), vget_low_s8(x));
    high = vmlal_high_s8(high, weights, x);
  }
};

// Four inputs, in every lane of 32 bits.
template <int FOUR>
static FLM_INLINE int8x16_t four_of(int8x16_t x) {
  return vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), FOUR));
}

// 16 bits hold 17 products of 15 and 127, and two of -128 and 127.
template <Format F>
static FLM_INLINE int32x4_t quarter_products(const QuarterWeights& w, int8x16_t x) {
  Products first(w.fours[0], four_of<0>(x));
  first.add(w.fours[1], four_of<1>(x));
  if (F == Q4) {
    first.add(w.fours[2], four_of<2>(x));
    first.add(w.fours[3], four_of<3>(x));
    return vpaddlq_s16(vpaddq_s16(first.low, first.high));
  }
  Products second(w.fours[2], four_of<2>(x));
  second.add(w.fours[3], four_of<3>(x));
  return vpaddq_s32(vpadalq_s16(vpaddlq_s16(first.low), second.low),
                    vpadalq_s16(vpaddlq_s16(first.high), second.high));
}

#endif

struct RowAt {
  const int8_t* quants;
  const float *scales, *sums;
};

// The products of R rows with S quarters of a panel for half a block, times the scales of the rows: made
// of those of the first half, added to them for the second.
template <Format F, int HALF, int R, int S>
static FLM_INLINE void scale_products(const uint8_t* quants, int first, const RowAt (&rows)[R], size_t b,
                                      float32x4_t (&scaled)[R][S]) {
  // Else weights are kept as they were read for the second half, and registers run out.
  asm("" : "+r"(quants));
#pragma GCC unroll 4
  for (int s = 0; s < S; s++) {
    const QuarterWeights weights = quarter_weights<F>(quants, first + s, HALF);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const int8x16_t x = vld1q_s8(rows[r].quants + b * BLOCK + HALF * 16);
      const float32x4_t found = vcvtq_f32_s32(quarter_products<F>(weights, x));
      const float32x2_t scales = vld1_f32(rows[r].scales + b * 2);
#if !defined(__ARM_FEATURE_DOTPROD)
      asm volatile("");  // one after the other: their sums take twice the registers
#endif
      scaled[r][s] = HALF == 0 ? vmulq_lane_f32(found, scales, 0)
                               : vfmaq_lane_f32(scaled[r][s], found, scales, 1);
    }
  }
}

// Sums of R rows with S quarters of a panel from quarter `first` on, [R, S].
template <int R, int S, Format F>
static FLM_INLINE void quarter_sums(const Matrix& m, const uint8_t* quants, const RowAt (&rows)[R],
                                    int first, float32x4_t (&sums)[R][S]) {
  constexpr int quant_step = F == Q4 ? 256 : 512, step = quant_step + (F == Q4 ? 64 : 32);
  const size_t num_blocks = m.num_blocks();
  const half_t* halves = (const half_t*)(quants + num_blocks * quant_step) + first * 4;
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int s = 0; s < S; s++) sums[r][s] = vdupq_n_f32(0.0f);
  for (size_t b = 0; b < num_blocks; b++) {
    if (first == 0)
      for (int line = 0; line < step; line += 64)
        __builtin_prefetch(quants + b * step + PREFETCH_BYTES + line);
    float32x4_t scaled[R][S];
    scale_products<F, 0>(quants + b * quant_step, first, rows, b, scaled);
    scale_products<F, 1>(quants + b * quant_step, first, rows, b, scaled);
#pragma GCC unroll 4
    for (int s = 0; s < S; s++) {
      const float32x4_t scale = load_half4(halves + b * LANES + s * 4);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) sums[r][s] = vfmaq_f32(sums[r][s], scaled[r][s], scale);
      if (F == Q8) continue;
      const float32x4_t minimum = load_half4(halves + (num_blocks + b) * LANES + s * 4);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++)
        sums[r][s] = vfmaq_n_f32(sums[r][s], minimum, rows[r].sums[b]);
    }
  }
}

static FLM_INLINE float4& quarter_of(vf& v, int quarter) {
  float8& half = quarter < 2 ? v.low : v.high;
  return quarter % 2 == 0 ? half.low : half.high;
}

// Sums of R rows from `row` on with P panels, [P, R].
template <int P, int R, Format F>
static FLM_INLINE void panel_sums(const Matrix& m, int panel, const Rows& rows, int row, vf* sums) {
  constexpr int S = R == 1 ? 4 : R == 2 ? 2 : 1;
  RowAt own[R];
  for (int r = 0; r < R; r++) {
    const size_t block = (size_t)(row + r) * rows.num_blocks;
    own[r] = {rows.quants + block * BLOCK, rows.scales + block * 2, rows.sums + block};
  }
  for (int p = 0; p < P; p++)
    for (int first = 0; first < 4; first += S) {
      float32x4_t part[R][S];
      quarter_sums<R, S, F>(m, m.panels + (panel + p) * m.panel_bytes(), own, first, part);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int s = 0; s < S; s++) quarter_of(sums[p * R + r], first + s) = part[r][s];
    }
}
