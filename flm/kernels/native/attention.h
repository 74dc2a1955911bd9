// Attention over paged keys and values; what is said here of pages in bfloat16 goes on for bytes in
// attention_bytes.h.
//
// A query looks at its sequence in parts of 512 positions; each part gives a maximum, a sum and a
// weighted sum of values, and parts are merged in order. The parts lie at fixed positions, so a
// query's result is the same whether it is computed alone or beside others, in one go or part by
// part.
#pragma once

#include "functions.h"
#include "pages.h"

constexpr int PART_PAGES = 16;
constexpr int PART = PAGE * PART_PAGES;
constexpr int MAX_HEAD_DIM = 512;


// Statistics of a query over some positions, in base 2: o is not divided by the sum yet.
struct Partial {
  float top, sum;
  float* o;
};

// The factor that makes products of queries and keys the exponents of base 2.
static inline float query_scale(int head_dim) {
  return 1.44269504088896341f / std::sqrt((float)head_dim);
}

static FLM_INLINE float exp2_one(float x) { return first_lane(exp2_down(splat(x))); }

static inline void merge(Partial& into, const Partial& part, int head_dim) {
  float top = into.top > part.top ? into.top : part.top;
  float a = exp2_one(into.top - top), b = exp2_one(part.top - top);
  into.sum = into.sum * a + part.sum * b;
  into.top = top;
  for (int d = 0; d < head_dim; d += LANES)
    store(into.o + d, fma(load(into.o + d), splat(a), load(part.o + d) * b));
}

// A line more than a part: rows whose distance is a power of two would share few places of a cache.
typedef float Scores[PART + LANES] __attribute__((aligned(64)));
typedef Factors Weights[PART / 2 + LANES] __attribute__((aligned(64)));
typedef Factors Query[MAX_HEAD_DIM / 2 + LANES] __attribute__((aligned(64)));

// Scores of H * 16 positions of a page.
template <int N, int H>
static FLM_INLINE void score(const Query* q, const brain_t* keys, const brain_t* next,
                             int num_pairs, int at, Scores* scores) {
  vf sums[N][H];
  for (int n = 0; n < N; n++)
    for (int h = 0; h < H; h++) sums[n][h] = splat(0.0f);
  for (int d = 0; d < num_pairs; d++)
    for (int h = 0; h < H; h++) {
      const int line = (d * PAGE + h * LANES) * 2;
      __builtin_prefetch(next + line);  // pages lie anywhere: the processor cannot guess
      add_products(sums, h, load_int(keys + line), [&](int n) { return q[n][d]; });
    }
  for (int n = 0; n < N; n++)
    for (int h = 0; h < H; h++) store(scores[n] + at + h * LANES, sums[n][h]);
}

template <int N>
static FLM_INLINE void score_page(const Query* q, const brain_t* keys, const brain_t* next,
                                  int num_pairs, int at, Scores* scores) {
  constexpr int most = MOST_SUMS;
  if constexpr (FEW_REGISTERS && N > most) {
    score_page<most>(q, keys, next, num_pairs, at, scores);
    score_page<N - most>(q + most, keys, keys, num_pairs, at, scores + most);
  } else {
    constexpr int H = FEW_REGISTERS && N > MOST_PAIRS ? 1 : 2;
    for (int h = 0; h < 2; h += H)
      score<N, H>(q, keys + h * LANES * 2, next + h * LANES * 2, num_pairs, at + h * LANES, scores);
  }
}

// The first `limit` scores become weights relative to the largest, those up to num_keys 0.
static inline void soften(float* scores, int num_keys, int limit, Partial& out) {
  const int whole = limit / LANES * LANES;
  const vi is_seen = lane_numbers() < splat((float)(limit - whole));
  vf top = splat(-INFINITY), other = top;
  int j = 0;
  for (; j + 2 * LANES <= whole; j += 2 * LANES) {
    top = vmax(top, load(scores + j));
    other = vmax(other, load(scores + j + LANES));
  }
  if (j < whole) top = vmax(top, load(scores + j));
  if (whole < limit)
    other = vmax(other, select(is_seen, load(scores + whole), splat(-INFINITY)));
  out.top = lane_max(vmax(top, other));
  const vf base = splat(out.top);
  vf sum = splat(0.0f);
  for (j = 0; j < whole; j += LANES) {
    vf e = exp2_down(load(scores + j) - base);
    store(scores + j, e);
    sum += e;
  }
  if (whole < limit) {
    vf e = select(is_seen, exp2_down(load(scores + j) - base), splat(0.0f));
    store(scores + j, e);
    sum += e;
    j += LANES;
  }
  for (; j < num_keys; j += LANES) store(scores + j, splat(0.0f));
  out.sum = lane_sum(sum);
}

template <int N, int V>
static FLM_INLINE void mix(const Weights* weights, const Pages& pages, const int32_t* table,
                           int kv_head, int d, int num_keys, Partial* out) {
  const int width = pages.head_dim * 2;
  vf sums[N][V];
  for (int n = 0; n < N; n++)
    for (int v = 0; v < V; v++) sums[n][v] = splat(0.0f);
  for (int j = 0; j < num_keys; j += PAGE) {
    const brain_t* values = (const brain_t*)pages.values_of(table[j / PAGE], kv_head) + d * 2;
    const int later = j + PAGE < num_keys ? j / PAGE + 1 : j / PAGE;
    const brain_t* next = (const brain_t*)pages.values_of(table[later], kv_head) + d * 2;
    const int pairs = ((num_keys - j < PAGE ? num_keys - j : PAGE) + 1) / 2;
    for (int i = 0; i < pairs; i++)
      for (int v = 0; v < V; v++) {
        __builtin_prefetch(next + i * width + v * 2 * LANES);
        add_products(sums, v, load_int(values + i * width + v * 2 * LANES),
                     [&](int n) { return weights[n][j / 2 + i]; });
      }
  }
  for (int n = 0; n < N; n++)
    for (int v = 0; v < V; v++) store(out[n].o + d + v * LANES, sums[n][v]);
}

template <int N>
static FLM_INLINE void mix_all(const Weights* weights, const Pages& pages, const int32_t* table,
                               int kv_head, int num_keys, Partial* out) {
  constexpr int most = FEW_REGISTERS ? MOST_SUMS : 4;
  if constexpr (N > most) {
    mix_all<most>(weights, pages, table, kv_head, num_keys, out);
    mix_all<N - most>(weights + most, pages, table, kv_head, num_keys, out + most);
  } else {
    constexpr bool is_wide = !FEW_REGISTERS || (N == 1 && MOST_PAIRS > 1);
    constexpr int V = is_wide ? 4 : N <= MOST_PAIRS ? 2 : 1;
    int d = 0;
    for (; d + V * LANES <= pages.head_dim; d += V * LANES)
      mix<N, V>(weights, pages, table, kv_head, d, num_keys, out);
    for (; d < pages.head_dim; d += LANES)
      mix<N, 1>(weights, pages, table, kv_head, d, num_keys, out);
  }
}

// What is read after the keys of the page at position j: the next ones, or the first values.
static FLM_INLINE const uint8_t* next_page(const Pages& pages, const int32_t* table, int kv_head,
                                           int j, int num_keys) {
  return j + PAGE < num_keys ? pages.keys_of(table[j / PAGE + 1], kv_head)
                             : pages.values_of(table[0], kv_head);
}

// Queries times query_scale.
struct BrainQueries {
  static constexpr int CAPACITY = 12;  // that are looked at together
  Query queries[CAPACITY];

  void set(int n, const float* q, int dim) { to_factors(q, dim, queries[n]); }
};

// N queries over one part: `table` begins at its first page, query n sees limits[n] of its
// positions.
template <int N>
static void attend_part(const BrainQueries& q, const Pages& pages, const int32_t* table,
                        int kv_head, const int* limits, Partial* out) {
  Scores scores[N];
  int num_keys = 0;
  for (int n = 0; n < N; n++) num_keys = limits[n] > num_keys ? limits[n] : num_keys;
  int rounded = (num_keys + PAGE - 1) / PAGE * PAGE;
  for (int j = 0; j < num_keys; j += PAGE) {
    const brain_t* keys = (const brain_t*)pages.keys_of(table[j / PAGE], kv_head);
    score_page<N>(q.queries, keys, (const brain_t*)next_page(pages, table, kv_head, j, num_keys),
                  pages.head_dim / 2, j, scores);
  }
  Weights weights[N];
  for (int n = 0; n < N; n++) {
    soften(scores[n], rounded, limits[n], out[n]);
    to_factors(scores[n], rounded, weights[n]);
  }
  mix_all<N>(weights, pages, table, kv_head, num_keys, out);
}
