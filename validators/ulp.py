"""How far the functions of f32 are off, measured over every float: what vmath.h and scalar.h state, as a command.

    python -m opwright.validators.ulp [FUNCTION ...] [--step N] [--dialect NAME]

Compiles one loop per function as kernels are compiled, runs it over all 2^32 arguments (or every N-th) and compares
with the C library's double functions, which are right to some 2^-52; a result rounded rightly counts as 0.5.  Where
the result rounds to infinity or below the least float, the unit is that of the nearest finite float.  Exits 1 if a
function passes what `FUNCTIONS` in generator/expr.py lets the judge assume, or gives a wrong nan, infinity or sign of
zero.

May import: the standard library, numpy, generator.expr, runtime.toolchain.  To add a function: its row in `_REFERENCE`.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .. import toolchain
from ..generator.expr import FUNCTIONS

__all__ = ["UNARY", "Worst", "library", "main", "measure"]

#: Function -> C expression of its value at the double x.
_REFERENCE = {
    **{n: f"__builtin_{n}(x)" for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt")},
    **{n: f"__builtin_{n}(x)" for n in ("sin", "cos", "tan", "asin", "acos", "atan", "erf", "erfc")},
    **{n: f"__builtin_{n}(x)" for n in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    "rsqrt": "1 / __builtin_sqrt(x)",
    "sigmoid": "x < 0 ? __builtin_exp(x) / (1 + __builtin_exp(x)) : 1 / (1 + __builtin_exp(-x))",
}
UNARY = tuple(_REFERENCE)

_SOURCE = """
#include "opwright/kernel.h"
static double in_ulp(float y, double want) {
  const float w = (float)want;
  if (want != want || y != y) return want != want && y != y ? 0 : __builtin_inf();
  if (__builtin_signbit(w) != __builtin_signbit(y)) return __builtin_inf();
  if (y == w) return 0.5; /* rounded rightly: at most that, and most are */
  if (y - y != 0 && w - w != 0) return 0;
  if (want - want != 0) return __builtin_inf();
  int e = 0;
  __builtin_frexp(want, &e);
  e = e > 128 ? 128 : e < -125 ? -125 : e;
  const double had = y - y != 0 ? __builtin_copysign(0x1p128, (double)y) : (double)y;
  return __builtin_fabs(had - want) / __builtin_ldexp(1, e - 24);
}
#define MEASURE(NAME, REFERENCE)                                                       \\
  extern "C" double measure_##NAME(int64_t step, uint32_t* at) {                       \\
    static float in[4096], out[4096];                                                  \\
    double worst = 0;                                                                  \\
    for (uint64_t i = 0; i < 1ull << 32;) {                                            \\
      int n = 0;                                                                       \\
      for (; n < 4096 && i < 1ull << 32; i += (uint64_t)step) in[n++] = owk_float((uint32_t)i); \\
      OWK_IVDEP                                                                        \\
      for (int t = 0; t < 4096; ++t) out[t] = owk_##NAME##_f32(in[t]);                 \\
      for (int t = 0; t < n; ++t) {                                                    \\
        const double x = in[t];                                                        \\
        const double off = in_ulp(out[t], REFERENCE);                                  \\
        if (off > worst) worst = off, *at = owk_bits(in[t]);                           \\
      }                                                                                \\
    }                                                                                  \\
    return worst;                                                                      \\
  }
"""


@dataclass(frozen=True)
class Worst:
    """The largest error of a function, in ulp, and the bits of the float where it is."""

    name: str
    ulp: float
    at: int

    @property
    def allowed(self) -> float:
        return FUNCTIONS[self.name].ulp

    def line(self) -> str:
        return f"{self.name:8} {self.ulp:8.4f} ulp at 0x{self.at:08x}, {self.allowed:g} allowed"


def library(dialect: str | None = None) -> ctypes.CDLL:
    """The loops that measure, compiled for a dialect (default: this machine's)."""
    rows = "".join(f"MEASURE({n}, {text})\n" for n, text in _REFERENCE.items())
    return ctypes.CDLL(
        str(toolchain.compile_library({"ulp.cpp": _SOURCE + rows}, name="ulp", dialect=dialect))
    )


def measure(lib: ctypes.CDLL, name: str, step: int = 1) -> Worst:
    """Run one function over every `step`-th float."""
    call = getattr(lib, f"measure_{name}")
    call.restype = ctypes.c_double
    at = ctypes.c_uint32()
    return Worst(name, call(ctypes.c_int64(step), ctypes.byref(at)), at.value)


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m opwright.validators.ulp", description=(__doc__ or "").split("\n")[0]
    )
    p.add_argument("functions", nargs="*", metavar="FUNCTION", help=f"default: all of {', '.join(UNARY)}")
    p.add_argument("--step", type=int, default=1, help="every N-th float only")
    p.add_argument("--dialect", help="default: this machine's best")
    options = p.parse_args(argv)
    unknown = [n for n in options.functions if n not in _REFERENCE]
    if unknown:
        p.error(f"no function of one f32 is named {', '.join(unknown)}")
    lib = library(options.dialect)
    failed = False
    for name in options.functions or UNARY:
        worst = measure(lib, name, options.step)
        print(worst.line(), flush=True)
        failed = failed or not worst.ulp <= worst.allowed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
