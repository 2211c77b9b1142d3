/* Functions of one float as straight lines of arithmetic, so that g++ and clang run loops over them in vectors.
 *
 * What is called most is in float, which has twice as many numbers to a vector: erf, tanh, expm1, the logarithms, and sin
 * and cos of what is not far from 0 (exp and sigmoid: scalar.h).  The others are in double: a float argument is exact
 * there, a double has 29 bits to spare, and its exponent holds every float result, so that no range needs a second path,
 * subnormals and overflow are what the last rounding to float makes of them, and the error is that rounding plus some
 * 2^-32.  Nothing branches, calls or traps; special values are picked at the end.
 * Largest error over every float, in ulp of the result, as `python -m opwright.validators.ulp` measures it: in double
 * below 0.51 each (pow and atan2: sampled); in float as docs/speed.md says, at most 3.1.  What the judge allows is in
 * generator/expr.py (`FUNCTIONS`), at least 2.
 *
 * Polynomials are best approximations over the stated range: of those in double interpolations at Chebyshev nodes.
 *
 * Included by scalar.h for the CPU; may include nothing.  To add a function: its core, then its _f32 with
 * what it gives for nan, infinities, zeros and outside its domain; its row in validators/ulp.py measures it.
 */
#ifndef OPWRIGHT_VMATH_H
#define OPWRIGHT_VMATH_H

OWK_FN double owk_mad(double a, double b, double c) {
#if OWK_HAS_FMA
  return OWK_M(fma)(a, b, c);
#else
  return a * b + c;
#endif
}
OWK_FN double owk_double(uint64_t u) {
  double x;
  OWK_M(memcpy)(&x, &u, 8);
  return x;
}
#define OWK_INF OWK_M(inf)()
#define OWK_NAN OWK_M(nan)("")
#define OWK_LN2 0.6931471805599453
#define OWK_HALF_PI 1.5707963267948966
#define OWK_ROUND 6755399441055744.0 /* 1.5 * 2^52: the low bits of x + this are round(x) */

/* ---- polynomials ---- */
/* (e^x - 1) / x on |x| <= ln 2 / 2: off by 2^-32 of the value */
OWK_FN double owk_p_expm1(double x) {
  double p = 0.00019899390183679232;
  p = owk_mad(p, x, 0.0013941213100006334);
  p = owk_mad(p, x, 0.008333298344023092);
  p = owk_mad(p, x, 0.04166635163844457);
  p = owk_mad(p, x, 0.1666666671931248);
  p = owk_mad(p, x, 0.5000000047401394);
  p = owk_mad(p, x, 1.0);
  return p;
}
/* (2^x - 1) / x on |x| <= 1/2: off by 2^-32 of the value */
OWK_FN double owk_p_exp2m1(double x) {
  double p = 1.529741310727295e-05;
  p = owk_mad(p, x, 0.00015461560778872135);
  p = owk_mad(p, x, 0.001333350216258813);
  p = owk_mad(p, x, 0.009618056388057775);
  p = owk_mad(p, x, 0.05550410884014512);
  p = owk_mad(p, x, 0.24022650923651495);
  p = owk_mad(p, x, 0.6931471805599453);
  return p;
}
/* log(1 + x) / x on [sqrt(1/2) - 1, sqrt(2) - 1]: off by 2^-36 of the value */
OWK_FN double owk_p_log1p(double x) {
  double p = 0.05235888516923783;
  p = owk_mad(p, x, -0.09804420067786203);
  p = owk_mad(p, x, 0.1004720511888933);
  p = owk_mad(p, x, -0.09945996186719662);
  p = owk_mad(p, x, 0.11006038270379548);
  p = owk_mad(p, x, -0.12495435324992145);
  p = owk_mad(p, x, 0.1429081173942899);
  p = owk_mad(p, x, -0.16667024572009081);
  p = owk_mad(p, x, 0.19999888139973632);
  p = owk_mad(p, x, -0.24999992728449305);
  p = owk_mad(p, x, 0.3333333424920659);
  p = owk_mad(p, x, -0.5000000003595171);
  p = owk_mad(p, x, 0.9999999999874651);
  return p;
}
/* erfc(a) e^(a^2) / x, x = 2 / (2 + a), for a in [0, 10.2]: off by 2^-32 of the value */
OWK_FN double owk_p_erfc(double x) {
  double p = -0.004859571079120961;
  p = owk_mad(p, x, 0.003078929671193119);
  p = owk_mad(p, x, 0.12406471306314286);
  p = owk_mad(p, x, -0.5369282033506755);
  p = owk_mad(p, x, 1.0240522072151517);
  p = owk_mad(p, x, -1.014708661873127);
  p = owk_mad(p, x, 0.5170238824992945);
  p = owk_mad(p, x, -0.2367251312515101);
  p = owk_mad(p, x, 0.14853858471088935);
  p = owk_mad(p, x, 0.16403956361562835);
  p = owk_mad(p, x, 0.248338455388937);
  p = owk_mad(p, x, 0.28198703168317907);
  p = owk_mad(p, x, 0.28209819964557986);
  return p;
}
/* atan(a) / a, x = a^2, on [0, 1]: off by 2^-34 of the value */
OWK_FN double owk_p_atan(double x) {
  double p = -0.0006633954571104787;
  p = owk_mad(p, x, 0.00473248419342192);
  p = owk_mad(p, x, -0.015828322749149415);
  p = owk_mad(p, x, 0.033826218952786875);
  p = owk_mad(p, x, -0.05395668057137172);
  p = owk_mad(p, x, 0.07228278345377252);
  p = owk_mad(p, x, -0.08974171958363882);
  p = owk_mad(p, x, 0.11091922963683302);
  p = owk_mad(p, x, -0.14283813255743194);
  p = owk_mad(p, x, 0.19999901102171555);
  p = owk_mad(p, x, -0.3333333129088999);
  p = owk_mad(p, x, 0.9999999999293037);
  return p;
}
/* sin(a) / a, x = a^2, on a <= pi / 4: off by 2^-38 of the value */
OWK_FN double owk_p_sin(double x) {
  double p = 2.717269367045458e-06;
  p = owk_mad(p, x, -0.00019839193964485497);
  p = owk_mad(p, x, 0.00833332875517132);
  p = owk_mad(p, x, -0.1666666663131027);
  p = owk_mad(p, x, 0.9999999999956297);
  return p;
}
/* cos(a), x = a^2, on a <= pi / 4: off by 2^-34 of the value */
OWK_FN double owk_p_cos(double x) {
  double p = 2.4378993728893832e-05;
  p = owk_mad(p, x, -0.001388660894813359);
  p = owk_mad(p, x, 0.04166661639305435);
  p = owk_mad(p, x, -0.4999999961177467);
  p = owk_mad(p, x, 0.9999999999520133);
  return p;
}

/* ---- e^x: scale * (1 + p), scale a power of two ---- */
typedef struct {
  double scale, p;
} OwkPower;
OWK_FN OwkPower owk_power_of_e(double x) { /* |x| <= 600 */
  double s = owk_mad(x, 1.4426950408889634, OWK_ROUND);
  double r = owk_mad(s - OWK_ROUND, -OWK_LN2, x);
  OwkPower e = {owk_double((owk_bits(s) + 1023u) << 52), r * owk_p_expm1(r)};
  return e;
}
OWK_FN double owk_clamp(double x, double end) { /* nan stays */
  x = x > end ? end : x;
  return x < -end ? -end : x;
}
OWK_FN double owk_exp_core(double x) {
  OwkPower e = owk_power_of_e(x);
  return owk_mad(e.scale, e.p, e.scale);
}
OWK_FN double owk_expm1_core(double x) {
  OwkPower e = owk_power_of_e(x);
  return e.scale == 1.0 ? e.p : owk_mad(e.scale, e.p, e.scale - 1.0);
}
OWK_FN double owk_exp2_core(double x) {
  double s = x + OWK_ROUND;
  double r = x - (s - OWK_ROUND);
  double scale = owk_double((owk_bits(s) + 1023u) << 52);
  return owk_mad(scale, r * owk_p_exp2m1(r), scale);
}

/* ---- log x = k ln 2 + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2) ---- */
typedef struct {
  double k, f;
} OwkSplit;
OWK_FN OwkSplit owk_split(double x) { /* positive and finite */
  uint64_t i = owk_bits(x);
  uint64_t k = (i - 0x3FE6A09E667F3BCDu + (uint64_t(1024) << 52)) >> 52; /* plus 1024 */
  OwkSplit s = {owk_double(k | 0x4330000000000000u) - 4503599627371520.0, owk_double(i - ((k - 1024) << 52)) - 1.0};
  return s;
}
/* What a logarithm is outside (0, inf), where `v` is not it. */
OWK_FN double owk_log_ends(double x, double v) {
  v = x < OWK_INF ? v : x;
  return x > 0 ? v : x == 0 ? -OWK_INF : OWK_NAN;
}
OWK_FN double owk_log2_core(double x) { /* whole at powers of two */
  OwkSplit s = owk_split(x);
  return owk_log_ends(x, owk_mad(s.f * owk_p_log1p(s.f), 1.4426950408889634, s.k));
}
OWK_FN double owk_log1p_core(double y) { /* log(1 + y): small y is f itself */
  double x = 1.0 + y;
  OwkSplit s = owk_split(x);
  double f = s.k == 0 ? y : s.f;
  return owk_log_ends(x, owk_mad(s.k, OWK_LN2, f * owk_p_log1p(f)));
}

/* ---- angles ---- */
OWK_FN double owk_atan_core(double y, double x) { /* of y / x, both >= 0, in [0, pi / 2] */
  bool steep = y > x;
  double num = steep ? x : y, den = steep ? y : x;
  double q = num == den ? (den == 0 ? 0.0 : 1.0) : num / den;
  double v = q * owk_p_atan(q * q);
  return steep ? OWK_HALF_PI - v : v;
}
#if OWK_HAS_FMA
/* The quarter turn n (mod 4) and what is left of x beyond it, in [-pi / 4, pi / 4].  2/pi in parts of 29 bits: each
 * product with the 24 bits of x is exact, and so is what it leaves modulo 4, however large x is. */
typedef struct {
  double r;
  uint64_t n;
} OwkTurn;
OWK_FN double owk_mod4(double v) { return owk_mad(OWK_M(rint)(v * 0.25), -4.0, v); }
OWK_FN OwkTurn owk_turn(float x) {
  double a = OWK_M(fabs)((double)x);
  double v0 = owk_mod4(a * 0.636619770899415);
  double v1 = owk_mod4(a * 1.4681663246252086e-09);
  double v2 = owk_mod4(a * 2.2760100671971816e-18);
  double v3 = owk_mod4(a * 5.8812147387730434e-27);
  double v4 = owk_mod4(a * 1.0346868700836215e-35);
  double rest = owk_mad(a, 3.783256351091319e-45, a * 3.7204748827448538e-53);
  double s = ((((v0 + v1) + v2) + v3) + v4) + OWK_ROUND;
  double left = ((((v0 - (s - OWK_ROUND)) + v1) + v2) + v3) + v4;
  double r = (left + rest) * OWK_HALF_PI;
  uint64_t n = owk_bits(s);
  OwkTurn out = {OWK_M(copysign)(1.0, (double)x) < 0 ? -r : r, x < 0 ? 0u - n : n};
  return out;
}
OWK_FN double owk_sin_core(double r) { return r * owk_p_sin(r * r); }
OWK_FN double owk_cos_core(double r) { return owk_p_cos(r * r); }
OWK_FN float owk_turned(float x, double v) { return (float)(x - x == 0 ? v : OWK_NAN); } /* no angle is infinite */
OWK_FN float owk_tan_f32(float x) {
  OwkTurn t = owk_turn(x);
  double s = owk_sin_core(t.r), c = owk_cos_core(t.r);
  return owk_turned(x, t.n & 1u ? -c / s : s / c);
}
/* In float, for angles up to OWK_NEAR. */
typedef struct {
  float r;
  uint32_t n;
} OwkNearTurn;
OWK_FN OwkNearTurn owk_near_turn(float x) {
  float shifted = owk_mad(x, 0.636619772f, 12582912.0f); /* 1.5 * 2^23: the sum's low bits are n */
  float n = shifted - 12582912.0f;
  float r = owk_mad(n, -1.57079637f, x); /* exact: a whole number of 2^-24, and below 1 */
  r = owk_mad(n, 4.37113883e-08f, r);
  r = owk_mad(n, 1.71512451e-15f, r);
  OwkNearTurn t = {r, owk_bits(shifted)};
  return t;
}
/* sin(r + n pi / 2), |r| <= pi / 4: both polynomials are off by 2^-28. */
OWK_FN float owk_near_sine(float r, uint32_t n) {
  float z = r * r;
  float s = -1.9514956511557102e-04f;
  s = owk_mad(s, z, 8.33215843886137e-03f);
  s = owk_mad(s, z, -1.6666655242443085e-01f);
  s = owk_mad(s * z, r, r);
  float c = 2.4432783902739175e-05f;
  c = owk_mad(c, z, -1.3887312961742282e-03f);
  c = owk_mad(c, z, 4.166664555668831e-02f);
  c = owk_mad(c, z, -0.5f);
  c = owk_mad(c, z, 1.0f);
  return owk_float(owk_bits(n & 1u ? c : s) ^ (n & 2u) << 30);
}
OWK_FN float owk_sin_near_f32(float x) { /* through |x|, so that -0 stays */
  OwkNearTurn t = owk_near_turn(OWK_M(fabsf)(x));
  return owk_float(owk_bits(owk_near_sine(t.r, t.n)) ^ (owk_bits(x) & 0x80000000u));
}
OWK_FN float owk_cos_near_f32(float x) {
  OwkNearTurn t = owk_near_turn(x);
  return owk_near_sine(t.r, t.n + 1u);
}
/* Of any angle: near ones as above, bit for bit, so that a loop may choose by what is in it. */
OWK_FN float owk_sin_f32(float x) {
  OwkTurn t = owk_turn(x);
  double v = t.n & 1u ? owk_cos_core(t.r) : owk_sin_core(t.r);
  float far = owk_turned(x, t.n & 2u ? -v : v);
  return OWK_M(fabsf)(x) <= 131072.0f ? owk_sin_near_f32(x) : far;
}
OWK_FN float owk_cos_f32(float x) {
  OwkTurn t = owk_turn(x);
  double v = t.n & 1u ? owk_sin_core(t.r) : owk_cos_core(t.r);
  float far = owk_turned(x, (t.n + 1u) & 2u ? -v : v);
  return OWK_M(fabsf)(x) <= 131072.0f ? owk_cos_near_f32(x) : far;
}
#else /* a quarter turn cannot be taken off exactly without fma */
OWK_FN float owk_sin_f32(float x) { return OWK_M(sinf)(x); }
OWK_FN float owk_cos_f32(float x) { return OWK_M(cosf)(x); }
OWK_FN float owk_tan_f32(float x) { return OWK_M(tanf)(x); }
OWK_FN float owk_sin_near_f32(float x) { return OWK_M(sinf)(x); }
OWK_FN float owk_cos_near_f32(float x) { return OWK_M(cosf)(x); }
#endif
#define OWK_NEAR 0x48000000 /* the bits of 2^17 */
/* For loops that ask whether one of their angles is far: the farthest of them so far, as the bits
 * of its size; nan is farther than all. */
OWK_FN int32_t owk_farther(int32_t most, float x) {
  int32_t size = (int32_t)(owk_bits(x) & 0x7FFFFFFFu);
  return size > most ? size : most;
}
OWK_FN float owk_atan_f32(float x) {
  return (float)OWK_M(copysign)(owk_atan_core(OWK_M(fabs)((double)x), 1.0), (double)x);
}
OWK_FN float owk_atan2_f32(float y, float x) {
  double v = owk_atan_core(OWK_M(fabs)((double)y), OWK_M(fabs)((double)x));
  v = OWK_M(copysign)(1.0, (double)x) < 0 ? 2 * OWK_HALF_PI - v : v;
  return (float)OWK_M(copysign)(v, (double)y);
}
OWK_FN float owk_asin_f32(float x) {
  double d = x;
  return (float)OWK_M(copysign)(owk_atan_core(OWK_M(fabs)(d), OWK_M(sqrt)((1.0 - d) * (1.0 + d))), d);
}
OWK_FN float owk_acos_f32(float x) {
  double d = x, v = owk_atan_core(OWK_M(sqrt)((1.0 - d) * (1.0 + d)), OWK_M(fabs)(d));
  return (float)(d < 0 ? 2 * OWK_HALF_PI - v : v);
}

/* ---- exponentials and logarithms ---- */
OWK_FN float owk_exp2_f32(float x) { return (float)owk_exp2_core(owk_clamp(x, 300.0)); }
/* e^x - 1 = 2 (h p + (h - 1/2)), p = e^r - 1, x = n ln 2 + r, h half of 2^n. */
typedef struct {
  float p, half;
} OwkNearPower;
OWK_FN OwkNearPower owk_near_power(float x) {           /* |x| <= 89 */
  float shifted = owk_mad(x, 1.44269502f, 12583038.0f); /* 1.5 * 2^23 + 126 */
  float n = shifted - 12583038.0f;
  float r = owk_mad(n, -0.693359375f, x);
  r = owk_mad(n, 2.12194442e-4f, r);
  float p = 1.3882507337257266e-03f; /* off by 2^-26 of e^r - 1 */
  p = owk_mad(p, r, 8.366580121219158e-03f);
  p = owk_mad(p, r, 4.166720062494278e-02f);
  p = owk_mad(p, r, 1.666654348373413e-01f);
  p = owk_mad(p, r, 4.999999701976776e-01f);
  p = owk_mad(p * r, r, r);
  OwkNearPower e = {p, owk_float(owk_bits(shifted) << 23)};
  return e;
}
OWK_FN float owk_expm1_f32(float x) {
  OwkNearPower e = owk_near_power(x < -20.0f ? -20.0f : x);
  float y = owk_mad(e.half, e.p, e.half - 0.5f);
  y = e.half == 0.5f ? e.p : y + y; /* small x, subnormal ones too */
  y = x > 89.0f ? owk_float(0x7F800000u) : y;
  return OWK_M(copysignf)(y, x);
}
/* log x = k ln 2 + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2) */
typedef struct {
  float k, f;
} OwkNearSplit;
OWK_FN OwkNearSplit owk_near_split(float x) { /* positive and finite */
  bool small = x < 1.17549435e-38f;           /* subnormal */
  uint32_t i = owk_bits(small ? x * 8388608.0f : x) - 0x3F3504F3u;
  int32_t k = (int32_t)i >> 23;
  OwkNearSplit s = {(float)(small ? k - 23 : k), owk_float((i & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f};
  return s;
}
/* k ln 2 + log(1 + f) = k ln 2 + f - f^2 / 2 + f^3 p, p off by 2^-27 of log(1 + f) */
OWK_FN float owk_near_log(float k, float f) {
  float p = -7.634429633617401e-02f;
  p = owk_mad(p, f, 1.2761549651622772e-01f);
  p = owk_mad(p, f, -1.31601944565773e-01f);
  p = owk_mad(p, f, 1.4201761782169342e-01f);
  p = owk_mad(p, f, -1.6623356938362122e-01f);
  p = owk_mad(p, f, 2.0001226663589478e-01f);
  p = owk_mad(p, f, -2.50008225440979e-01f);
  p = owk_mad(p, f, 3.333333134651184e-01f);
  float u = f * f;
  float t = owk_mad(u, f * p, k * -2.12194442e-4f);
  t = owk_mad(u, -0.5f, t);
  return owk_mad(k, 0.693359375f, f + t);
}
/* What a logarithm is outside (0, inf), where `v` is not it. */
OWK_FN float owk_near_log_ends(float x, float v) {
  v = x < owk_float(0x7F800000u) ? v : x;
  return x > 0 ? v : x == 0 ? owk_float(0xFF800000u) : owk_float(0x7FC00000u);
}
OWK_FN float owk_log_f32(float x) {
  OwkNearSplit s = owk_near_split(x);
  return owk_near_log_ends(x, owk_near_log(s.k, s.f));
}
OWK_FN float owk_log1p_f32(float y) { /* what 1 + y lost is a part of f; small y is f itself */
  float x = 1.0f + y;
  float lost = y < 1.0f ? y - (x - 1.0f) : 1.0f - (x - y);
  uint32_t i = owk_bits(x) - 0x3F3504F3u;
  int32_t k = (int32_t)i >> 23;
  int32_t down = k > 64 ? 64 : k; /* beyond, nothing is lost */
  float f = owk_float((i & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
  f = k == 0 ? y : owk_mad(lost, owk_float((uint32_t)(127 - down) << 23), f);
  return OWK_M(copysignf)(owk_near_log_ends(x, owk_near_log((float)k, f)), y);
}
/* To another base b: f / ln b in two parts, then f^2 times a polynomial that is off by 2^-28 of the whole. */
OWK_FN float owk_log2_f32(float x) { /* whole at powers of two */
  OwkNearSplit s = owk_near_split(x);
  float f = s.f, p = -1.0997752100229263e-01f;
  p = owk_mad(p, f, 1.8618705868721008e-01f);
  p = owk_mad(p, f, -1.9105583429336548e-01f);
  p = owk_mad(p, f, 2.0459774136543274e-01f);
  p = owk_mad(p, f, -2.3961803317070007e-01f);
  p = owk_mad(p, f, 2.885676324367523e-01f);
  p = owk_mad(p, f, -3.6069661378860474e-01f);
  p = owk_mad(p, f, 4.808982312679291e-01f);
  p = owk_mad(p, f, -7.213473320007324e-01f);
  float t = owk_mad(f * f, p, f * 1.925963033500011e-08f);
  return owk_near_log_ends(x, s.k + owk_mad(f, 1.4426950216293335f, t));
}
OWK_FN float owk_log10_f32(float x) {
  OwkNearSplit s = owk_near_split(x);
  float f = s.f, p = -3.310653194785118e-02f;
  p = owk_mad(p, f, 5.604788661003113e-02f);
  p = owk_mad(p, f, -5.7513535022735596e-02f);
  p = owk_mad(p, f, 6.1590056866407394e-02f);
  p = owk_mad(p, f, -7.213221490383148e-02f);
  p = owk_mad(p, f, 8.686751872301102e-02f);
  p = owk_mad(p, f, -1.0858049988746643e-01f);
  p = owk_mad(p, f, 1.4476479589939117e-01f);
  p = owk_mad(p, f, -2.1714718639850616e-01f);
  float t = owk_mad(f * f, p, owk_mad(f, -1.0103049952192578e-08f, s.k * 4.605039066518657e-06f));
  return owk_near_log_ends(x, owk_mad(s.k, 3.01025390625e-01f, owk_mad(f, 4.342944920063019e-01f, t)));
}
OWK_FN float owk_pow_f32(float x32, float y32) {
  double x = x32, y = y32, a = OWK_M(fabs)(x);
  double v = owk_exp2_core(owk_clamp(y * owk_log2_core(a), 300.0));
  bool whole = OWK_M(trunc)(y) == y, odd = whole & (OWK_M(trunc)(y * 0.5) != y * 0.5);
  v = (a == 1) & (OWK_M(fabs)(y) == OWK_INF) ? 1.0 : v;
  v = odd & (OWK_M(copysign)(1.0, x) < 0) ? -v : v;
  v = (x < 0) & (a < OWK_INF) & (y - y == 0) & !whole ? OWK_NAN : v;
  return (float)((y == 0) | (x == 1) ? 1.0 : v);
}

/* ---- hyperbolic functions: through |x|, the sign put back ---- */
OWK_FN double owk_size(float x, double most) { /* nan stays */
  double a = OWK_M(fabs)((double)x);
  return a > most ? most : a;
}
OWK_FN float owk_sinh_f32(float x) {
  double t = owk_expm1_core(owk_size(x, 200.0));
  return (float)OWK_M(copysign)(0.5 * (t + t / (t + 1.0)), (double)x);
}
OWK_FN float owk_cosh_f32(float x) {
  double t = owk_exp_core(owk_size(x, 200.0));
  return (float)(0.5 * (t + 1.0 / t));
}
OWK_FN float owk_asinh_f32(float x) {
  double a = OWK_M(fabs)((double)x);
  double v = owk_log1p_core(a + a * a / (1.0 + OWK_M(sqrt)(owk_mad(a, a, 1.0))));
  return (float)OWK_M(copysign)(a < OWK_INF ? v : a, (double)x);
}
OWK_FN float owk_acosh_f32(float x) {
  double t = (double)x - 1.0;
  return (float)owk_log1p_core(t + OWK_M(sqrt)(t < 0 ? OWK_NAN : t * (t + 2.0)));
}
OWK_FN float owk_atanh_f32(float x) {
  double a = OWK_M(fabs)((double)x);
  return (float)OWK_M(copysign)(0.5 * owk_log1p_core(2.0 * a / (1.0 - a)), (double)x);
}

/* tanh |x| = -t / (t + 2), t = e^-2|x| - 1 */
OWK_FN float owk_tanh_f32(float x) {
  float a = OWK_M(fabsf)(x);
  OwkNearPower e = owk_near_power(-2.0f * (a > 10.0f ? 10.0f : a)); /* beyond, 1 - tanh is below 2^-28 */
  float t = owk_mad(e.half, e.p, e.half - 0.5f);                    /* half of it */
  return OWK_M(copysignf)(t / (t + 1.0f), x);
}

/* ---- the error function ---- */
/* erf |x| = 1 - e^-E, E = -log erfc |x|: |x| times a polynomial, off so little that erf is off by 2^-28. */
OWK_FN float owk_erf_f32(float x) {
  float a = OWK_M(fabsf)(x);
  a = a > 4.0f ? 4.0f : a; /* beyond, 1 - erf is below 2^-25 */
  float p = -9.256342309527099e-06f;
  p = owk_mad(p, a, 1.1764191731344908e-04f);
  p = owk_mad(p, a, -6.328389863483608e-04f);
  p = owk_mad(p, a, 1.6670310869812965e-03f);
  p = owk_mad(p, a, -1.6039935871958733e-04f);
  p = owk_mad(p, a, -1.9153062254190445e-02f);
  p = owk_mad(p, a, 1.0277783125638962e-01f);
  p = owk_mad(p, a, 6.366193890571594e-01f);
  p = owk_mad(p, a, 1.128379225730896f);
  OwkNearPower e = owk_near_power(-a * p);
  float t = owk_mad(e.half, e.p, e.half - 0.5f);
  return OWK_M(copysignf)(t + t, x);
}
OWK_FN float owk_erfc_f32(float x) {
  double a = owk_size(x, 10.2); /* beyond, erfc is below the least float */
  double t = 2.0 / (2.0 + a);
  double v = t * owk_p_erfc(t) * owk_exp_core(-a * a);
  return (float)(x < 0 ? 2.0 - v : v);
}

#endif
