// Functions of sixteen numbers.
#pragma once

#include "vec.h"

// e^x to about 1e-7 relative; 0 below -87, never infinite. Cody-Waite reduction, then a
// polynomial of degree 6 (the coefficients of Cephes' expf).
static FLM_INLINE vf vexp(const vf& x) {
  vf clamped = select(x > splat(88.0f), splat(88.0f), x);
  clamped = select(clamped < splat(-88.0f), splat(-88.0f), clamped);
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
  vf result = p * from_bits((n + 127) << 23);
  return select(x < splat(-87.0f), splat(0.0f), result);
}

// 2^x for x <= 0, to about 1e-7 relative; 2^-125 below that. A minimax polynomial of degree 5 that is
// 1 at 0.
static FLM_INLINE vf exp2_down(const vf& x) {
  const vf bounded = vmax(splat(-125.0f), x);
  const vf shift = splat(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to an integer
  const vf rounded = bounded + shift;
  const vf r = bounded - (rounded - shift);
  vf p = fma(r, splat(1.326472645e-3f), splat(9.671512750e-3f));
  p = fma(p, r, splat(5.550733746e-2f));
  p = fma(p, r, splat(2.402224208e-1f));
  p = fma(p, r, splat(6.931469776e-1f));
  p = fma(p, r, splat(1.0f));
  return from_bits(bits_of(p) + (bits_of(rounded) << 23));
}

static FLM_INLINE vf vsilu(const vf& x) { return x / (vexp(-x) + 1.0f); }
