// Attention over paged keys and values; what is said here of pages in bfloat16 goes on for bytes in
// attention_bytes.h.
//
// A query looks at its sequence in parts of 512 positions; each part gives a maximum, a sum and a
// weighted sum of values, and parts are merged in order. The parts lie at fixed positions, so a
// query's result is the same whether it is computed alone or beside others, in one go or part by
// part.
#pragma once

#include "pages.h"

constexpr int PART_PAGES = 16;
constexpr int PART = PAGE * PART_PAGES;
constexpr int MAX_QUERIES = 12;
constexpr int MAX_HEAD_DIM = 512;

// Statistics of a query over some positions: o is not divided by the sum yet.
struct Partial {
  float top, sum;
  float* o;
};

static FLM_INLINE float exp_one(float x) { return vexp(splat(x))[0]; }

static inline void merge(Partial& into, const Partial& part, int head_dim) {
  float top = into.top > part.top ? into.top : part.top;
  float a = exp_one(into.top - top), b = exp_one(part.top - top);
  into.sum = into.sum * a + part.sum * b;
  into.top = top;
  for (int d = 0; d < head_dim; d += LANES)
    store(into.o + d, fma(load(into.o + d), splat(a), load(part.o + d) * b));
}

typedef float Scores[PART] __attribute__((aligned(64)));

// Scores of one page: queries are pairs of dimensions, [N, head_dim / 2].
template <int N>
static FLM_INLINE void score(const int32_t* q, const brain_t* keys, const brain_t* next, int num_pairs,
                             int at, Scores* scores) {
  vf first[N], second[N];
  for (int n = 0; n < N; n++) first[n] = second[n] = splat(0.0f);
  for (int d = 0; d < num_pairs; d++) {
    __builtin_prefetch(next + d * 2 * PAGE);  // pages lie anywhere: the processor cannot guess
    __builtin_prefetch(next + d * 2 * PAGE + PAGE);
    vi k0 = load_int(keys + d * 2 * PAGE), k1 = load_int(keys + d * 2 * PAGE + PAGE);
    for (int n = 0; n < N; n++) {
      first[n] = add_pairs(first[n], k0, q[n * num_pairs + d]);
      second[n] = add_pairs(second[n], k1, q[n * num_pairs + d]);
    }
  }
  for (int n = 0; n < N; n++) {
    store(scores[n] + at, first[n]);
    store(scores[n] + at + LANES, second[n]);
  }
}

// exp(score - maximum) in place for the first `limit` scores, 0 for the rest.
static inline void soften(float* scores, int num_keys, int limit, Partial& out) {
  const vf lowest = splat(-INFINITY);
  vf lane;
  for (int i = 0; i < LANES; i++) lane[i] = (float)i;
  vf top = lowest;
  for (int j = 0; j < num_keys; j += LANES) {
    vf s = lane + (float)j < splat((float)limit) ? load(scores + j) : lowest;
    store(scores + j, s);
    top = vmax(top, s);
  }
  out.top = lane_max(top);
  vf base = splat(out.top == -INFINITY ? 0.0f : out.top), sum = splat(0.0f);
  for (int j = 0; j < num_keys; j += LANES) {
    vf e = vexp(load(scores + j) - base);
    store(scores + j, e);
    sum += e;
  }
  out.sum = lane_sum(sum);
}

// Weights of one part as pairs of positions.
typedef int32_t Weights[PART / 2] __attribute__((aligned(64)));

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
    for (int i = 0; i < pairs; i++) {
      vi value[V];
      for (int v = 0; v < V; v++) {
        __builtin_prefetch(next + i * width + v * 2 * LANES);
        value[v] = load_int(values + i * width + v * 2 * LANES);
      }
      for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++)
          sums[n][v] = add_pairs(sums[n][v], value[v], weights[n][j / 2 + i]);
    }
  }
  for (int n = 0; n < N; n++)
    for (int v = 0; v < V; v++) store(out[n].o + d + v * LANES, sums[n][v]);
}

template <int N>
static FLM_INLINE void mix_all(const Weights* weights, const Pages& pages, const int32_t* table,
                               int kv_head, int num_keys, Partial* out) {
  int d = 0;
  for (; d + 4 * LANES <= pages.head_dim; d += 4 * LANES)
    mix<N, 4>(weights, pages, table, kv_head, d, num_keys, out);
  for (; d < pages.head_dim; d += LANES)
    mix<N, 1>(weights, pages, table, kv_head, d, num_keys, out);
}

// What is read after the keys of the page at position j: the next ones, or the first values.
static FLM_INLINE const uint8_t* next_page(const Pages& pages, const int32_t* table, int kv_head,
                                           int j, int num_keys) {
  return j + PAGE < num_keys ? pages.keys_of(table[j / PAGE + 1], kv_head)
                             : pages.values_of(table[0], kv_head);
}

// Queries, already divided by sqrt(head_dim), as pairs of dimensions.
struct BrainQueries {
  int32_t pairs[MAX_QUERIES * MAX_HEAD_DIM / 2] __attribute__((aligned(64)));

  void set(int n, const float* q, int dim) { to_pairs(q, dim, pairs + n * dim / 2); }
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
    score<N>(q.pairs, keys, (const brain_t*)next_page(pages, table, kv_head, j, num_keys),
             pages.head_dim / 2, j, scores);
  }
  Weights weights[N];
  for (int n = 0; n < N; n++) {
    soften(scores[n], rounded, limits[n], out[n]);
    to_pairs(scores[n], rounded, weights[n]);
  }
  int n = 0;
  for (; n + 4 <= N; n += 4) mix_all<4>(weights + n, pages, table, kv_head, num_keys, out + n);
  switch (N - n) {
    case 3: return mix_all<3>(weights + n, pages, table, kv_head, num_keys, out + n);
    case 2: return mix_all<2>(weights + n, pages, table, kv_head, num_keys, out + n);
    case 1: return mix_all<1>(weights + n, pages, table, kv_head, num_keys, out + n);
  }
}
