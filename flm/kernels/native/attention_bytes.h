// Attention over pages of bytes. Queries and the weights of positions are rounded to 15 bits of the
// largest of their vector, and products with keys and values are summed as integers: exactly, so in
// any order. Scales are applied to the sums of a page's keys and to the weights of its values.
#pragma once

#include "attention.h"

#if defined(FLM_ARM)

#include "attention_bytes_arm.h"

#else

// 0 to count - 1: numbers of 15 bits and a sign in fours, as products take them.
template <int COUNT>
struct Numbers {
  int32_t low[COUNT / 4], high[COUNT / 4];
};

#if defined(FLM_AVX512)

// A product takes bytes without and with a sign, so a number is split into its lower and upper byte.

typedef __m512i Bytes;

static FLM_INLINE Bytes load_keys(const uint8_t* p) { return _mm512_loadu_si512(p); }
static FLM_INLINE Bytes load_values(const uint8_t* p) { return _mm512_loadu_si512(p); }

struct Sums {
  __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();

  template <int COUNT>
  FLM_INLINE void add_keys(Bytes keys, const Numbers<COUNT>& numbers, int four) {
    low = _mm512_dpbusd_epi32(low, keys, _mm512_set1_epi32(numbers.low[four]));
    high = _mm512_dpbusd_epi32(high, keys, _mm512_set1_epi32(numbers.high[four]));
  }
  template <int COUNT>
  FLM_INLINE void add_values(Bytes values, const Numbers<COUNT>& numbers, int four) {
    low = _mm512_dpbusd_epi32(low, _mm512_set1_epi32(numbers.low[four]), values);
    high = _mm512_dpbusd_epi32(high, _mm512_set1_epi32(numbers.high[four]), values);
  }
  // Of products with keys, which are 128 too large; `sum` is that of the numbers.
  FLM_INLINE vf of_keys(int32_t sum) const {
    return to_float((vi)_mm512_sub_epi32(whole(), _mm512_set1_epi32(128 * sum)));
  }
  FLM_INLINE vf of_values() const { return to_float((vi)whole()); }

 private:
  FLM_INLINE __m512i whole() const { return _mm512_add_epi32(low, _mm512_slli_epi32(high, 8)); }
};

// 16 numbers with a sign: the lower byte has one too.
template <int COUNT>
static FLM_INLINE void put_signed(Numbers<COUNT>& to, int at, vi numbers) {
  store_bytes(to.low + at / 4, numbers);
  store_bytes(to.high + at / 4, (numbers + 128) >> 8);
}

// 16 numbers from 0 up.
template <int COUNT>
static FLM_INLINE void put_unsigned(Numbers<COUNT>& to, int at, vi numbers) {
  store_bytes(to.low + at / 4, numbers);
  store_bytes(to.high + at / 4, numbers >> 8);
}

#else

// A product takes 16 bits: the even ones of four neighbours are in the lower number, the odd ones
// in the upper.

#if defined(__AVX2__)

struct Bytes {
  __m256i even[2], odd[2];
};

static FLM_INLINE Bytes widened(__m256i a, __m256i b) {
  return {{_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8),
           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8)},
          {_mm256_srai_epi16(a, 8), _mm256_srai_epi16(b, 8)}};
}

static FLM_INLINE Bytes load_values(const uint8_t* p) {
  return widened(_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1));
}

static FLM_INLINE Bytes load_keys(const uint8_t* p) {
  const __m256i flip = _mm256_set1_epi8((char)0x80);
  return widened(_mm256_xor_si256(_mm256_loadu_si256((const __m256i*)p), flip),
                 _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)p + 1), flip));
}

struct Sums {
  __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

  template <int COUNT>
  FLM_INLINE void add_values(const Bytes& bytes, const Numbers<COUNT>& numbers, int four) {
    for (int i = 0; i < 2; i++) {
      __m256i a = _mm256_madd_epi16(bytes.even[i], _mm256_set1_epi32(numbers.low[four]));
      __m256i b = _mm256_madd_epi16(bytes.odd[i], _mm256_set1_epi32(numbers.high[four]));
      half[i] = _mm256_add_epi32(half[i], _mm256_add_epi32(a, b));
    }
  }
  template <int COUNT>
  FLM_INLINE void add_keys(const Bytes& bytes, const Numbers<COUNT>& numbers, int four) {
    add_values(bytes, numbers, four);
  }
  FLM_INLINE vf of_values() const {
    return to_float(vi{(int8)half[0], (int8)half[1]});
  }
  FLM_INLINE vf of_keys(int32_t) const { return of_values(); }
};

#else

typedef vi Bytes;

static FLM_INLINE Bytes load_values(const uint8_t* p) { return load_int(p); }
static FLM_INLINE Bytes load_keys(const uint8_t* p) { return load_int(p) ^ (int32_t)0x80808080; }

struct Sums {
  vi sum = splat_int(0);

  template <int COUNT>
  FLM_INLINE void add_values(Bytes bytes, const Numbers<COUNT>& numbers, int four) {
    const int32_t even = numbers.low[four], odd = numbers.high[four];
    sum += (bytes << 24 >> 24) * (int32_t)(int16_t)even;
    sum += (bytes << 16 >> 24) * (int32_t)(int16_t)odd;
    sum += (bytes << 8 >> 24) * (even >> 16);
    sum += (bytes >> 24) * (odd >> 16);
  }
  template <int COUNT>
  FLM_INLINE void add_keys(Bytes bytes, const Numbers<COUNT>& numbers, int four) {
    add_values(bytes, numbers, four);
  }
  FLM_INLINE vf of_values() const { return to_float(sum); }
  FLM_INLINE vf of_keys(int32_t) const { return of_values(); }
};

#endif

template <int COUNT>
static FLM_INLINE void put_signed(Numbers<COUNT>& to, int at, vi numbers) {
  int32_t n[LANES];
  store_int(n, numbers);
  for (int i = 0; i < LANES; i += 4) {
    to.low[(at + i) / 4] = (n[i] & 0xffff) | (int32_t)((uint32_t)n[i + 2] << 16);
    to.high[(at + i) / 4] = (n[i + 1] & 0xffff) | (int32_t)((uint32_t)n[i + 3] << 16);
  }
}

template <int COUNT>
static FLM_INLINE void put_unsigned(Numbers<COUNT>& to, int at, vi numbers) {
  put_signed(to, at, numbers);
}

#endif
#endif

// How many sums the registers hold.
#if defined(__ARM_FEATURE_DOTPROD)
constexpr int MOST_BYTE_SUMS = 3;  // each takes two
#else
constexpr int MOST_BYTE_SUMS = 4;
#endif

// The upper byte of this with a sign, rounded, is 127; sums of 512 products with bytes fit 32 bits.
constexpr float MOST = 127.0f * 256.0f;

// Queries times query_scale.
struct ByteQueries {
  static constexpr int CAPACITY = 12;
  Numbers<MAX_HEAD_DIM> numbers[CAPACITY];
  int32_t sums[CAPACITY];
  float scales[CAPACITY];

  void set(int n, const float* q, int dim) {
    vf top = splat(0.0f);
    for (int d = 0; d < dim; d += LANES) top = vmax(top, vmax(load(q + d), -load(q + d)));
    const float most = lane_max(top), inverse = most > 1e-30f ? MOST / most : 0.0f;
    vi sum = splat_int(0);
    for (int d = 0; d < dim; d += LANES) {
      vi rounded = round_to_int(load(q + d) * inverse);
      sum += rounded;
      put_signed(numbers[n], d, rounded);
    }
    sums[n] = lane_sum(sum);
    scales[n] = most / MOST;
  }
};

// Scores of H * 16 positions of a page, for the queries FIRST to FIRST + N - 1.
template <int N, int FIRST, int H>
static FLM_INLINE void score_bytes(const ByteQueries& q, const uint8_t* keys, const uint8_t* scales,
                                   const uint8_t* next, int num_fours, int at, Scores* scores) {
  Sums sums[N][H];
  for (int d = 0; d < num_fours; d++)
    for (int h = 0; h < H; h++) {
      __builtin_prefetch(next + (d * PAGE + h * LANES) * 4);
      const Bytes four = load_keys(keys + (d * PAGE + h * LANES) * 4);
      for (int n = 0; n < N; n++)
        sums[n][h].add_keys(four, q.numbers[FIRST + n], d);
    }
  for (int h = 0; h < H; h++) {
    vf scale = load_brain(scales + h * LANES * sizeof(brain_t));
    for (int n = 0; n < N; n++)
      store(scores[FIRST + n] + at + h * LANES,
            sums[n][h].of_keys(q.sums[FIRST + n]) * scale * q.scales[FIRST + n]);
  }
}

template <int N, int FIRST = 0>
static FLM_INLINE void score_page(const ByteQueries& q, const Pages& pages, const uint8_t* keys,
                                  const uint8_t* next, int at, Scores* scores) {
  constexpr int most = MOST_BYTE_SUMS;
  if constexpr (FEW_REGISTERS && N > most) {
    score_page<most, FIRST>(q, pages, keys, next, at, scores);
    score_page<N - most, FIRST + most>(q, pages, keys, keys, at, scores);
  } else {
    constexpr int H = !FEW_REGISTERS && N <= 6 ? 2 : 1;  // all sums fit the registers
    const uint8_t* scales = keys + pages.scales_at();
    __builtin_prefetch(next + pages.scales_at());
    for (int h = 0; h < 2; h += H)
      score_bytes<N, FIRST, H>(q, keys + h * LANES * 4, scales + h * LANES * sizeof(brain_t),
                               next + h * LANES * 4, pages.head_dim / 4, at + h * LANES, scores);
  }
}

typedef Numbers<PART> ByteWeights;

// The weights times the scales of their values, rounded; returns what one of the numbers is worth.
static FLM_INLINE float round_weights(float* weights, const float* scales, int num_keys, int limit,
                                      ByteWeights& out) {
  const vf lane = lane_numbers();
  vf top = splat(0.0f);
  for (int j = 0; j < num_keys; j += LANES) {
    // What a former holder left as a scale may be anything.
    vf w = select(lane + (float)j < splat((float)limit), load(weights + j) * load(scales + j),
                  splat(0.0f));
    store(weights + j, w);
    top = vmax(top, w);
  }
  const float most = lane_max(top), inverse = most > 1e-30f ? MOST / most : 0.0f;
  for (int j = 0; j < num_keys; j += LANES)
    put_unsigned(out, j, round_to_int(load(weights + j) * inverse));
  return most / MOST;
}

template <int N, int V>
static FLM_INLINE void mix_bytes(const ByteWeights* weights, const float* worth, const Pages& pages,
                                 const int32_t* table, int kv_head, int d, int num_keys,
                                 Partial* out) {
  const int width = pages.head_dim * 4;
  Sums sums[N][V];
  for (int j = 0; j < num_keys; j += PAGE) {
    const uint8_t* values = pages.values_of(table[j / PAGE], kv_head) + d * 4;
    const int later = j + PAGE < num_keys ? j / PAGE + 1 : j / PAGE;
    const uint8_t* next = pages.values_of(table[later], kv_head) + d * 4;
    const int fours = ((num_keys - j < PAGE ? num_keys - j : PAGE) + 3) / 4;
    for (int i = 0; i < fours; i++)
      for (int v = 0; v < V; v++) {
        __builtin_prefetch(next + i * width + v * LANES * 4);
        const Bytes value = load_values(values + i * width + v * LANES * 4);
        for (int n = 0; n < N; n++)
          sums[n][v].add_values(value, weights[n], j / 4 + i);
      }
  }
  for (int n = 0; n < N; n++)
    for (int v = 0; v < V; v++)
      store(out[n].o + d + v * LANES, sums[n][v].of_values() * worth[n]);
}

template <int N>
static FLM_INLINE void mix_all_bytes(const ByteWeights* weights, const float* worth,
                                     const Pages& pages, const int32_t* table, int kv_head,
                                     int num_keys, Partial* out) {
  constexpr int most = MOST_BYTE_SUMS;
  if constexpr (N > most) {
    mix_all_bytes<most>(weights, worth, pages, table, kv_head, num_keys, out);
    mix_all_bytes<N - most>(weights + most, worth + most, pages, table, kv_head, num_keys,
                            out + most);
  } else {
    constexpr int V = FEW_REGISTERS ? (N <= most / 2 ? 2 : 1) : N <= 2 ? 4 : 2;
    int d = 0;
    for (; d + V * LANES <= pages.head_dim; d += V * LANES)
      mix_bytes<N, V>(weights, worth, pages, table, kv_head, d, num_keys, out);
    for (; d < pages.head_dim; d += LANES)
      mix_bytes<N, 1>(weights, worth, pages, table, kv_head, d, num_keys, out);
  }
}

template <int N>
static void attend_part(const ByteQueries& q, const Pages& pages, const int32_t* table, int kv_head,
                        const int* limits, Partial* out) {
  Scores scores[N];
  float scales[PART] __attribute__((aligned(64)));
  int num_keys = 0;
  for (int n = 0; n < N; n++) num_keys = limits[n] > num_keys ? limits[n] : num_keys;
  const int rounded = (num_keys + PAGE - 1) / PAGE * PAGE;
  for (int j = 0; j < num_keys; j += PAGE) {
    const uint8_t* values = pages.values_of(table[j / PAGE], kv_head) + pages.scales_at();
    __builtin_prefetch(values);
    score_page<N>(q, pages, pages.keys_of(table[j / PAGE], kv_head),
                  next_page(pages, table, kv_head, j, num_keys), j, scores);
    for (int i = 0; i < PAGE; i += LANES)
      store(scales + j + i, load_brain(values + i * sizeof(brain_t)));
  }
  ByteWeights weights[N];
  float worth[N];
  for (int n = 0; n < N; n++) {
    soften(scores[n], rounded, limits[n], out[n]);
    worth[n] = round_weights(scores[n], scales, rounded, limits[n], weights[n]);
  }
  mix_all_bytes<N>(weights, worth, pages, table, kv_head, num_keys, out);
}

template <typename Queries>
using AttendPart = void (*)(const Queries&, const Pages&, const int32_t*, int, const int*, Partial*);

// attend_part for a number of queries that is known while running. Static, as the table of an
// exported function would be one and the same for all builds of this that a process loads.
template <typename Queries>
static void attend_queries(const Queries& q, int count, const Pages& pages, const int32_t* table,
                           int kv_head, const int* limits, Partial* out) {
  static const AttendPart<Queries> parts[Queries::CAPACITY] = {
      attend_part<1>, attend_part<2>, attend_part<3>, attend_part<4>,  attend_part<5>,
      attend_part<6>, attend_part<7>, attend_part<8>, attend_part<9>,  attend_part<10>,
      attend_part<11>, attend_part<12>};
  parts[count - 1](q, pages, table, kv_head, limits, out);
}
