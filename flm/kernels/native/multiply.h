// Products of int8 activations with 4-bit and 8-bit weights.
#pragma once

#include "panels.h"

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
