// Sixteen float lanes, the same arithmetic on every machine: AVX-512, AVX2 or what the compiler
// makes of plain vectors. Compile with -ffp-contract=off: only fma() fuses.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define FLM_INLINE inline __attribute__((always_inline))

constexpr int LANES = 16;
typedef float vf __attribute__((vector_size(64), aligned(64)));
typedef int32_t vi __attribute__((vector_size(64), aligned(64)));
typedef uint16_t half_t;  // the bits of an IEEE half

#if !defined(__AVX512F__) && defined(__AVX2__)
typedef float vf8 __attribute__((vector_size(32)));
static FLM_INLINE __m256 low(vf a) { return __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7); }
static FLM_INLINE __m256 high(vf a) {
  return __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
}
static FLM_INLINE vf join(__m256 a, __m256 b) {
  return __builtin_shufflevector((vf8)a, (vf8)b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif

static FLM_INLINE vf splat(float x) { return vf{} + x; }

static FLM_INLINE vf load(const float* p) {
  vf v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

static FLM_INLINE void store(float* p, vf v) { std::memcpy(p, &v, sizeof v); }

// a * b + c, rounded once where the machine can.
static FLM_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && defined(__AVX2__)
  return join(_mm256_fmadd_ps(low(a), low(b), low(c)), _mm256_fmadd_ps(high(a), high(b), high(c)));
#elif defined(__aarch64__)
  vf r;
  for (int i = 0; i < LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
#else
  return a * b + c;
#endif
}

static FLM_INLINE vf vmax(vf a, vf b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

static FLM_INLINE vi round_to_int(vf a) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtps_epi32(a);
#elif defined(__AVX2__)
  typedef int32_t vi8 __attribute__((vector_size(32)));
  return __builtin_shufflevector((vi8)_mm256_cvtps_epi32(low(a)), (vi8)_mm256_cvtps_epi32(high(a)), 0,
                                 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  vi r;
  for (int i = 0; i < LANES; i++) r[i] = (int32_t)__builtin_rintf(a[i]);
  return r;
#endif
}

static FLM_INLINE vf to_float(vi a) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps((__m512i)a);
#else
  return __builtin_convertvector(a, vf);
#endif
}

// Sums and maxima across lanes, in one fixed order.
static FLM_INLINE float lane_sum(vf a) {
  float t[LANES];
  std::memcpy(t, &a, sizeof t);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) t[i] += t[i + width];
  return t[0];
}

static FLM_INLINE float lane_max(vf a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a);
#endif
  float t[LANES];
  std::memcpy(t, &a, sizeof t);
  float m = t[0];
  for (int i = 1; i < LANES; i++) m = t[i] > m ? t[i] : m;
  return m;
}

static FLM_INLINE int32_t lane_sum(vi a) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)a);
#endif
  int32_t sum = 0;
  for (int i = 0; i < LANES; i++) sum += a[i];
  return sum;
}

// --- half precision -------------------------------------------------------------------------

static inline float half_to_float_bits(half_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 0x1f, fraction = h & 0x3ff;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (fraction << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else {
    float tiny = (float)fraction * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &tiny, 4);
    bits |= sign;
  }
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

static FLM_INLINE vf load_half(const half_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__) && defined(__AVX2__)
  return join(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
              _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8))));
#elif defined(__aarch64__)
  __fp16 t[LANES];
  std::memcpy(t, p, sizeof t);
  vf r;
  for (int i = 0; i < LANES; i++) r[i] = (float)t[i];
  return r;
#else
  vf r;
  for (int i = 0; i < LANES; i++) r[i] = half_to_float_bits(p[i]);
  return r;
#endif
}

// --- bfloat16 ---------------------------------------------------------------------------------

typedef uint16_t brain_t;  // the upper 16 bits of a float

static FLM_INLINE vi load_int(const void* p) {
  vi v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Rounded to nearest, in the lower 16 bits of each lane.
static FLM_INLINE vi to_brain(vf v) {
  vi bits = (vi)v;
  vi odd = (bits >> 16) & 1;
  return ((bits + 0x7fff + odd) >> 16) & 0xffff;
}

// sums + the products of both halves of each lane with both halves of `pair`.
static FLM_INLINE vf add_pairs(vf sums, vi lanes, int32_t pair) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sums, (__m512bh)lanes, (__m512bh)_mm512_set1_epi32(pair));
#else
  vi low = (vi{} + pair) << 16, high = (vi{} + pair) & (int32_t)0xffff0000;
  sums = fma((vf)(lanes << 16), (vf)low, sums);
  return fma((vf)(lanes & (int32_t)0xffff0000), (vf)high, sums);
#endif
}

typedef brain_t vbr __attribute__((vector_size(32)));

// 16 numbers, rounded, next to each other.
static FLM_INLINE void store_brain(void* p, vf v) {
  vbr packed = __builtin_convertvector(to_brain(v), vbr);
  std::memcpy(p, &packed, sizeof packed);
}

static FLM_INLINE vf load_brain(const void* p) {
  vbr packed;
  std::memcpy(&packed, p, sizeof packed);
  return (vf)(__builtin_convertvector(packed, vi) << 16);
}

// Neighbours as pairs, the first in the lower half; size is a multiple of 16.
static FLM_INLINE void to_pairs(const float* x, int size, int32_t* pairs) {
  for (int i = 0; i < size; i += LANES) store_brain(pairs + i / 2, load(x + i));
}

// --- bytes ------------------------------------------------------------------------------------

typedef uint8_t vub __attribute__((vector_size(LANES)));

static FLM_INLINE vi load_bytes(const uint8_t* p) {
  vub bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, vi);
}

// --- functions ------------------------------------------------------------------------------

// e^x to about 1e-7 relative; 0 below -87, never infinite. Cody-Waite reduction, then a
// polynomial of degree 6 (the coefficients of Cephes' expf).
static FLM_INLINE vf vexp(vf x) {
  vf clamped = x > splat(88.0f) ? splat(88.0f) : x;
  clamped = clamped < splat(-88.0f) ? splat(-88.0f) : clamped;
  vi n = round_to_int(clamped * 1.44269504088896341f);
  vf fn = to_float(n);
  vf r = fma(fn, splat(-0.693359375f), clamped);
  r = fma(fn, splat(2.12194440e-4f), r);
  vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  vf result = p * (vf)((n + 127) << 23);
  return x < splat(-87.0f) ? splat(0.0f) : result;
}

static FLM_INLINE vf vsilu(vf x) { return x / (vexp(-x) + 1.0f); }
