/* The parts of a float: the power of two of its leading bit, and products with a power of two.
 *
 * Included by the kernel texts that use it, after kernel.h (for CUDA put in after device.h); may use scalar.h.  To add a
 * function: its text for float and double, and its name in `PARTS` (generator/emit/c_expr.py).
 */
#ifndef OPWRIGHT_PARTS_H
#define OPWRIGHT_PARTS_H

/* Of zero, inf and nan: 0.  A subnormal number is made normal first. */
OWK_FN int64_t owk_exponent_f64(double x) {
  uint64_t u = owk_bits(x) & 0x7FFFFFFFFFFFFFFFull;
  uint64_t v = owk_bits(x * 0x1p64) & 0x7FFFFFFFFFFFFFFFull;
  int64_t normal = (int64_t)(u >> 52) - 1023, small = (int64_t)(v >> 52) - 1087;
  return u == 0 || u >= 0x7FF0000000000000ull ? 0 : (u >> 52) != 0 ? normal : small;
}
OWK_FN int64_t owk_exponent_f32(float x) { return owk_exponent_f64((double)x); }

/* 2^k for -1022 <= k <= 1023. */
OWK_FN double owk_power_of_two(int64_t k) {
  uint64_t u = (uint64_t)(k + 1023) << 52;
  double x;
  OWK_M(memcpy)(&x, &u, 8);
  return x;
}
/* Every float times 2^k with |k| <= 300 is a double, so one rounding is left; beyond that it is 0 or inf already. */
OWK_FN float owk_ldexp_f32(float x, int64_t k) {
  return (float)((double)x * owk_power_of_two(k < -300 ? -300 : k > 300 ? 300 : k));
}
/* Steps that are exact, but for the last one: down to 53 bits above the subnormal numbers, then past them at once. */
OWK_FN double owk_ldexp_f64(double x, int64_t k) {
  int64_t p = k < -2200 ? -2200 : k > 2200 ? 2200 : k;
  int64_t e = owk_exponent_f64(x);
  if (p >= 0) {
    int64_t a = p < 1000 ? p : 1000, b = p - a < 1000 ? p - a : 1000;
    return x * owk_power_of_two(a) * owk_power_of_two(b) * owk_power_of_two(p - a - b);
  }
  /* The first two steps leave the leading bit at 2^-900 or above, so that they are exact. */
  int64_t room = e + 900 > 0 ? e + 900 : 0, all = -p, a = all < room ? all : room;
  int64_t first = a < 1000 ? a : 1000, rest = all - a;
  double y = x * owk_power_of_two(-first) * owk_power_of_two(first - a);
  return rest <= 1000 ? y * owk_power_of_two(-rest) : y * owk_power_of_two(-1000) * owk_power_of_two(-1000);
}

#endif
