/* Arithmetic on single elements, as the spec language means it, for the CPU and for CUDA kernels alike.
 *
 * What C leaves undefined or to the compiler is defined here: half conversions, division by zero and of the lowest
 * integer, float to integer, NaN in max and min, the order of ties.  Reads no other header when compiled by NVRTC.
 * Functions are named owk_<function>_<dtype>; half types compute in float and are rounded by owk_f32_to_<half>.
 *
 * May include: <stdint.h> only.  To add a function of the language: one function per compute type here, and its row
 * in generator/emit/c_like.py.
 */
#ifndef OPWRIGHT_SCALAR_H
#define OPWRIGHT_SCALAR_H

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define OWK_FN static __device__ __forceinline__
#define OWK_M(f) f
#else
#define OWK_FN static inline __attribute__((always_inline, unused))
#define OWK_M(f) __builtin_##f
#endif

/* ---- bits ---- */
OWK_FN uint32_t owk_bits(float x) {
  uint32_t u;
  OWK_M(memcpy)(&u, &x, 4);
  return u;
}
OWK_FN float owk_float(uint32_t u) {
  float x;
  OWK_M(memcpy)(&x, &u, 4);
  return x;
}
OWK_FN uint64_t owk_bits(double x) {
  uint64_t u;
  OWK_M(memcpy)(&u, &x, 8);
  return u;
}

/* Whether the text may count on one-instruction fma; where not, a polynomial rounds twice. */
#if defined(__FMA__) || defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__aarch64__)
#define OWK_HAS_FMA 1
#else
#define OWK_HAS_FMA 0
#endif
OWK_FN float owk_mad(float a, float b, float c) {
#if OWK_HAS_FMA
  return OWK_M(fmaf)(a, b, c);
#else
  return a * b + c;
#endif
}
OWK_FN float owk_fma(float a, float b, float c) { return OWK_M(fmaf)(a, b, c); }
OWK_FN double owk_fma(double a, double b, double c) { return OWK_M(fma)(a, b, c); }

/* ---- half types: stored as 16 bits, computed as float; rounding is to nearest even, NaN stays NaN ---- */
typedef struct {
  uint16_t bits;
} owk_bf16;
typedef struct {
  uint16_t bits;
} owk_f16;

OWK_FN float owk_bf16_to_f32(owk_bf16 h) { return owk_float((uint32_t)h.bits << 16); }
OWK_FN owk_bf16 owk_f32_to_bf16(float x) {
  uint32_t u = owk_bits(x);
  uint32_t rounded = u + 0x7FFFu + ((u >> 16) & 1u);
  owk_bf16 h = {(uint16_t)((x != x ? u | 0x400000u : rounded) >> 16)};
  return h;
}
OWK_FN float owk_f16_to_f32(owk_f16 h) {
  uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16;
  uint32_t body = (uint32_t)(h.bits & 0x7FFFu) << 13;
  /* 2^112 moves the exponent's bias from 15 to 127, subnormals included; infinity and NaN keep all ones. */
  float scaled = owk_float(body) * 5.192296858534828e33f;
  uint32_t u = h.bits & 0x7C00u;
  uint32_t out = u == 0x7C00u ? (body | 0x7F800000u) : owk_bits(scaled);
  return owk_float(out | sign);
}
OWK_FN owk_f16 owk_f32_to_f16(float x) {
  uint32_t u = owk_bits(x);
  uint32_t sign = (u >> 16) & 0x8000u;
  uint32_t a = u & 0x7FFFFFFFu;
  uint32_t normal = (a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13;
  /* Adding 0.5 puts a subnormal's bits where the mantissa ends, rounded by the adder. */
  uint32_t small = owk_bits(owk_float(a) + 0.5f) - 0x3F000000u;
  uint32_t h = a > 0x7F800000u ? 0x7E00u : a >= 0x477FF000u ? 0x7C00u : a < 0x38800000u ? small : normal;
  owk_f16 out = {(uint16_t)(sign | h)};
  return out;
}
OWK_FN float owk_round_bf16(float x) { return owk_bf16_to_f32(owk_f32_to_bf16(x)); }
OWK_FN float owk_round_f16(float x) { return owk_f16_to_f32(owk_f32_to_f16(x)); }

/* ---- float to integer: toward zero; NaN and what does not fit give the lowest i32 (i32) or i64 (the rest, cut to width),
 * as PyTorch's CPU kernels do on x86 ---- */
OWK_FN int32_t owk_to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : -2147483647 - 1; }
OWK_FN int64_t owk_to_i64(double x) {
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : -9223372036854775807LL - 1;
}
OWK_FN uint8_t owk_to_u8(double x) { return (uint8_t)owk_to_i64(x); }
OWK_FN int8_t owk_to_i8(double x) { return (int8_t)owk_to_i64(x); }
OWK_FN int16_t owk_to_i16(double x) { return (int16_t)owk_to_i64(x); }

/* ---- integers: + - * wrap (-fwrapv); division by zero gives 0; the lowest over -1 wraps ---- */
#define OWK_INT(NAME, INT)                                                                                            \
  OWK_FN INT owk_tdiv_##NAME(INT a, INT b) { return b == 0 ? (INT)0 : b == (INT) - 1 ? (INT)(0 - a) : (INT)(a / b); } \
  OWK_FN INT owk_trem_##NAME(INT a, INT b) { return b == 0 || b == (INT) - 1 ? (INT)0 : (INT)(a % b); }               \
  OWK_FN INT owk_div_##NAME(INT a, INT b) {                                                                           \
    INT q = owk_tdiv_##NAME(a, b), r = owk_trem_##NAME(a, b);                                                         \
    return (INT)(q - (r != 0 && ((r < 0) != (b < 0)) ? 1 : 0));                                                       \
  }                                                                                                                   \
  OWK_FN INT owk_mod_##NAME(INT a, INT b) {                                                                           \
    INT r = owk_trem_##NAME(a, b);                                                                                    \
    return (INT)(r != 0 && ((r < 0) != (b < 0)) ? r + b : r);                                                         \
  }                                                                                                                   \
  OWK_FN INT owk_cdiv_##NAME(INT a, INT b) {                                                                          \
    INT q = owk_tdiv_##NAME(a, b), r = owk_trem_##NAME(a, b);                                                         \
    return (INT)(q + (r != 0 && ((r < 0) == (b < 0)) ? 1 : 0));                                                       \
  }                                                                                                                   \
  OWK_FN INT owk_pow_##NAME(INT a, INT n) {                                                                           \
    INT out = 1;                                                                                                      \
    if (n < 0) return a == 1 ? (INT)1 : a == (INT) - 1 ? (INT)((n & 1) ? -1 : 1) : (INT)0;                            \
    for (; n > 0; n = (INT)(n >> 1)) {                                                                                \
      if (n & 1) out = (INT)(out * a);                                                                                \
      a = (INT)(a * a);                                                                                               \
    }                                                                                                                 \
    return out;                                                                                                       \
  }                                                                                                                   \
  OWK_FN INT owk_shl_##NAME(INT a, INT n) {                                                                           \
    return n < 0 || n >= (INT)(8 * sizeof(INT)) ? (INT)0 : (INT)((uint64_t)a << n);                                   \
  }                                                                                                                   \
  OWK_FN INT owk_shr_##NAME(INT a, INT n) {                                                                           \
    return n < 0 || n >= (INT)(8 * sizeof(INT)) ? (INT)(a < 0 ? -1 : 0) : (INT)(a >> n);                              \
  }                                                                                                                   \
  OWK_FN INT owk_abs_##NAME(INT a) { return (INT)(a < 0 ? 0 - a : a); }                                               \
  OWK_FN INT owk_sign_##NAME(INT a) { return (INT)((a > 0) - (a < 0)); }                                              \
  OWK_FN INT owk_max_##NAME(INT a, INT b) { return a > b ? a : b; }                                                   \
  OWK_FN INT owk_min_##NAME(INT a, INT b) { return a < b ? a : b; }                                                   \
  OWK_FN bool owk_less_##NAME(INT a, INT b) { return a < b; }
OWK_INT(u8, uint8_t)
OWK_INT(i8, int8_t)
OWK_INT(i16, int16_t)
OWK_INT(i32, int32_t)
OWK_INT(i64, int64_t)
OWK_FN bool owk_max_bool(bool a, bool b) { return a | b; }
OWK_FN bool owk_min_bool(bool a, bool b) { return a & b; }
OWK_FN bool owk_less_bool(bool a, bool b) { return a < b; }

/* ---- floats: everything that has one text for both widths ---- */
#define OWK_REAL(NAME, R, S)                                                                        \
  OWK_FN R owk_max_##NAME(R a, R b) { return (a > b) | (a != a) ? a : b; }                          \
  OWK_FN R owk_min_##NAME(R a, R b) { return (a < b) | (a != a) ? a : b; }                          \
  OWK_FN R owk_fmax_##NAME(R a, R b) { return (a > b) | (b != b) ? a : b; }                         \
  OWK_FN R owk_fmin_##NAME(R a, R b) { return (a < b) | (b != b) ? a : b; }                         \
  OWK_FN bool owk_less_##NAME(R a, R b) { return (a < b) | ((b != b) & (a == a)); }                 \
  OWK_FN bool owk_same_##NAME(R a, R b) { return (a == b) | ((a != a) & (b != b)); }                \
  OWK_FN R owk_abs_##NAME(R x) { return OWK_M(fabs##S)(x); }                                        \
  OWK_FN R owk_sign_##NAME(R x) { return (R)((x > 0) - (x < 0)); }                                  \
  OWK_FN R owk_floor_##NAME(R x) { return OWK_M(floor##S)(x); }                                     \
  OWK_FN R owk_ceil_##NAME(R x) { return OWK_M(ceil##S)(x); }                                       \
  OWK_FN R owk_trunc_##NAME(R x) { return OWK_M(trunc##S)(x); }                                     \
  OWK_FN R owk_round_##NAME(R x) { return OWK_M(rint##S)(x); }                                      \
  OWK_FN bool owk_isnan_##NAME(R x) { return x != x; }                                              \
  OWK_FN bool owk_isinf_##NAME(R x) { return (x == x) & (x - x != x - x); }                         \
  OWK_FN bool owk_isfinite_##NAME(R x) { return x - x == x - x; }                                   \
  OWK_FN bool owk_signbit_##NAME(R x) { return (owk_bits(x) >> (8 * sizeof(R) - 1)) != 0; }         \
  OWK_FN R owk_fmod_##NAME(R a, R b) { return OWK_M(fmod##S)(a, b); }                               \
  OWK_FN R owk_mod_##NAME(R a, R b) {                                                               \
    R r = OWK_M(fmod##S)(a, b);                                                                     \
    return r != 0 && ((b < 0) != (r < 0)) ? r + b : r;                                              \
  }                                                                                                 \
  OWK_FN R owk_div_##NAME(R a, R b) { /* floor(a / b), right where the quotient rounds up to it */  \
    if (b == 0) return a / b;                                                                       \
    R r = OWK_M(fmod##S)(a, b);                                                                     \
    R q = (a - r) / b;                                                                              \
    if (r != 0 && ((b < 0) != (r < 0))) q -= 1;                                                     \
    if (q == 0) return OWK_M(copysign##S)((R)0, a / b);                                             \
    R f = OWK_M(floor##S)(q);                                                                       \
    return q - f > (R)0.5 ? f + 1 : f;                                                              \
  }                                                                                                 \
  OWK_FN R owk_sqrt_##NAME(R x) { return OWK_M(sqrt##S)(x); }                                       \
  OWK_FN R owk_rsqrt_##NAME(R x) { return (R)1 / OWK_M(sqrt##S)(x); }                               \
  OWK_FN R owk_ipow_##NAME(R x, int n) { /* n is a literal: the loop unrolls into a few products */ \
    R out = 1;                                                                                      \
    for (int k = n < 0 ? -n : n; k > 0; k >>= 1) {                                                  \
      if (k & 1) out = out * x;                                                                     \
      x = x * x;                                                                                    \
    }                                                                                               \
    return n < 0 ? (R)1 / out : out;                                                                \
  }
OWK_REAL(f32, float, f)
OWK_REAL(f64, double, )

/* Functions of f32: on CUDA its own, which are within the ulps stated; on the CPU ours, which loops run in vectors. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define OWK_UNARY(FN)                                              \
  OWK_FN float owk_##FN##_f32(float x) { return OWK_M(FN##f)(x); } \
  OWK_FN double owk_##FN##_f64(double x) { return OWK_M(FN)(x); }
OWK_FN float owk_pow_f32(float a, float b) { return powf(a, b); }
OWK_FN float owk_atan2_f32(float a, float b) { return atan2f(a, b); }
#else
#define OWK_UNARY(FN) \
  OWK_FN double owk_##FN##_f64(double x) { return OWK_M(FN)(x); }
#include "vmath.h"
#endif
OWK_FN double owk_pow_f64(double a, double b) { return OWK_M(pow)(a, b); }
OWK_FN double owk_atan2_f64(double a, double b) { return OWK_M(atan2)(a, b); }
OWK_UNARY(exp2)
OWK_UNARY(expm1)
OWK_UNARY(log)
OWK_UNARY(log2)
OWK_UNARY(log10)
OWK_UNARY(log1p)
OWK_UNARY(sin)
OWK_UNARY(cos)
OWK_UNARY(tan)
OWK_UNARY(asin)
OWK_UNARY(acos)
OWK_UNARY(atan)
OWK_UNARY(sinh)
OWK_UNARY(cosh)
OWK_UNARY(tanh)
OWK_UNARY(asinh)
OWK_UNARY(acosh)
OWK_UNARY(atanh)
OWK_UNARY(erf)
OWK_UNARY(erfc)

/* e^x without a branch or a call, so that loops over it vectorise: x = n ln 2 + r, |r| <= 0.35, e^r by a polynomial (off by
 * 2^-28), and 2^n in two factors, so that a subnormal result rounds once.  The low bits of `shifted` are n + 254: half of
 * them is the one factor's exponent, the rest the other's.  At most 1 ulp. */
OWK_FN float owk_exp_within_f32(float x) {              /* -104 <= x <= 89 */
  float shifted = owk_mad(x, 1.44269502f, 12583166.0f); /* 1.5 * 2^23 + 254 */
  float n = shifted - 12583166.0f;
  float r = owk_mad(n, -0.693359375f, x);
  r = owk_mad(n, 2.12194442e-4f, r);
  float p = 1.3814464909955859e-03f;
  p = owk_mad(p, r, 8.368780836462975e-03f);
  p = owk_mad(p, r, 4.166839271783829e-02f);
  p = owk_mad(p, r, 1.666651964187622e-01f);
  p = owk_mad(p, r, 4.999999403953552e-01f);
  p = owk_mad(p, r, 1.0f);
  p = owk_mad(p, r, 1.0f);
  uint32_t k = owk_bits(shifted), half = k >> 1;
  return p * owk_float(half << 23) * owk_float((k - half) << 23);
}
OWK_FN float owk_exp_f32(float x) {
  float y = owk_exp_within_f32(x);
  y = x > 89.0f ? owk_float(0x7F800000u) : y;
  return x < -104.0f ? 0.0f : y;
}
OWK_FN double owk_exp_f64(double x) { return OWK_M(exp)(x); }

/* Through e^-|x|, so that no intermediate overflows and small results keep their digits. */
OWK_FN float owk_sigmoid_f32(float x) {
  float a = -OWK_M(fabsf)(x);
  float e = owk_exp_within_f32(a);
  e = a < -104.0f ? 0.0f : e;
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
OWK_FN double owk_sigmoid_f64(double x) {
  double e = owk_exp_f64(-owk_abs_f64(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* ---- order: a key of i64 whose order is that of the values, NaN greatest, -0 == +0 ---- */
OWK_FN int64_t owk_order_f32(float x) {
  int32_t i = (int32_t)owk_bits(x + 0.0f);
  int64_t key = i < 0 ? -(int64_t)(i & 0x7FFFFFFF) : (int64_t)i;
  return x != x ? 0x7FFFFFFFLL : key;
}
OWK_FN int64_t owk_order_f64(double x) {
  int64_t i = (int64_t)owk_bits(x + 0.0);
  int64_t key = i < 0 ? -(i & 0x7FFFFFFFFFFFFFFFLL) : i;
  return x != x ? 0x7FFFFFFFFFFFFFFFLL : key;
}

/* ---- random numbers: word `lane` of Philox 4x32-10 (Salmon et al., SC 2011) ---- */
OWK_FN int64_t owk_philox(int64_t seed, int64_t offset, int64_t lane) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
  uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)((uint64_t)offset >> 32), c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (int64_t)(lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3);
}
OWK_FN float owk_uniform(int64_t word) { return (float)((uint32_t)word >> 8) * 5.9604644775390625e-8f; }

#endif
