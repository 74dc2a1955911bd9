// Numbers of 16 and 8 bits in sixteen lanes.
#pragma once

#include "vec.h"

typedef uint16_t half_t;   // the bits of an IEEE half
typedef uint16_t brain_t;  // the upper 16 bits of a float

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

#if defined(FLM_ARM)
static FLM_INLINE float4 load_half4(const half_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
#endif

static FLM_INLINE vf load_half(const half_t* p) {
#if defined(FLM_AVX512)
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__) && defined(__AVX2__)
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
#elif defined(FLM_ARM)
  return {{load_half4(p), load_half4(p + 4)}, {load_half4(p + 8), load_half4(p + 12)}};
#else
  float r[LANES];
  for (int i = 0; i < LANES; i++) r[i] = half_to_float_bits(p[i]);
  return load(r);
#endif
}

// --- bfloat16 ---------------------------------------------------------------------------------

// Rounded to nearest, in the lower 16 bits of each lane.
static FLM_INLINE vi to_brain(const vf& v) {
  vi bits = bits_of(v);
  vi odd = (bits >> 16) & 1;
  return ((bits + 0x7fff + odd) >> 16) & 0xffff;
}

#if defined(FLM_ARM)
// The lower halves of eight lanes.
static FLM_INLINE uint16x8_t narrowed(const int8& wide) {
  return vmovn_high_u32(vmovn_u32((uint32x4_t)wide.low), (uint32x4_t)wide.high);
}
#endif

// 16 numbers, rounded, next to each other.
static FLM_INLINE void store_brain(void* p, const vf& v) {
  const vi brain = to_brain(v);
#if defined(FLM_AVX512)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16((__m512i)brain));
#elif defined(__AVX2__)
  __m256i packed = _mm256_packus_epi32((__m256i)brain.low, (__m256i)brain.high);
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xd8));
#elif defined(FLM_ARM)
  put((char*)p, Two<uint16x8_t>{narrowed(brain.low), narrowed(brain.high)});
#else
  int32_t wide[LANES];
  store_int(wide, brain);
  brain_t* to = (brain_t*)p;
  for (int i = 0; i < LANES; i++) to[i] = (brain_t)wide[i];
#endif
}

#if defined(FLM_ARM)
static FLM_INLINE int8 widened(uint16x8_t narrow) {
  return {(int4)vmovl_u16(vget_low_u16(narrow)), (int4)vmovl_high_u16(narrow)};
}
#endif

static FLM_INLINE vf load_brain(const void* p) {
#if defined(FLM_AVX512)
  vi wide = (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__AVX2__)
  const __m128i* halves = (const __m128i*)p;
  vi wide = {(int8)_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)),
             (int8)_mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1))};
#elif defined(FLM_ARM)
  const uint16_t* halves = (const uint16_t*)p;
  vi wide = {widened(vld1q_u16(halves)), widened(vld1q_u16(halves + 8))};
#else
  brain_t narrow[LANES];
  int32_t numbers[LANES];
  std::memcpy(narrow, p, sizeof narrow);
  for (int i = 0; i < LANES; i++) numbers[i] = narrow[i];
  vi wide = load_int(numbers);
#endif
  return from_bits(wide << 16);
}

// Two neighbouring numbers, to be multiplied with lanes that hold two each.
#if defined(FLM_BF16)
typedef int32_t Factors;  // as bfloat16, the first in the lower half
#elif defined(FLM_ARM)
typedef float32x2_t Factors;
#else
struct Factors {
  float first, second;
};
#endif

// Of `size` numbers, a multiple of 16.
static FLM_INLINE void to_factors(const float* x, int size, Factors* out) {
#if defined(FLM_BF16)
  for (int i = 0; i < size; i += LANES) store_brain(out + i / 2, load(x + i));
#else
  std::memcpy(out, x, size * sizeof(float));
#endif
}

#if defined(FLM_ARM)
// Adds the products of four lanes to sum(n), for all n.
template <int N, typename Sum>
static FLM_INLINE void add_products4(Sum sum, int4 lanes, const Factors (&factors)[N]) {
  const float4 first = (float4)(lanes << 16), second = (float4)(lanes & (int32_t)0xffff0000);
  for (int n = 0; n < N; n++)
    sum(n) = vfmaq_lane_f32(vfmaq_lane_f32(sum(n), first, factors[n], 0), second, factors[n], 1);
}
#endif

// sums[n][at] + the products of both halves of each lane with both of factors(n), for all n.
template <int N, int H, typename Of>
static FLM_INLINE void add_products(vf (&sums)[N][H], int at, const vi& lanes, Of factors) {
#if defined(FLM_BF16)
  for (int n = 0; n < N; n++)
    sums[n][at] = _mm512_dpbf16_ps(sums[n][at], (__m512bh)lanes,
                                   (__m512bh)_mm512_set1_epi32(factors(n)));
#elif defined(FLM_ARM)
  Factors own[N];
  for (int n = 0; n < N; n++) {
    own[n] = factors(n);
    asm("" : "+w"(own[n]));  // else GCC reads each of the two by itself, and has no registers left
  }
  add_products4([&](int n) -> float4& { return sums[n][at].low.low; }, lanes.low.low, own);
  add_products4([&](int n) -> float4& { return sums[n][at].low.high; }, lanes.low.high, own);
  add_products4([&](int n) -> float4& { return sums[n][at].high.low; }, lanes.high.low, own);
  add_products4([&](int n) -> float4& { return sums[n][at].high.high; }, lanes.high.high, own);
#else
  // One half after the other: there are few registers.
  const vf first = from_bits(lanes << 16);
  for (int n = 0; n < N; n++) sums[n][at] = fma(first, splat(factors(n).first), sums[n][at]);
  const vf second = from_bits(lanes & (int32_t)0xffff0000);
  for (int n = 0; n < N; n++) sums[n][at] = fma(second, splat(factors(n).second), sums[n][at]);
#endif
}

// --- bytes ------------------------------------------------------------------------------------

static FLM_INLINE vi load_bytes(const uint8_t* p) {
#if defined(FLM_AVX512)
  return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__)
  return {(int8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)),
          (int8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
#elif defined(FLM_ARM)
  return {widened(vmovl_u8(vld1_u8(p))), widened(vmovl_u8(vld1_u8(p + 8)))};
#else
  int32_t wide[LANES];
  for (int i = 0; i < LANES; i++) wide[i] = p[i];
  return load_int(wide);
#endif
}

// The lowest byte of each lane; as a number with a sign it must be the lane.
static FLM_INLINE void store_bytes(void* p, const vi& v) {
#if defined(FLM_AVX512)
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  __m256i words = _mm256_packs_epi32((__m256i)v.low, (__m256i)v.high);
  words = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                _mm256_extracti128_si256(words, 1)));
#elif defined(FLM_ARM)
  vst1q_u8((uint8_t*)p, vmovn_high_u16(vmovn_u16(narrowed(v.low)), narrowed(v.high)));
#else
  int32_t wide[LANES];
  store_int(wide, v);
  for (int i = 0; i < LANES; i++) ((uint8_t*)p)[i] = (uint8_t)wide[i];
#endif
}
