/* Functions of numbers many of which are -inf: what a mask hides.
 *
 * Included by the kernel texts that use it, after kernel.h; may use scalar.h.  To add a function: its text, and its name
 * in `MASKED` (generator/emit/c_expr.py).
 */
#ifndef OPWRIGHT_MASKED_H
#define OPWRIGHT_MASKED_H

/* owk_exp_f32, bit for bit.  Where that gives 0 it passes through subnormal numbers, which cost a hundred cycles. */
OWK_FN float owk_exp_masked_f32(float x) {
  const float y = owk_exp_f32(x < -104.0f ? 0.0f : x);
  return x < -104.0f ? 0.0f : y;
}

#endif
