"""Special functions in float64 for the oracle, by other ways than the kernels': integrals, differences, Halley's steps.

Errors stay within a few units of float64 of the value; beside the zeros of lgamma and digamma, of the terms that cancel
there (`CROSSING`).

May import: numpy, math, values.  To add a function: its value on arrays, and how the radius of its argument spreads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from .values import U64, Array

__all__ = [
    "CROSSING",
    "digamma",
    "digamma_spread",
    "erfinv",
    "i0e",
    "i1e",
    "lgamma",
    "lgamma_spread",
    "trigamma",
    "trigamma_spread",
]

#: Absolute error in units of float64, for functions that cross zero where terms of this size cancel.
CROSSING = {"lgamma": 16.0, "digamma": 64.0}


def _lgamma(x: float) -> float:
    try:
        if -100 < x < -0.5 and x != math.floor(x):
            # By reflection, and the logarithm last: two logarithms as large as that of 15! would cancel beside a zero
            # (the first is at -2.46; nearer to the pole at 0 the product would overflow).
            sine = math.sin(math.pi * (x - round(x)))
            return math.log(math.pi / abs(x * sine * math.gamma(-x)))
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole; beyond the greatest number
        return math.inf


def _erfinv(y: float) -> float:
    size = abs(y)
    if not size < 1:
        return math.copysign(math.inf, y) if size == 1 else math.nan
    if size == 0:
        return y
    x = NormalDist().inv_cdf((1 + size) / 2) / math.sqrt(2) if 1e-6 < size < 1 - 1e-12 else size * 0.886
    if size >= 1 - 1e-12:
        x = math.sqrt(-math.log(1 - size))
    for _ in range(60):
        off = math.erf(x) - size if size < 0.5 else (1 - size) - math.erfc(x)
        step = off * math.sqrt(math.pi) / 2 * math.exp(x * x)
        step /= 1 + x * step  # Halley: erf'' is -2 x erf'
        x -= step
        if abs(step) <= 1e-16 * x:
            break
    return math.copysign(x, y)


lgamma: Callable[[Array], Array] = np.vectorize(_lgamma, otypes=[np.float64])
erfinv: Callable[[Array], Array] = np.vectorize(_erfinv, otypes=[np.float64])
#: B_2k / 2k of the asymptotic series.
_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def digamma(x: Array) -> Array:
    """The recurrence up to 30 in one sum, where four terms of the series would do."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        whole = np.floor(x)
        mirrored = np.where(whole == x, np.nan, -math.pi / np.tan(math.pi * (x - np.rint(x))))
        y = np.where(x < 0, 1 - x, x)
        steps = np.arange(30.0)
        small = y < 30
        base = np.where(small, y, 1.0)[..., None] + steps
        shift = np.where(small, -np.sum(1 / base, axis=-1), 0.0)
        y = np.where(small, y + 30, y)
        z = 1 / (y * y)
        tail = sum(c * z ** (k + 1) for k, c in enumerate(_SERIES))
        out = np.log(y) - 0.5 / y - tail + shift + np.where(x < 0, mirrored, 0.0)
        out = np.where(x == np.inf, np.inf, np.where(x == -np.inf, np.nan, out))
        return np.asarray(np.where(x == 0, np.copysign(np.inf, -x), out))


def trigamma(x: Array) -> Array:
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        sine = np.sin(math.pi * (x - np.rint(x)))
        y = np.where(x < 0.5, 1 - x, x)
        base = np.where(y < 30, y, 1.0)[..., None] + np.arange(30.0)
        shift = np.where(y < 30, np.sum(1 / base**2, axis=-1), 0.0)
        y = np.where(y < 30, y + 30, y)
        z = 1 / (y * y)
        out = 1 / y + z / 2 + sum(c * z ** (k + 1) / y for k, c in enumerate(_BERNOULLI)) + shift
        return np.asarray(np.where(x < 0.5, (math.pi / sine) ** 2 - out, out))


def _same_branch(v: Array, r: Array) -> Array:
    """Whether no pole (0, -1, -2 …) lies within."""
    low, high = v - r, v + r
    return np.asarray((low > 0) | ((np.floor(low) == np.floor(high)) & (low != np.floor(low))))


def _by_slope(
    f: Callable[[Array], Array], slope: Callable[[Array], Array]
) -> Callable[[Array, Array], Array]:
    """Of a function whose slope is largest at an end of a branch."""

    def spread(v: Array, r: Array) -> Array:
        with np.errstate(all="ignore"):
            steep = np.maximum(np.abs(slope(v - r)), np.abs(slope(v + r)))
            return np.where(_same_branch(v, r), r * steep * (1 + 1e-9) + 4 * U64 * np.abs(f(v)), np.inf)

    return spread


lgamma_spread = _by_slope(lgamma, digamma)
digamma_spread = _by_slope(digamma, trigamma)


def trigamma_spread(v: Array, r: Array) -> Array:
    """It falls where x is positive; elsewhere nothing is said."""
    with np.errstate(all="ignore"):
        fall = np.maximum(trigamma(v - r) - trigamma(v), trigamma(v) - trigamma(v + r))
        return np.where(v - r > 0, fall + 8 * U64 * trigamma(v), np.inf)


def _bessel(x: Array, n: int) -> Array:
    """e^-|x| I_n(x): the mean of e^(|x| (cos t - 1)) cos(n t) over a period, which equal steps give to the last bit
    once they are short against 1/sqrt(|x|); beyond, the asymptotic series."""
    x = np.asarray(x, np.float64)
    a = np.abs(x)
    with np.errstate(all="ignore"):
        near = np.where(a <= 1000, a, 0.0)
        # Half a period, for the other half is its mirror image: there t/2 nears pi, and its sine is far from exact.
        t = np.arange(257) * (math.pi / 256)
        weight = np.where((t > 0) & (t < math.pi), 2.0, 1.0) / 512
        wave = np.exp(near[..., None] * (-2 * np.sin(t / 2) ** 2)) * weight
        if n:
            # cos(t) e^(a cos t) over the period is a sin(t)^2 e^(a cos t): nothing cancels
            out = near * np.sum(wave * np.sin(t) ** 2, axis=-1)
        else:
            out = np.sum(wave, axis=-1)
        far = np.where(a > 1000, a, 1000.0)
        term = total = np.ones_like(far)
        for k in range(1, 12):
            term = term * ((2 * k - 1) ** 2 - 4 * n) / (8 * k * far)
            total = total + term
        out = np.where(a <= 1000, out, total / np.sqrt(2 * math.pi * far))
        out = np.where(np.isnan(x), np.nan, out)
    return np.asarray(np.copysign(out, x) if n else out)


def i0e(x: Array) -> Array:
    return _bessel(x, 0)


def i1e(x: Array) -> Array:
    return _bessel(x, 1)
