// The registers for matrices that newer server CPUs have (AMX), and attention with them: what takes a
// few registers of sums elsewhere is one instruction for 16 queries and 16 positions.
//
// A query's products are summed in an order of their own, so where there are tiles, every query
// goes through them, alone or beside others.
#pragma once

#include "attention.h"

#if defined(FLM_BF16) && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__)
#define FLM_TILES

#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

// Linux grants them to a process that asks.
static inline bool have_tiles() {
  constexpr long ask_for_state = 0x1023, tile_data = 18;
  static const bool granted = syscall(SYS_arch_prctl, ask_for_state, tile_data) == 0;
  return granted;
}

// Tiles for products of up to 32 rows, in two tiles 4 and 5, with tiles 6 and 7 of 16 columns: the
// sums are in 0 and 1 for tile 4, in 2 and 3 for tile 5.
class Tiles {
 public:
  explicit Tiles(int num_rows) {
    Layout layout = {};
    layout.palette = 1;
    for (int t = 0; t < 8; t++) layout.row_bytes[t] = 64;
    const int first = num_rows < 16 ? num_rows : 16, second = num_rows - first;
    for (int t : {0, 1, 4}) layout.rows[t] = first;
    for (int t : {2, 3, 5}) {
      layout.rows[t] = second;
      if (second == 0) layout.row_bytes[t] = 0;
    }
    for (int t : {6, 7}) layout.rows[t] = 16;
    _tile_loadconfig(&layout);
  }
  ~Tiles() { _tile_release(); }

 private:
  struct Layout {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
};

// What was written so far is in memory before a tile is read; compilers do not know what tiles read.
static FLM_INLINE void memory_is_written() { asm volatile("" ::: "memory"); }

template <bool BOTH>
static FLM_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if (!BOTH) return;
  _tile_zero(2);
  _tile_zero(3);
}

// Adds the products of rows of 32 numbers, the second 16 rows only with BOTH, and 32 columns.
template <bool BOTH>
static FLM_INLINE void add_tile_products(const void* rows, size_t row_stride, const void* columns,
                                         size_t column_stride) {
  _tile_loadd(4, rows, row_stride);
  _tile_loadd(6, columns, column_stride);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, (const char*)columns + 64, column_stride);
  _tile_dpbf16ps(1, 4, 7);
  if (!BOTH) return;
  _tile_loadd(5, (const char*)rows + 16 * row_stride, row_stride);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

template <bool BOTH>
static FLM_INLINE void store_sums(float* to, size_t stride) {
  _tile_stored(0, to, stride);
  _tile_stored(1, to + LANES, stride);
  if (!BOTH) return;
  _tile_stored(2, (char*)to + 16 * stride, stride);
  _tile_stored(3, (char*)(to + LANES) + 16 * stride, stride);
}

struct TileQueries {
  static constexpr int CAPACITY = 32;
  Query queries[CAPACITY];

  void set(int n, const float* q, int dim) { to_factors(q, dim, queries[n]); }
};

template <bool BOTH>
static inline void score_page(const TileQueries& q, const uint8_t* keys, int dim, float* scores) {
  zero_sums<BOTH>();
  for (int d = 0; d < dim; d += 32)
    add_tile_products<BOTH>(&q.queries[0][d / 2], sizeof(Query), keys + d * PAGE * 2, PAGE * 4);
  store_sums<BOTH>(scores, sizeof(Scores));
}

// The values of the last page with zeros behind the last position: what stands there may be
// anything, and must not reach a sum.
static inline void copy_values(const uint8_t* values, int count, int dim, int32_t* to) {
  const size_t written = (size_t)(count + 1) / 2 * dim;
  std::memcpy(to, values, written * sizeof(int32_t));
  std::memset(to + written, 0, ((size_t)PAGE / 2 * dim - written) * sizeof(int32_t));
}

template <bool BOTH>
static inline void mix_tiles(const Weights* weights, const Pages& pages, const int32_t* table,
                             int kv_head, int num_keys, float* out) {
  const int dim = pages.head_dim, whole = num_keys / PAGE * PAGE;
  int32_t rest[PAGE / 2 * MAX_HEAD_DIM] __attribute__((aligned(64)));
  if (whole < num_keys)
    copy_values(pages.values_of(table[whole / PAGE], kv_head), num_keys - whole, dim, rest);
  memory_is_written();
  for (int d = 0; d < dim; d += 32) {
    zero_sums<BOTH>();
    for (int j = 0; j < num_keys; j += PAGE) {
      const uint8_t* values =
          j < whole ? pages.values_of(table[j / PAGE], kv_head) : (const uint8_t*)rest;
      add_tile_products<BOTH>(&weights[0][j / 2], sizeof(Weights), values + d * 4, dim * 4);
    }
    store_sums<BOTH>(out + d, dim * sizeof(float));
  }
}

template <bool BOTH>
static inline void attend_tiles(const TileQueries& q, int count, const Pages& pages,
                                const int32_t* table, int kv_head, const int* limits,
                                Partial* out) {
  Scores scores[TileQueries::CAPACITY];
  Weights weights[TileQueries::CAPACITY];
  int num_keys = 0;
  for (int n = 0; n < count; n++) num_keys = limits[n] > num_keys ? limits[n] : num_keys;
  const int rounded = (num_keys + PAGE - 1) / PAGE * PAGE;
  const Tiles tiles(count);
  memory_is_written();
  for (int j = 0; j < num_keys; j += PAGE)
    score_page<BOTH>(q, pages.keys_of(table[j / PAGE], kv_head), pages.head_dim, scores[0] + j);
  for (int n = 0; n < count; n++) {
    soften(scores[n], rounded, limits[n], out[n]);
    to_factors(scores[n], rounded, weights[n]);
  }
  mix_tiles<BOTH>(weights, pages, table, kv_head, num_keys, out[0].o);
}

// The rows of out[n].o follow each other.
static inline void attend_queries(const TileQueries& q, int count, const Pages& pages,
                                  const int32_t* table, int kv_head, const int* limits,
                                  Partial* out) {
  if (count > 16)
    attend_tiles<true>(q, count, pages, table, kv_head, limits, out);
  else
    attend_tiles<false>(q, count, pages, table, kv_head, limits, out);
}

#else

static inline bool have_tiles() { return false; }

#endif
