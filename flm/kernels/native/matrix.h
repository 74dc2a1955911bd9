// Products of int8 activations with 4-bit and 8-bit weights.
//
// A matrix [num_out, num_in] is cut into panels of 16 outputs; a panel into blocks of 32 inputs.
// Within a block, 64 bytes hold four neighbouring inputs of all 16 outputs, so that a lane of a
// vector is an output. After the panel's quants come its scales and, for 4 bits, its minima: 16
// halves a block each.
//   Q4: w = q * scale + minimum, q in 0..15; byte k of a block's 64 holds input k in its low
//       nibble and input k + 16 in its high one.
//   Q8: w = q * scale, q in -128..127.
// Every output of every row is summed over its blocks in order, whatever number of rows stand
// beside it, so results do not depend on the batch.
#pragma once

#include <type_traits>

#include "vec.h"

constexpr int BLOCK = 32;

enum Format : int32_t { Q4 = 0, Q8 = 1 };

struct Matrix {
  const uint8_t* panels;
  const float* bias;  // [num_out rounded up to 16], or null
  int32_t num_out, num_in;
  Format format;
  int32_t reserved;

  int num_panels() const { return (num_out + LANES - 1) / LANES; }
  int num_blocks() const { return (num_in + BLOCK - 1) / BLOCK; }
  size_t quant_bytes() const { return format == Q4 ? 256 : 512; }
  size_t panel_bytes() const {
    size_t bytes = num_blocks() * (quant_bytes() + (format == Q4 ? 64 : 32));
    return (bytes + 63) / 64 * 64;
  }
};

// Activations of a row, quantised in half blocks of 16: x = q * scale.
struct Rows {
  int8_t* quants;    // [rows, blocks * 32]
  float* scales;     // [rows, blocks, 2]
  float* sums;       // [rows, blocks]: the sum of the block's q * scale
  int32_t* offsets;  // [rows, blocks, 2]: -128 * the sum of the quants
  int num_blocks;

  Rows from(size_t row) const {
    size_t at = row * num_blocks;
    return {quants + at * BLOCK, scales + at * 2, sums + at, offsets + at * 2, num_blocks};
  }
};

typedef int8_t vb __attribute__((vector_size(LANES)));

// Rounds 16 numbers to 8 bits of the largest; what rounding took away stays in them. Returns the
// sum of what was written.
static FLM_INLINE float quantise_half(vf& v, int8_t* quants, float* scale, int32_t* offset) {
  float top = lane_max(vmax(v, -v));
  float inverse = top > 1e-30f ? 127.0f / top : 0.0f;  // below, the inverse could be infinite
  *scale = top / 127.0f;
  vi q = round_to_int(v * inverse);
  vb bytes = __builtin_convertvector(q, vb);
  std::memcpy(quants, &bytes, sizeof bytes);
  int32_t sum = lane_sum(q);
  *offset = -128 * sum;
  v -= to_float(q) * *scale;
  return *scale * (float)sum;
}

// Quantises one row. With `rest`, the row after it gets what rounding took away.
static inline void quantise_row(const float* x, int size, const Rows& rows, int row,
                                bool rest = false) {
  for (int b = 0; b < rows.num_blocks; b++) {
    float padded[BLOCK] __attribute__((aligned(64))) = {};
    int count = size - b * BLOCK < BLOCK ? size - b * BLOCK : BLOCK;
    std::memcpy(padded, x + b * BLOCK, count * sizeof(float));
    vf halves[2] = {load(padded), load(padded + LANES)};
    for (int to = row; to <= row + (rest ? 1 : 0); to++) {
      size_t at = (size_t)to * rows.num_blocks + b;
      float sum = 0.0f;
      for (int h = 0; h < 2; h++)
        sum += quantise_half(halves[h], rows.quants + at * BLOCK + h * LANES,
                             rows.scales + at * 2 + h, rows.offsets + at * 2 + h);
      rows.sums[at] = sum;
    }
  }
}

// --- the dot products of one block: 16 outputs with the halves of one row's 32 inputs -----------

struct Dots {
  vi low, high;
};

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

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

#elif defined(__AVX2__)

static FLM_INLINE vi join_int(__m256i a, __m256i b) {
  typedef int32_t vi8 __attribute__((vector_size(32)));
  return __builtin_shufflevector((vi8)a, (vi8)b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                 15);
}

struct Q4Block {
  const uint8_t* p;
  FLM_INLINE void load(const uint8_t* from) { p = from; }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    int32_t four[8];
    std::memcpy(four, x, 32);
    __m256i sums[2][2] = {};  // 16 bits hold 8 products of at most 15 * 127
    for (int v = 0; v < 4; v++)
      for (int side = 0; side < 2; side++) {
        __m256i both = _mm256_loadu_si256((const __m256i*)(p + v * 64 + side * 32));
        __m256i lo = _mm256_and_si256(both, mask);
        __m256i hi = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        __m256i a = _mm256_maddubs_epi16(lo, _mm256_set1_epi32(four[v]));
        __m256i b = _mm256_maddubs_epi16(hi, _mm256_set1_epi32(four[v + 4]));
        sums[0][side] = _mm256_add_epi16(sums[0][side], a);
        sums[1][side] = _mm256_add_epi16(sums[1][side], b);
      }
    for (int h = 0; h < 2; h++)
      for (int side = 0; side < 2; side++) sums[h][side] = _mm256_madd_epi16(sums[h][side], ones);
    return {join_int(sums[0][0], sums[0][1]), join_int(sums[1][0], sums[1][1])};
  }
};

struct Q8Block {
  const uint8_t* p;
  FLM_INLINE void load(const uint8_t* from) { p = from; }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    const __m256i ones = _mm256_set1_epi16(1);
    int32_t four[8];
    std::memcpy(four, x, 32);
    __m256i sums[2][2] = {};
    for (int v = 0; v < 8; v++)
      for (int side = 0; side < 2; side++) {
        __m256i w = _mm256_loadu_si256((const __m256i*)(p + v * 64 + side * 32));
        __m256i signed_x = _mm256_sign_epi8(_mm256_set1_epi32(four[v]), w);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), signed_x);
        __m256i& sum = sums[v / 4][side];
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      }
    return {join_int(sums[0][0], sums[0][1]), join_int(sums[1][0], sums[1][1])};
  }
};

#else

// Loops that compilers turn into the dot-product instructions they know.
struct Q4Block {
  const uint8_t* p;
  FLM_INLINE void load(const uint8_t* from) { p = from; }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    Dots sums = {};
    for (int v = 0; v < 4; v++)
      for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++) {
          uint8_t both = p[v * 64 + lane * 4 + k];
          sums.low[lane] += (int32_t)(both & 15) * x[v * 4 + k];
          sums.high[lane] += (int32_t)(both >> 4) * x[16 + v * 4 + k];
        }
    return sums;
  }
};

struct Q8Block {
  const uint8_t* p;
  FLM_INLINE void load(const uint8_t* from) { p = from; }
  FLM_INLINE Dots dot(const int8_t* x, const int32_t*) const {
    Dots sums = {};
    for (int v = 0; v < 8; v++)
      for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++) {
          int32_t product = (int32_t)(int8_t)p[v * 64 + lane * 4 + k] * x[v * 4 + k];
          (v < 4 ? sums.low : sums.high)[lane] += product;
        }
    return sums;
  }
};

#endif

// How far ahead weights are asked for. Blocks take longer to compute than a processor looks ahead,
// so without it one row would wait for memory (measured: 12 to 19 GB/s instead of 30 to 40).
#ifndef PREFETCH_BYTES
#define PREFETCH_BYTES 16384
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

// Calls done(panel, row, sums) for every row of [first, last) with P panels, R rows at a time for
// as long as there are R; returns the first row that is left.
template <int P, int R, Format F, typename Done>
static FLM_INLINE int tile_rows(const Matrix& m, int panel, const Rows& rows, int first, int last,
                                Done done) {
  vf sums[P * R];
  for (; first + R <= last; first += R) {
    panel_sums<P, R, F>(m, panel, rows, first, sums);
    for (int p = 0; p < P; p++)
      for (int r = 0; r < R; r++) done(panel + p, first + r, sums[p * R + r]);
  }
  return first;
}

template <Format F, typename Done>
static inline void multiply_as(const Matrix& m, const Rows& rows, int first, int last,
                               int first_panel, int last_panel, Done done) {
  int panel = first_panel;
  for (; last - first >= 4 && panel + 2 <= last_panel; panel += 2) {
    int row = tile_rows<2, 4, F>(m, panel, rows, first, last, done);
    row = tile_rows<2, 2, F>(m, panel, rows, row, last, done);
    tile_rows<2, 1, F>(m, panel, rows, row, last, done);
  }
  for (; panel < last_panel; panel++) {
    int row = tile_rows<1, 4, F>(m, panel, rows, first, last, done);
    row = tile_rows<1, 2, F>(m, panel, rows, row, last, done);
    tile_rows<1, 1, F>(m, panel, rows, row, last, done);
  }
}

// Calls done(panel, row, sums) for the panels [first_panel, last_panel) and all rows: sums are
// the 16 outputs of the panel with the bias added.
template <typename Done>
static inline void multiply(const Matrix& m, const Rows& rows, int num_rows, int first_panel,
                            int last_panel, Done done) {
  constexpr int STRIPE = 256;  // rows whose quants stay in the second-level cache
  auto finish = [&](int panel, int row, vf sums) {
    done(panel, row, m.bias == nullptr ? sums : sums + load(m.bias + panel * LANES));
  };
  for (int from = 0; from < num_rows; from += STRIPE) {
    int to = from + STRIPE < num_rows ? from + STRIPE : num_rows;
    if (m.format == Q4)
      multiply_as<Q4>(m, rows, from, to, first_panel, last_panel, finish);
    else
      multiply_as<Q8>(m, rows, from, to, first_panel, last_panel, finish);
  }
}

// The 32 inputs of a row's block as floats: what stands at `from` for the row's lane, four bytes in
// each vector of the block.
static FLM_INLINE void read_block(Format format, const uint8_t* from, float scale, float minimum,
                                  float* out) {
  uint8_t bytes[BLOCK];
  for (int v = 0; v < (format == Q4 ? 4 : 8); v++) std::memcpy(bytes + v * 4, from + v * 64, 4);
  vi first = load_bytes(bytes), second;
  if (format == Q4) {
    second = first >> 4;
    first &= 15;
  } else {
    second = load_bytes(bytes + LANES) << 24 >> 24;
    first = first << 24 >> 24;
  }
  store(out, to_float(first) * scale + minimum);
  store(out + LANES, to_float(second) * scale + minimum);
}

// One row of the matrix as floats, num_in of them: what an embedding looks up.
static inline void read_row(const Matrix& m, int row, float* out) {
  const int num_blocks = m.num_blocks(), lane = row % LANES;
  const uint8_t* quants = m.panels + (row / LANES) * m.panel_bytes();
  const half_t* scales = (const half_t*)(quants + num_blocks * m.quant_bytes()) + lane;
  const half_t* minima = scales + (size_t)num_blocks * LANES;
  for (int b = 0; b < num_blocks; b++) {
    float block[BLOCK];
    const float minimum = m.format == Q4 ? half_to_float_bits(minima[b * LANES]) : 0.0f;
    read_block(m.format, quants + b * m.quant_bytes() + lane * 4,
               half_to_float_bits(scales[b * LANES]), minimum, block);
    const int left = m.num_in - b * BLOCK;
    std::memcpy(out + b * BLOCK, block, (left < BLOCK ? left : BLOCK) * sizeof(float));
  }
}
