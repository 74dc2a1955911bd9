// Attention over paged keys and values in half precision.
//
// A page holds 32 positions of one layer: keys as [kv_head, head_dim, 32], so that a lane is a
// position; values as [kv_head, 32, head_dim]. A query looks at its sequence in parts of 512
// positions; each part gives a maximum, a sum and a weighted mean of values, and parts are merged
// in order. The parts lie at fixed positions, so a query's result is the same whether it is
// computed alone or beside others, in one go or part by part.
#pragma once

#include "vec.h"

constexpr int PAGE = 32;
constexpr int PART_PAGES = 16;
constexpr int PART = PAGE * PART_PAGES;
constexpr int MAX_QUERIES = 12;

struct Pages {
  half_t* keys;
  half_t* values;
  int num_kv_heads, head_dim;

  size_t at(int page, int kv_head) const {
    return ((size_t)page * num_kv_heads + kv_head) * head_dim * PAGE;
  }
};

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

template <int N>
static FLM_INLINE void score(const float* q, const half_t* keys, int head_dim, int at,
                             Scores* scores) {
  vf first[N], second[N];
  for (int n = 0; n < N; n++) first[n] = second[n] = splat(0.0f);
  for (int d = 0; d < head_dim; d++) {
    vf k0 = load_half(keys + d * PAGE), k1 = load_half(keys + d * PAGE + LANES);
    for (int n = 0; n < N; n++) {
      vf x = splat(q[n * head_dim + d]);
      first[n] = fma(x, k0, first[n]);
      second[n] = fma(x, k1, second[n]);
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

template <int N, int V>
static FLM_INLINE void mix(const Scores* scores, const Pages& pages, const int32_t* table,
                           int kv_head, int d, int num_keys, Partial* out) {
  vf sums[N][V];
  for (int n = 0; n < N; n++)
    for (int v = 0; v < V; v++) sums[n][v] = splat(0.0f);
  for (int j = 0; j < num_keys; j += PAGE) {
    const half_t* values = pages.values + pages.at(table[j / PAGE], kv_head) + d;
    int end = num_keys - j < PAGE ? num_keys - j : PAGE;
    for (int i = 0; i < end; i++) {
      vf value[V];
      for (int v = 0; v < V; v++) value[v] = load_half(values + i * pages.head_dim + v * LANES);
      for (int n = 0; n < N; n++) {
        vf weight = splat(scores[n][j + i]);
        for (int v = 0; v < V; v++) sums[n][v] = fma(weight, value[v], sums[n][v]);
      }
    }
  }
  for (int n = 0; n < N; n++)
    for (int v = 0; v < V; v++) store(out[n].o + d + v * LANES, sums[n][v]);
}

template <int N>
static FLM_INLINE void mix_all(const Scores* scores, const Pages& pages, const int32_t* table,
                               int kv_head, int num_keys, Partial* out) {
  int d = 0;
  for (; d + 4 * LANES <= pages.head_dim; d += 4 * LANES)
    mix<N, 4>(scores, pages, table, kv_head, d, num_keys, out);
  for (; d < pages.head_dim; d += LANES)
    mix<N, 1>(scores, pages, table, kv_head, d, num_keys, out);
}

// N queries [N, head_dim], already divided by sqrt(head_dim), over one part: `table` begins at
// its first page, query n sees limits[n] of its positions.
template <int N>
static void attend_part(const float* q, const Pages& pages, const int32_t* table, int kv_head,
                        const int* limits, Partial* out) {
  Scores scores[N];
  int num_keys = 0;
  for (int n = 0; n < N; n++) num_keys = limits[n] > num_keys ? limits[n] : num_keys;
  int rounded = (num_keys + PAGE - 1) / PAGE * PAGE;
  for (int j = 0; j < num_keys; j += PAGE)
    score<N>(q, pages.keys + pages.at(table[j / PAGE], kv_head), pages.head_dim, j, scores);
  for (int n = 0; n < N; n++) soften(scores[n], rounded, limits[n], out[n]);
  int n = 0;
  for (; n + 4 <= N; n += 4) mix_all<4>(scores + n, pages, table, kv_head, num_keys, out + n);
  switch (N - n) {
    case 3: return mix_all<3>(scores + n, pages, table, kv_head, num_keys, out + n);
    case 2: return mix_all<2>(scores + n, pages, table, kv_head, num_keys, out + n);
    case 1: return mix_all<1>(scores + n, pages, table, kv_head, num_keys, out + n);
  }
}

typedef void (*AttendPart)(const float*, const Pages&, const int32_t*, int, const int*, Partial*);

static inline AttendPart attend_part_for(int num_queries) {
  static const AttendPart table[MAX_QUERIES] = {
      attend_part<1>, attend_part<2>, attend_part<3>, attend_part<4>,  attend_part<5>,
      attend_part<6>, attend_part<7>, attend_part<8>, attend_part<9>,  attend_part<10>,
      attend_part<11>, attend_part<12>};
  return table[num_queries - 1];
}
