// Weights of 4 and 8 bits, and activations of 8.
//
// A matrix [num_out, num_in] is cut into panels of 16 outputs; a panel into blocks of 32 inputs.
// Within a block, 64 bytes hold four neighbouring inputs of all 16 outputs, so that a lane of a
// vector is an output. After the panel's quants come its scales and, for 4 bits, its minima: 16
// halves a block each.
//   Q4: w = q * scale + minimum, q in 0..15; byte k of a block's 64 holds input k in its low
//       nibble and input k + 16 in its high one.
//   Q8: w = q * scale, q in -128..127.
#pragma once

#include "numbers.h"

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

// Rounds 16 numbers to 8 bits of the largest; what rounding took away stays in them. Returns the
// sum of what was written.
static FLM_INLINE float quantise_half(vf& v, int8_t* quants, float* scale, int32_t* offset) {
  float top = lane_max(vmax(v, -v));
  float inverse = top > 1e-30f ? 127.0f / top : 0.0f;  // below, the inverse could be infinite
  *scale = top / 127.0f;
  vi q = round_to_int(v * inverse);
  store_bytes(quants, q);
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

// The 32 inputs of a row's block as floats: what stands at `from` for the row's lane, four bytes in
// each vector of the block.
static FLM_INLINE void read_block(Format format, const uint8_t* from, float scale, float minimum,
                                  float* out) {
  uint8_t bytes[BLOCK];
  for (int v = 0; v < (format == Q4 ? 4 : 8); v++) std::memcpy(bytes + v * 4, from + v * 64, 4);
  vi first = load_bytes(bytes), second = first;
  if (format == Q4) {
    second = first >> 4;
    first = first & 15;
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
