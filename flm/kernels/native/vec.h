// Sixteen lanes as vectors of the machine: one of AVX-512, two of AVX2, four elsewhere. (A compiler
// keeps a vector that is wider than the machine's in memory.) Compile with -ffp-contract=off: only
// fma() fuses.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#define FLM_ARM
#include <arm_neon.h>
#endif

#define FLM_INLINE inline __attribute__((always_inline))

constexpr int LANES = 16;
// An AVX-512 without products of bytes is used as AVX2, which has some.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#define FLM_AVX512
#if defined(__AVX512BF16__)
#define FLM_BF16
#endif
#endif

// Few registers hold the sums of a few rows only.
#if defined(FLM_AVX512)
constexpr bool FEW_REGISTERS = false;
#else
constexpr bool FEW_REGISTERS = true;
#endif
// How many of them with sixteen lanes, and with two times as many: the registers of x86 and ARM hold
// eight times sixteen, but ARM cannot take what it multiplies from memory.
#if defined(FLM_ARM)
constexpr int MOST_SUMS = 4, MOST_PAIRS = 1;
#else
constexpr int MOST_SUMS = 6, MOST_PAIRS = 3;
#endif

typedef float float4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));

#if defined(FLM_AVX512)

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));

#else

template <typename Half>
struct Two {
  Half low, high;
};

#if defined(__AVX2__)
typedef float float8 __attribute__((vector_size(32)));
typedef int32_t int8 __attribute__((vector_size(32)));
#else
typedef Two<float4> float8;
typedef Two<int4> int8;
#endif
typedef Two<float8> vf;
typedef Two<int8> vi;

#define FLM_LANEWISE(op)                                                                       \
  template <typename Half>                                                                     \
  static FLM_INLINE auto operator op(const Two<Half>& a, const Two<Half>& b)                   \
      ->Two<decltype(a.low op b.low)> {                                                        \
    return {a.low op b.low, a.high op b.high};                                                 \
  }                                                                                            \
  template <typename Half, typename S, typename = std::enable_if_t<std::is_arithmetic_v<S>>>   \
  static FLM_INLINE auto operator op(const Two<Half>& a, S b)->Two<decltype(a.low op b)> {     \
    return {a.low op b, a.high op b};                                                          \
  }
FLM_LANEWISE(+)
FLM_LANEWISE(-)
FLM_LANEWISE(*)
FLM_LANEWISE(/)
FLM_LANEWISE(&)
FLM_LANEWISE(|)
FLM_LANEWISE(^)
FLM_LANEWISE(<<)
FLM_LANEWISE(>>)
FLM_LANEWISE(<)
FLM_LANEWISE(>)
FLM_LANEWISE(!=)
#undef FLM_LANEWISE

template <typename Half>
static FLM_INLINE Two<Half> operator-(const Two<Half>& a) {
  return {-a.low, -a.high};
}
template <typename Half>
static FLM_INLINE Two<Half> operator~(const Two<Half>& a) {
  return {~a.low, ~a.high};
}
template <typename Half, typename Other>
static FLM_INLINE Two<Half>& operator+=(Two<Half>& a, const Other& b) {
  return a = a + b;
}
template <typename Half, typename Other>
static FLM_INLINE Two<Half>& operator-=(Two<Half>& a, const Other& b) {
  return a = a - b;
}
template <typename Half, typename Other>
static FLM_INLINE Two<Half>& operator|=(Two<Half>& a, const Other& b) {
  return a = a | b;
}

// One function for each kind of vector makes one for two of them.
#define FLM_ON_HALVES(name)                                              \
  template <typename Half>                                               \
  static FLM_INLINE auto name(const Two<Half>& a)->Two<decltype(name(a.low))> { \
    return {name(a.low), name(a.high)};                                  \
  }

#endif

// --- moves ------------------------------------------------------------------------------------

// Vector by vector: what is copied as a whole, a compiler copies in memory.
template <typename V, typename T>
static FLM_INLINE void get(V& v, const T* p) {
  std::memcpy(&v, p, sizeof v);
}
template <typename V, typename T>
static FLM_INLINE void put(T* p, const V& v) {
  std::memcpy(p, &v, sizeof v);
}
#if defined(FLM_ARM)
// What is copied as 16 bytes, a compiler may copy through two other registers.
static FLM_INLINE void get(float4& v, const float* p) { v = vld1q_f32(p); }
static FLM_INLINE void put(float* p, const float4& v) { vst1q_f32(p, v); }
static FLM_INLINE void get(int4& v, const char* p) { v = vld1q_s32((const int32_t*)p); }
static FLM_INLINE void put(char* p, const int4& v) { vst1q_s32((int32_t*)p, v); }
#endif
template <typename To, typename From>
static FLM_INLINE void reinterpret(To& to, const From& from) {
  to = (To)from;
}
#if !defined(FLM_AVX512)
template <typename Half, typename T>
static FLM_INLINE void get(Two<Half>& v, const T* p) {
  get(v.low, p);
  get(v.high, p + sizeof(Half) / sizeof(T));
}
template <typename Half, typename T>
static FLM_INLINE void put(T* p, const Two<Half>& v) {
  put(p, v.low);
  put(p + sizeof(Half) / sizeof(T), v.high);
}
template <typename To, typename From>
static FLM_INLINE void reinterpret(Two<To>& to, const Two<From>& from) {
  reinterpret(to.low, from.low);
  reinterpret(to.high, from.high);
}
#endif

static FLM_INLINE vf load(const float* p) {
  vf v;
  get(v, p);
  return v;
}

static FLM_INLINE vi load_int(const void* p) {
  vi v;
  get(v, (const char*)p);
  return v;
}

static FLM_INLINE void store(float* p, const vf& v) { put(p, v); }
static FLM_INLINE void store_int(void* p, const vi& v) { put((char*)p, v); }

#if defined(FLM_AVX512)
static FLM_INLINE vf splat(float x) { return _mm512_set1_ps(x); }
static FLM_INLINE vi splat_int(int32_t x) { return (vi)_mm512_set1_epi32(x); }
#elif defined(__AVX2__)
static FLM_INLINE vf splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static FLM_INLINE vi splat_int(int32_t x) {
  return {(int8)_mm256_set1_epi32(x), (int8)_mm256_set1_epi32(x)};
}
#else
static FLM_INLINE vf splat(float x) {
  const float8 half = {float4{x, x, x, x}, float4{x, x, x, x}};
  return {half, half};
}
static FLM_INLINE vi splat_int(int32_t x) {
  const int8 half = {int4{x, x, x, x}, int4{x, x, x, x}};
  return {half, half};
}
#endif

// 0, 1, ... 15.
static FLM_INLINE vf lane_numbers() {
  static const float numbers[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load(numbers);
}

static FLM_INLINE vi bits_of(const vf& v) {
  vi bits;
  reinterpret(bits, v);
  return bits;
}

static FLM_INLINE vf from_bits(const vi& bits) {
  vf v;
  reinterpret(v, bits);
  return v;
}

#if defined(FLM_AVX512)
static FLM_INLINE float first_lane(vf v) { return v[0]; }
#elif defined(__AVX2__)
static FLM_INLINE float first_lane(const vf& v) { return v.low[0]; }
#else
static FLM_INLINE float first_lane(const vf& v) { return v.low.low[0]; }
#endif

// --- arithmetic -------------------------------------------------------------------------------

// a * b + c, rounded once where the machine can; the larger of both, b where one is not a number;
// a where the mask is set, else b; the nearest integer; the number that an integer is.

#if defined(FLM_AVX512)
static FLM_INLINE vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static FLM_INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
static FLM_INLINE vf select(vi mask, vf a, vf b) { return mask ? a : b; }
static FLM_INLINE vi round_to_int(vf a) { return (vi)_mm512_cvtps_epi32(a); }
static FLM_INLINE vf to_float(vi a) { return _mm512_cvtepi32_ps((__m512i)a); }
#else
#if defined(__AVX2__)
static FLM_INLINE float8 fma(float8 a, float8 b, float8 c) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
static FLM_INLINE float8 vmax(float8 a, float8 b) { return _mm256_max_ps(a, b); }
static FLM_INLINE float8 select(int8 mask, float8 a, float8 b) {
  return _mm256_blendv_ps(b, a, (float8)mask);
}
static FLM_INLINE int8 round_to_int(float8 a) { return (int8)_mm256_cvtps_epi32(a); }
static FLM_INLINE float8 to_float(int8 a) { return _mm256_cvtepi32_ps((__m256i)a); }
#else
static FLM_INLINE float4 vmax(float4 a, float4 b) { return a > b ? a : b; }
#if defined(FLM_ARM)
static FLM_INLINE float4 fma(float4 a, float4 b, float4 c) { return vfmaq_f32(c, a, b); }
static FLM_INLINE float4 select(int4 mask, float4 a, float4 b) {
  return vbslq_f32((uint32x4_t)mask, a, b);
}
static FLM_INLINE int4 round_to_int(float4 a) { return vcvtnq_s32_f32(a); }
#else
static FLM_INLINE float4 fma(float4 a, float4 b, float4 c) { return a * b + c; }
static FLM_INLINE float4 select(int4 mask, float4 a, float4 b) { return mask ? a : b; }
static FLM_INLINE int4 round_to_int(float4 a) {
  int4 r;
  for (int i = 0; i < 4; i++) r[i] = (int32_t)__builtin_rintf(a[i]);
  return r;
}
#endif
static FLM_INLINE float4 to_float(int4 a) { return __builtin_convertvector(a, float4); }
#endif
template <typename Half>
static FLM_INLINE Two<Half> fma(const Two<Half>& a, const Two<Half>& b, const Two<Half>& c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
template <typename Half>
static FLM_INLINE Two<Half> vmax(const Two<Half>& a, const Two<Half>& b) {
  return {vmax(a.low, b.low), vmax(a.high, b.high)};
}
template <typename Mask, typename Half>
static FLM_INLINE Two<Half> select(const Two<Mask>& mask, const Two<Half>& a, const Two<Half>& b) {
  return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
}
FLM_ON_HALVES(round_to_int)
FLM_ON_HALVES(to_float)
#endif

// Sums and maxima across lanes, in one fixed order: halves are added until one number is left.
#if defined(FLM_ARM)
static FLM_INLINE float lane_sum(float4 a) {
  return vaddv_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a)));
}
static FLM_INLINE float lane_max(float4 a) { return vmaxvq_f32(a); }
static FLM_INLINE int32_t lane_sum(int4 a) { return vaddvq_s32(a); }
#else
static FLM_INLINE float lane_sum(float4 a) { return (a[0] + a[2]) + (a[1] + a[3]); }
static FLM_INLINE float lane_max(float4 a) {
  const float low = a[0] > a[1] ? a[0] : a[1], high = a[2] > a[3] ? a[2] : a[3];
  return low > high ? low : high;
}
static FLM_INLINE int32_t lane_sum(int4 a) { return (a[0] + a[2]) + (a[1] + a[3]); }
#endif

#if defined(__AVX2__)
static FLM_INLINE float4 folded(__m256 a) {
  return (float4)_mm256_castps256_ps128(a) + (float4)_mm256_extractf128_ps(a, 1);
}
static FLM_INLINE float lane_max(__m256 a) {
  return lane_max((float4)_mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}
static FLM_INLINE int32_t lane_sum(__m256i a) {
  return lane_sum((int4)_mm256_castsi256_si128(a) + (int4)_mm256_extracti128_si256(a, 1));
}
#endif

#if defined(FLM_AVX512)
static FLM_INLINE float4 folded(vf a) {
  const __m512d halves = (__m512d)a;
  return folded(_mm256_add_ps((__m256)_mm512_castpd512_pd256(halves),
                              (__m256)_mm512_extractf64x4_pd(halves, 1)));
}
static FLM_INLINE float lane_max(vf a) { return _mm512_reduce_max_ps(a); }
static FLM_INLINE int32_t lane_sum(vi a) { return _mm512_reduce_add_epi32((__m512i)a); }
static FLM_INLINE bool any(vi mask) {
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
#elif defined(__AVX2__)
static FLM_INLINE float4 folded(const vf& a) { return folded((__m256)(a.low + a.high)); }
static FLM_INLINE float lane_max(const vf& a) { return lane_max((__m256)vmax(a.low, a.high)); }
static FLM_INLINE int32_t lane_sum(const vi& a) { return lane_sum((__m256i)(a.low + a.high)); }
static FLM_INLINE bool any(const vi& mask) {
  const __m256i both = (__m256i)(mask.low | mask.high);
  return !_mm256_testz_si256(both, both);
}
#else
static FLM_INLINE float4 folded(const vf& a) {
  const float8 half = a.low + a.high;
  return half.low + half.high;
}
static FLM_INLINE float lane_max(const vf& a) {
  const float8 half = vmax(a.low, a.high);
  return lane_max(vmax(half.low, half.high));
}
static FLM_INLINE int32_t lane_sum(const vi& a) {
  const int8 half = a.low + a.high;
  return lane_sum(half.low + half.high);
}
static FLM_INLINE bool any(const vi& mask) {
  const int8 half = mask.low | mask.high;
  const int4 quarter = half.low | half.high;
#if defined(FLM_ARM)
  return vmaxvq_u32((uint32x4_t)quarter) != 0;
#else
  return (quarter[0] | quarter[1] | quarter[2] | quarter[3]) != 0;
#endif
}
#endif

static FLM_INLINE float lane_sum(const vf& a) { return lane_sum(folded(a)); }
