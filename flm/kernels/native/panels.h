// Sums of rows with panels of weights. Every output of every row is summed over its blocks in order,
// whatever number of rows stand beside it, so results do not depend on the batch.
#pragma once

#include <type_traits>

#include "matrix.h"

// How far ahead weights are asked for. Blocks take longer to compute than a processor looks ahead,
// so without it one row would wait for memory (measured: 12 to 19 GB/s instead of 30 to 40).
#ifndef PREFETCH_BYTES
#define PREFETCH_BYTES 16384
#endif

#if defined(__AVX2__) && !defined(FLM_AVX512)

// Half a panel's products with one row, added up over half a block.
template <Format F>
struct HalfDots {
  __m256i sums;

  // The first of a half block; `offset` as in Rows.
  FLM_INLINE void begin(__m256i weights, __m256i x, [[maybe_unused]] int32_t offset) {
#if defined(__AVXVNNI__)
    const __m256i from = F == Q4 ? _mm256_setzero_si256() : _mm256_set1_epi32(offset);
    sums = _mm256_dpbusd_avx_epi32(from, weights, x);
#else
    sums = products(weights, x);
#endif
  }

  FLM_INLINE void add(__m256i weights, __m256i x) {
#if defined(__AVXVNNI__)
    sums = _mm256_dpbusd_avx_epi32(sums, weights, x);
#else
    sums = F == Q4 ? _mm256_add_epi16(sums, products(weights, x))
                   : _mm256_add_epi32(sums, products(weights, x));
#endif
  }

  FLM_INLINE __m256 total() const {
#if !defined(__AVXVNNI__)
    if (F == Q4) return _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
#endif
    return _mm256_cvtepi32_ps(sums);
  }

  // Weights as products take them: without a sign where there is an instruction for that.
  static FLM_INLINE __m256i weights_of(__m256i bytes) {
#if defined(__AVXVNNI__)
    return _mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80));
#else
    return bytes;
#endif
  }

 private:
  // Q4: in 16 bits, which hold 8 products of at most 15 * 127.
  static FLM_INLINE __m256i products(__m256i weights, __m256i x) {
    if (F == Q4) return _mm256_maddubs_epi16(weights, x);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};

// The weights of 8 outputs for four inputs of the first half of a block, and of the second.
template <Format F>
static FLM_INLINE __m256i low_weights(const uint8_t* p) {
  const __m256i bytes = _mm256_loadu_si256((const __m256i*)p);
  return F == Q4 ? _mm256_and_si256(bytes, _mm256_set1_epi8(15)) : HalfDots<F>::weights_of(bytes);
}

template <Format F>
static FLM_INLINE __m256i high_weights(const uint8_t* p) {
  const __m256i bytes = _mm256_loadu_si256((const __m256i*)(F == Q4 ? p : p + 256));
  if (F == Q8) return HalfDots<F>::weights_of(bytes);
  return _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
}

// Four inputs, those at `v` of a half block, of R rows: `at` is the block of the first.
template <Format F, int R, int S>
static FLM_INLINE void add_fours(HalfDots<F> (&dots)[R][S], int s, int v, __m256i weights,
                                 const Rows& rows, size_t at, int half) {
  for (int r = 0; r < R; r++) {
    const size_t block = at + (size_t)r * rows.num_blocks;
    const int32_t* fours = (const int32_t*)(rows.quants + block * BLOCK + half * 16);
    const __m256i x = _mm256_set1_epi32(fours[v]);
    if (v == 0)
      dots[r][s].begin(weights, x, rows.offsets[block * 2 + half]);
    else
      dots[r][s].add(weights, x);
  }
}

static FLM_INLINE float8 load_half8(const half_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}

// Sums of R rows with S halves of a panel from half `first` on, [R, S]: all that the registers hold.
template <int R, int S, Format F>
static FLM_INLINE void half_panel_sums(const Matrix& m, const uint8_t* quants, const Rows& rows,
                                       int row, int first, float8 (&sums)[R][S]) {
  constexpr int quant_step = F == Q4 ? 256 : 512, step = quant_step + (F == Q4 ? 64 : 32);
  const int num_blocks = m.num_blocks();
  const half_t* halves = (const half_t*)(quants + (size_t)num_blocks * quant_step);
  for (int r = 0; r < R; r++)
    for (int s = 0; s < S; s++) sums[r][s] = _mm256_setzero_ps();
  for (int b = 0; b < num_blocks; b++) {
    if (first == 0)
      for (int line = 0; line < step; line += 64)
        __builtin_prefetch(quants + b * step + PREFETCH_BYTES + line);
    const size_t at = (size_t)row * num_blocks + b;
    HalfDots<F> dots[R][S], others[R][S];  // of the first and the second half block
    for (int v = 0; v < 4; v++)
      for (int s = 0; s < S; s++) {
        const uint8_t* from = quants + b * quant_step + v * 64 + (first + s) * 32;
        add_fours<F>(dots, s, v, low_weights<F>(from), rows, at, 0);
        add_fours<F>(others, s, v, high_weights<F>(from), rows, at, 1);
      }
    for (int s = 0; s < S; s++) {
      const size_t lane = (size_t)b * LANES + (first + s) * 8;
      const float8 scale = load_half8(halves + lane);
      for (int r = 0; r < R; r++) {
        const size_t block = at + (size_t)r * num_blocks;
        float8 scaled = dots[r][s].total() * _mm256_set1_ps(rows.scales[block * 2]);
        scaled = fma(others[r][s].total(), _mm256_set1_ps(rows.scales[block * 2 + 1]), scaled);
        sums[r][s] = fma(scaled, scale, sums[r][s]);
        if (F == Q4)
          sums[r][s] = fma(load_half8(halves + (size_t)num_blocks * LANES + lane),
                           _mm256_set1_ps(rows.sums[block]), sums[r][s]);
      }
    }
  }
}

template <int P, int R, Format F>
static FLM_INLINE void panel_sums(const Matrix& m, int panel, const Rows& rows, int row, vf* sums) {
  constexpr int S = R <= 2 ? 2 : 1;
  for (int p = 0; p < P; p++) {
    const uint8_t* quants = m.panels + (panel + p) * m.panel_bytes();
    for (int first = 0; first < 2; first += S) {
      float8 part[R][S];
      half_panel_sums<R, S, F>(m, quants, rows, row, first, part);
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
          (first + s == 0 ? sums[p * R + r].low : sums[p * R + r].high) = part[r][s];
    }
  }
}

#elif defined(FLM_ARM)

#include "panels_arm.h"

#else

// The dot products of one block: 16 outputs with the halves of one row's 32 inputs.
struct Dots {
  vi low, high;
};

#if defined(FLM_AVX512)

// Read where it is used, so that the product takes it from memory.
typedef int32_t __attribute__((may_alias, aligned(1))) fours;

struct Q4Block {
  __m512i w[8];
  FLM_INLINE void load(const uint8_t* p) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int v = 0; v < 4; v++) {
      __m512i both = _mm512_loadu_si512(p + v * 64);
      w[v] = _mm512_and_si512(both, mask);
      w[v + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    }
  }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    const fours* four = (const fours*)x;
    __m512i a = _mm512_setzero_si512(), b = _mm512_setzero_si512();
    for (int v = 0; v < 4; v++) {
      a = _mm512_dpbusd_epi32(a, w[v], _mm512_set1_epi32(four[v]));
      b = _mm512_dpbusd_epi32(b, w[v + 4], _mm512_set1_epi32(four[v + 4]));
    }
    return {(vi)a, (vi)b};
  }
};

struct Q8Block {
  __m512i w[8];
  FLM_INLINE void load(const uint8_t* p) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);  // to 0..255: w + 128
    for (int v = 0; v < 8; v++) w[v] = _mm512_xor_si512(_mm512_loadu_si512(p + v * 64), flip);
  }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t* offsets) const {
    const fours* four = (const fours*)x;
    __m512i a = _mm512_set1_epi32(offsets[0]), b = _mm512_set1_epi32(offsets[1]);
    for (int v = 0; v < 4; v++) {
      a = _mm512_dpbusd_epi32(a, w[v], _mm512_set1_epi32(four[v]));
      b = _mm512_dpbusd_epi32(b, w[v + 4], _mm512_set1_epi32(four[v + 4]));
    }
    return {(vi)a, (vi)b};
  }
};

#else

// Loops that compilers turn into the dot-product instructions they know.
struct Q4Block {
  const uint8_t* p;
  FLM_INLINE void load(const uint8_t* from) { p = from; }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    int32_t low[LANES] = {}, high[LANES] = {};
    for (int v = 0; v < 4; v++)
      for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++) {
          uint8_t both = p[v * 64 + lane * 4 + k];
          low[lane] += (int32_t)(both & 15) * x[v * 4 + k];
          high[lane] += (int32_t)(both >> 4) * x[16 + v * 4 + k];
        }
    return {load_int(low), load_int(high)};
  }
};

struct Q8Block {
  const uint8_t* p;
  FLM_INLINE void load(const uint8_t* from) { p = from; }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    int32_t low[LANES] = {}, high[LANES] = {};
    for (int v = 0; v < 8; v++)
      for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++) {
          int32_t product = (int32_t)(int8_t)p[v * 64 + lane * 4 + k] * x[v * 4 + k];
          (v < 4 ? low : high)[lane] += product;
        }
    return {load_int(low), load_int(high)};
  }
};

#endif

// Sums of R rows from `row` on with P panels, [P, R]. Only VNNI needs the offsets.
template <int P, int R, Format F>
static FLM_INLINE void panel_sums(const Matrix& m, int panel, const Rows& rows, int row, vf* sums) {
  constexpr int step = F == Q4 ? 320 : 544;  // bytes of a block with its scales
  constexpr int quant_step = F == Q4 ? 256 : 512;
  const int num_blocks = m.num_blocks();
  const size_t stride = m.panel_bytes();
  const uint8_t* quants = m.panels + panel * stride;
  const int8_t* x = rows.quants + (size_t)row * num_blocks * BLOCK;
  const size_t at = (size_t)row * num_blocks;
  for (int i = 0; i < P * R; i++) sums[i] = splat(0.0f);
  for (int b = 0; b < num_blocks; b++) {
    typename std::conditional<F == Q4, Q4Block, Q8Block>::type blocks[P];
    vf scales[P], minima[P];
    for (int p = 0; p < P; p++) {
      const uint8_t* here = quants + p * stride;
      const half_t* halves = (const half_t*)(here + (size_t)num_blocks * quant_step);
      for (int line = 0; line < step; line += 64)
        __builtin_prefetch(here + b * step + (P - 1) * stride + PREFETCH_BYTES + line);
      blocks[p].load(here + b * quant_step);
      scales[p] = load_half(halves + b * LANES);
      if (F == Q4) minima[p] = load_half(halves + (size_t)(num_blocks + b) * LANES);
    }
    for (int r = 0; r < R; r++) {
      const size_t i = at + (size_t)r * num_blocks + b;
      const int8_t* four = x + ((size_t)r * num_blocks + b) * BLOCK;
      for (int p = 0; p < P; p++) {
        vf& sum = sums[p * R + r];
        Dots dots = blocks[p].dot(four, rows.offsets + i * 2);
        vf scaled = to_float(dots.low) * rows.scales[i * 2];
        scaled = fma(to_float(dots.high), splat(rows.scales[i * 2 + 1]), scaled);
        sum = fma(scaled, scales[p], sum);
        if (F == Q4) sum = fma(minima[p], splat(rows.sums[i]), sum);
      }
    }
  }
}

#endif
