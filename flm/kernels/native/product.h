// Products with weights as they are, in float. Every result is summed in one order that depends on
// nothing but the length of its row: sixteen lanes walk along it, and are added at the end.
#pragma once

#include <cstring>
#include <vector>

#include "team.h"
#include "vec.h"

// [num_out, num_in] weights, one row after another; bias [num_out], or null.
struct Product {
  const float *weights, *bias;
  int num_out, num_in;
};

// The last lanes of a row, with zeros behind its end.
static FLM_INLINE vf load_tail(const float* p, int count) {
  float lanes[LANES] = {};
  std::memcpy(lanes, p, count * sizeof(float));
  return load(lanes);
}

// Four lane_sum()s at once, in its order.
static FLM_INLINE float4 lane_sums(const vf* a) {
  const float4 first = folded(a[0]), second = folded(a[1]), third = folded(a[2]),
               fourth = folded(a[3]);
  float4 lanes[4];
  for (int i = 0; i < 4; i++) lanes[i] = float4{first[i], second[i], third[i], fourth[i]};
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// ROWS rows of x times OUTS rows of weights. Where a result stands among others changes neither
// its terms nor their order.
template <int ROWS, int OUTS>
static FLM_INLINE void product_tile(const Product& product, const float* x, int row, int out,
                                    float* results) {
  int length = product.num_in, whole = length / LANES * LANES;
  const float *a[ROWS], *b[OUTS];
  for (int r = 0; r < ROWS; r++) a[r] = x + (size_t)(row + r) * length;
  for (int o = 0; o < OUTS; o++) b[o] = product.weights + (size_t)(out + o) * length;
  vf sums[ROWS][4];
  for (int r = 0; r < ROWS; r++)
    for (int o = 0; o < 4; o++) sums[r][o] = splat(0.0f);
  for (int i = 0; i < whole; i += LANES) {
    vf own[ROWS];
    for (int r = 0; r < ROWS; r++) own[r] = load(a[r] + i);
    for (int o = 0; o < OUTS; o++) {
      vf weight = load(b[o] + i);
      for (int r = 0; r < ROWS; r++) sums[r][o] = fma(own[r], weight, sums[r][o]);
    }
  }
  if (whole < length)
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
      for (int o = 0; o < OUTS; o++)
        sums[r][o] = fma(load_tail(a[r] + whole, length - whole),
                         load_tail(b[o] + whole, length - whole), sums[r][o]);
  float4 bias = {};
  if (product.bias != nullptr) std::memcpy(&bias, product.bias + out, OUTS * sizeof(float));
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
    float4 found = lane_sums(sums[r]) + bias;
    std::memcpy(results + (size_t)(row + r) * product.num_out + out, &found,
                OUTS * sizeof(float));
  }
}

template <int OUTS>
static void product_column(const Product& product, const float* x, Share rows, int out,
                           float* results) {
  constexpr int ROWS = FEW_REGISTERS ? MOST_SUMS / 2 : 4;
  int row = rows.first;
  for (; row + ROWS <= rows.last; row += ROWS) product_tile<ROWS, OUTS>(product, x, row, out, results);
  for (; row < rows.last; row++) product_tile<1, OUTS>(product, x, row, out, results);
}

// results[num_rows, num_out] = x[num_rows, num_in] times the weights, and the bias.
static void multiply(const Product& product, const float* x, int num_rows, float* results,
                     int num_threads) {
  // So many rows of x stay near while the weights pass by.
  int blocks = (num_rows + 63) / 64;
  together(num_threads, [&](int me, Team& team) {
    Share outs(product.num_out, me, team.size());
    for (int block = 0; block < blocks; block++) {
      Share rows(num_rows, block, blocks);
      constexpr int OUTS = FEW_REGISTERS ? 2 : 4;
      int out = outs.first;
      for (; out + OUTS <= outs.last; out += OUTS)
        product_column<OUTS>(product, x, rows, out, results);
      for (; out < outs.last; out++) product_column<1>(product, x, rows, out, results);
    }
  });
}
