"""The functions of the language in ball arithmetic: value in float64, radius through the derivative, stated ulp added.

May import: numpy, math, ball, values, generator.{expr (the table of ulps), types}.
To add a function: a row in `_UNARY` (value, how the input's radius spreads, traits), or a case in `call`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..generator.expr import FUNCTIONS
from ..generator.types import DType
from . import special as special_functions
from .ball import (
    Ball,
    absolute,
    arithmetic,
    cast,
    compare,
    cut_to_integer,
    extremum,
    is_free,
    rounded,
    settled,
    specials,
    square,
    uncertain_sign,
    unless_zero,
    zero_if,
)
from .values import STORAGE, U64, Array, is_representable, least, philox4x32, round_to

__all__ = ["call", "order_key", "power"]

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_LN2 = math.log(2.0)


def _sigmoid(x: Array) -> Array:
    e: Array = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def _nearest(v: Array, r: Array) -> Array:
    """The smallest |x| within the ball."""
    return np.asarray(np.maximum(np.abs(v) - r, 0.0))


def _ends(
    f: Callable[[Array], Array], low: float = -np.inf, high: float = np.inf
) -> Callable[[Array, Array], Array]:
    """The spread of a monotonic function on [low, high]; outside of it the result is open."""

    def spread(v: Array, r: Array) -> Array:
        a, b = v - r, v + r
        out = np.maximum(np.abs(f(b) - f(v)), np.abs(f(v) - f(a))) + 4 * U64 * np.abs(f(v))
        return np.where((a < low) | (b > high), np.inf, out)

    return spread


def _root_spread(v: Array, r: Array) -> Array:
    low = np.maximum(v - r, 0.0)
    # sqrt(v) - sqrt(v - r) without cancellation
    return np.where(r > 0, r / (np.sqrt(np.maximum(v, 0.0)) + np.sqrt(low)), 0.0)


def _inverse_root_spread(v: Array, r: Array) -> Array:
    low = v - r
    root, root_low = np.sqrt(v), np.sqrt(np.maximum(low, 0.0))
    return np.where(low > 0, r / (root * root_low * (root + root_low)), np.inf)


def _log_spread(scale: float) -> Callable[[Array, Array], Array]:
    return lambda v, r: np.where(v > r, -np.log1p(-r / v) * scale, np.inf)


def _log1p_spread(v: Array, r: Array) -> Array:
    return np.where(1 + v > r, -np.log1p(-r / (1 + v)), np.inf)


def _tan_spread(v: Array, r: Array) -> Array:
    pole = np.floor((v - r) / math.pi - 0.5) != np.floor((v + r) / math.pi - 0.5)
    steepest = np.maximum(np.tan(v - r) ** 2, np.tan(v + r) ** 2) + 1
    return np.where(pole, np.inf, r * steepest)


def _inverse_sine_spread(v: Array, r: Array) -> Array:
    edge = np.abs(v) + r
    return np.where(
        edge <= 1,
        np.arcsin(np.minimum(edge, 1.0)) - np.arcsin(np.minimum(np.abs(v), 1.0)) + r + 4 * U64,
        np.inf,
    )


@dataclass(frozen=True)
class _Row:
    """A function of one real.

    lift    the radius that an input's radius becomes
    poles   inf from a finite exact argument is exact (log(0)), not overflow
    nonneg  never negative
    root    where the ball reaches below zero, it is cut off if the argument is nonneg, else the result is open
    """

    value: Callable[[Array], Array]
    lift: Callable[[Array, Array], Array]
    poles: bool = False
    nonneg: bool = False
    root: bool = False


def _lipschitz(v: Array, r: Array) -> Array:
    return np.minimum(r, 2.0)


def _exp_lift(value: Callable[[Array], Array], scale: float) -> Callable[[Array, Array], Array]:
    def lift(v: Array, r: Array) -> Array:
        out = value(v) * np.expm1(r * scale)
        return np.where(value(v) == 0, np.where(np.isfinite(r), 0.0, np.inf), out)

    return lift


_UNARY: dict[str, _Row] = {
    "exp": _Row(np.exp, _exp_lift(np.exp, 1.0), nonneg=True),
    "exp2": _Row(np.exp2, _exp_lift(np.exp2, _LN2), nonneg=True),
    "expm1": _Row(np.expm1, _exp_lift(np.exp, 1.0)),
    "log": _Row(np.log, _log_spread(1.0), poles=True),
    "log2": _Row(np.log2, _log_spread(1 / _LN2), poles=True),
    "log10": _Row(np.log10, _log_spread(1 / math.log(10.0)), poles=True),
    "log1p": _Row(np.log1p, _log1p_spread, poles=True),
    "sqrt": _Row(np.sqrt, _root_spread, nonneg=True, root=True),
    "rsqrt": _Row(lambda v: 1.0 / np.sqrt(v), _inverse_root_spread, poles=True, nonneg=True, root=True),
    "sin": _Row(np.sin, _lipschitz),
    "cos": _Row(np.cos, _lipschitz),
    "tan": _Row(np.tan, _tan_spread),
    "asin": _Row(np.arcsin, _inverse_sine_spread),
    "acos": _Row(np.arccos, _inverse_sine_spread, nonneg=True),
    "atan": _Row(np.arctan, lambda v, r: np.minimum(r / (1 + _nearest(v, r) ** 2), math.pi)),
    "sinh": _Row(np.sinh, lambda v, r: 2 * np.cosh(np.abs(v) + r) * np.sinh(r / 2)),
    "cosh": _Row(np.cosh, lambda v, r: 2 * np.sinh(np.abs(v) + r) * np.sinh(r / 2), nonneg=True),
    "tanh": _Row(np.tanh, lambda v, r: np.minimum(r / np.cosh(np.minimum(_nearest(v, r), 300.0)) ** 2, 2.0)),
    "asinh": _Row(np.arcsinh, lambda v, r: r / np.sqrt(1 + _nearest(v, r) ** 2)),
    "acosh": _Row(np.arccosh, _ends(np.arccosh, 1.0), poles=True, nonneg=True),
    "atanh": _Row(np.arctanh, _ends(np.arctanh, -1.0, 1.0), poles=True),
    "sigmoid": _Row(
        _sigmoid,
        lambda v, r: np.minimum(r * _sigmoid(_nearest(v, r)) * _sigmoid(-_nearest(v, r)), 1.0),
        nonneg=True,
    ),
    "erf": _Row(
        _erf, lambda v, r: np.minimum(2 / math.sqrt(math.pi) * r * np.exp(-(_nearest(v, r) ** 2)), 2.0)
    ),
    "erfinv": _Row(special_functions.erfinv, _ends(special_functions.erfinv, -1.0, 1.0), poles=True),
    "lgamma": _Row(special_functions.lgamma, special_functions.lgamma_spread, poles=True),
    "digamma": _Row(special_functions.digamma, special_functions.digamma_spread, poles=True),
    "trigamma": _Row(special_functions.trigamma, special_functions.trigamma_spread, poles=True, nonneg=True),
    "i0e": _Row(special_functions.i0e, _lipschitz, nonneg=True),
    "i1e": _Row(special_functions.i1e, _lipschitz),
    "erfc": _Row(
        _erfc,
        lambda v, r: np.minimum(2 / math.sqrt(math.pi) * r * np.exp(-(_nearest(v, r) ** 2)), 2.0),
        nonneg=True,
    ),
}
#: Functions that also take complex arguments.
_COMPLEX: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
_SLOPE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": lambda z: 1 / z,
    "sqrt": lambda z: 0.5 / np.sqrt(z),
    "sin": np.cos,
    "cos": np.sin,
    "tanh": lambda z: 1 / np.cosh(z) ** 2,
}
_CUTS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
}


def call(fn: str, args: Sequence[Ball], dtype: DType) -> Ball:
    """`fn(args)` of type `dtype`; `FUNCTIONS[fn].ulp` is what kernels may be off by."""
    with np.errstate(all="ignore"):
        if fn in _UNARY:
            return _unary(fn, cast(args[0], dtype), dtype)
        match fn:
            case "pow":
                return power(args[0], args[1], dtype)
            case "abs":
                return cast(absolute(args[0]), dtype)
            case "sign":
                return _sign(cast(args[0], dtype))
            case "floor" | "ceil" | "trunc" | "round":
                x = args[0]
                whole = x if not x.dtype.is_inexact else cut_to_integer(x, _CUTS[fn])
                return cast(whole, dtype)
            case "gcd":
                return _gcd(cast(args[0], dtype), cast(args[1], dtype), dtype)
            case "fmod" | "cdiv" | "tdiv" | "trem":
                return arithmetic(fn, args[0], args[1], dtype)
            case "max" | "min" | "fmax" | "fmin":
                out = args[0]
                for x in args[1:]:
                    out = extremum(fn, out, x, dtype)
                return cast(out, dtype)
            case "isnan" | "isinf" | "isfinite" | "signbit":
                return _question(fn, args[0])
            case "same":
                return _same(args[0], args[1])
            case "order":
                return order_key(args[0])
            case "exponent":
                return _exponent(args[0])
            case "ldexp":
                return _ldexp(cast(args[0], dtype), cast(args[1], DType.I64), dtype)
            case "atan2":
                return _atan2(cast(args[0], dtype), cast(args[1], dtype), dtype)
            case "complex" | "real" | "imag" | "conj":
                return _complex_part(fn, args, dtype)
            case "philox":
                return _philox(args)
            case "uniform":
                return _uniform(args[0], dtype)
    raise KeyError(fn)


def _relative(fn: str, dtype: DType) -> tuple[float, float]:
    """Relative and absolute error of one evaluation of `fn` in `dtype`, the oracle's own included."""
    ulp = FUNCTIONS[fn].ulp
    own = 4 * U64 if ulp > 0.5 else U64
    crossing = special_functions.CROSSING.get(fn, 0.0) * max(dtype.u if dtype is DType.F64 else 0.0, U64)
    if dtype in (DType.F16, DType.BF16):
        # Evaluated in f32 and rounded once.
        return dtype.u + 2 * ulp * DType.F32.u + own, least(dtype) * 2 + crossing
    return 2 * ulp * dtype.u + own, 2 * ulp * least(dtype) + crossing


def _unary(fn: str, x: Ball, dtype: DType) -> Ball:
    relative, absolute_error = _relative(fn, dtype)
    if dtype.is_complex:
        return _complex_function(fn, x, dtype, relative, absolute_error)
    row = _UNARY[fn]
    v = row.value(x.value)
    r: Array | None = None
    if x.r is not None:
        lifted = row.lift(x.value, x.r)
        if row.root:
            # sqrt of a ball that reaches below zero: nan is possible unless a kernel's argument is never negative
            below = (x.value - x.r < 0) & (x.r > 0)
            lifted = np.where(below & (np.False_ if x.nonneg else np.True_), np.inf, lifted)
        lifted = np.where(np.isnan(lifted), np.inf, lifted)
        outside = _outside(row.value, x.value, x.r, v)
        r = np.where((x.r == 0) | outside, 0.0, lifted)
    is_exact: Array | bool = False
    if fn == "sqrt" and (r is None or not np.all(r)):
        # v * v is exact with 24 bits
        is_exact = (v * v == x.value) & is_representable(v, DType.F32) & is_representable(v, dtype)
    v, r = rounded(v, r, is_exact, dtype, relative, absolute_error)
    special = specials(x)
    r = zero_if(None if special is None else special & (v == 0), r)
    if row.poles or fn in ("sqrt", "asin", "acos"):
        special = np.ones(v.shape, np.bool_) if x.r is None else (x.r == 0) | outside
    v, r = settled(v, r, dtype, is_free(x), special)
    typed = None
    if fn == "sqrt" and x.typed is not None:
        typed = round_to(np.sqrt(x.typed), dtype)
    return Ball(v, dtype, unless_zero(r), nonneg=row.nonneg or (fn == "tanh" and x.nonneg), typed=typed)


def _outside(fn: Callable[[Array], Array], x: Array, r: Array, v: Array) -> Array:
    """Where a whole ball lies outside the domain of `fn`, so that nan is certain.

    Each of our functions has, on either side of zero, a domain whose complement there is one interval: nan at both ends
    of a ball that keeps its sign is nan all through.
    """
    here: Array = np.isnan(v) & (r <= np.abs(x) / 2)
    if not here.any():
        return here
    with np.errstate(all="ignore"):
        return np.asarray(here & np.isnan(fn(x - r)) & np.isnan(fn(x + r)))


def _complex_function(fn: str, x: Ball, dtype: DType, relative: float, least: float) -> Ball:
    if fn not in _COMPLEX:
        raise TypeError(f"`{fn}` of complex arguments has no bound yet")
    f = _COMPLEX[fn]
    v = f(x.value)
    r: Array | None = None
    if x.r is not None:
        # |f'| over the disc, by its size at the centre and at four points of the rim
        derivative = _SLOPE[fn]
        steep = np.abs(derivative(x.value))
        for step in (1, -1, 1j, -1j):
            steep = np.maximum(steep, np.abs(derivative(x.value + step * x.r)))
        r = np.where(x.r == 0, 0.0, 2 * steep * x.r)
        r = np.where(np.isnan(r), np.inf, r)
    v, r = rounded(v, r, False, dtype, 4 * relative, 4 * least)
    v, r = settled(v, r, dtype, is_free(x), specials(x))
    return Ball(v, dtype, unless_zero(r))


def power(a: Ball, b: Ball, dtype: DType) -> Ball:
    """a ** b.  Exponents 0, 1 and 2 are exact, a copy, and a product."""
    a, b = cast(a, dtype), cast(b, dtype)
    with np.errstate(all="ignore"):
        if not dtype.is_inexact:
            return _integer_power(a, b, dtype)
        if b.value.size == 1 and b.r is None:
            k = complex(b.value.flat[0])
            if k == 1:
                return a
            if k == 2:
                return square(a, dtype)
        relative, least = _relative("pow", dtype)
        v = np.power(a.value, b.value)
        r: Array | None = None
        doubtful: Array | None = None
        if a.r is not None or b.r is not None:
            ra = np.zeros(()) if a.r is None else a.r
            rb = np.zeros(()) if b.r is None else b.r
            size = np.abs(a.value)
            log_spread = np.where(ra > 0, -np.log1p(-ra / size), 0.0)
            turn = np.abs(b.value) * log_spread + np.where(
                rb > 0, rb * (np.abs(np.log(size)) + log_spread), 0.0
            )
            r = np.abs(v) * np.expm1(turn)
            # a base whose ball holds zero
            through = (ra > 0) & (size <= ra)
            integer = (rb == 0) & (b.value == np.rint(b.value.real))
            tame = through & (rb == 0) & (b.value.real > 0) & (integer | np.bool_(a.nonneg))
            r = np.where(through, np.where(tame, np.abs(v) + (size + ra) ** np.abs(b.value), np.inf), r)
            # a negative base with an exponent that is not surely whole
            r = np.where((a.value.real < 0) & ~integer & ((ra > 0) | (rb > 0)) & ~tame, np.inf, r)
            r = np.where((ra == 0) & (rb == 0), 0.0, np.where(np.isnan(r), np.inf, r))
            doubtful = np.isinf(r)
        is_exact = (b.value == 0) | (a.value == 1)
        if b.r is not None:
            is_exact = is_exact & (b.r == 0)
        if a.r is not None:
            is_exact = is_exact & (a.r == 0)
        v, r = rounded(v, r, is_exact, dtype, relative, least)
        special = specials(a, b)
        zero = (a.value == 0) | (a.value.real < 0)
        special = zero if special is None else special | zero
        r = zero_if(special & (v == 0), r)
        v, r = settled(v, r, dtype, is_free(a, b), special, doubtful)
        return Ball(v, dtype, unless_zero(r), nonneg=a.nonneg)


def _integer_power(a: Ball, b: Ball, dtype: DType) -> Ball:
    base, exponent = np.broadcast_arrays(a.value, b.value)
    negative = exponent < 0
    v = np.power(base, np.where(negative, 0, exponent).astype(exponent.dtype))
    # 1 / a ** |b| cut to an integer, as PyTorch gives it; (-1) ** b alternates; 0 has no inverse
    unit = np.where(base == 1, 1, np.where(base == -1, np.where(exponent % 2 == 0, 1, -1), 0))
    v = np.where(negative, unit.astype(v.dtype), v)
    r: Array | None = None
    if a.r is not None or b.r is not None or np.any(negative & (base == 0)):
        unsure = (a.radius > 0) | (b.radius > 0) | (negative & (base == 0))
        r = np.where(unsure, np.inf, 0.0)
    return Ball(v.astype(STORAGE[dtype]), dtype, r)


def _sign(x: Ball) -> Ball:
    if x.dtype.is_complex:
        raise TypeError("sign of a complex value has no bound yet")
    if not x.dtype.is_inexact and not x.dtype.is_integer:
        return x  # of a bool: itself
    v = np.asarray((x.value > 0).astype(x.value.dtype) - (x.value < 0).astype(x.value.dtype))  # of nan: 0
    unsure = uncertain_sign(x)
    if unsure is None or not unsure.any():
        return Ball(v, x.dtype, nonneg=x.nonneg)
    return Ball(np.where(unsure, 0, v).astype(v.dtype), x.dtype, unsure.astype(np.float64), nonneg=x.nonneg)


def _gcd(a: Ball, b: Ball, dtype: DType) -> Ball:
    v = np.gcd(a.value, b.value).astype(STORAGE[dtype])
    unsure = (a.radius > 0) | (b.radius > 0)
    return Ball(v, dtype, np.where(unsure, np.inf, 0.0) if np.any(unsure) else None)


_QUESTIONS: dict[str, Callable[[Array], Array]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": lambda y: np.signbit(y.real),
}


def _question(fn: str, x: Ball) -> Ball:
    if not x.dtype.is_inexact:
        v = x.value < 0 if fn == "signbit" else np.full(x.value.shape, fn == "isfinite")
        return Ball(np.asarray(v), DType.BOOL)
    v = _QUESTIONS[fn](x.value)
    if x.r is None:
        return Ball(v, DType.BOOL)
    unsure = np.isinf(x.r)
    if fn == "signbit":
        unsure = unsure | ((x.r > 0) & (np.abs(x.value) <= x.r))
    return Ball(v, DType.BOOL, unsure.astype(np.float64) if unsure.any() else None)


def _same(a: Ball, b: Ball) -> Ball:
    equal = compare("==", a, b)
    both = np.isnan(a.value) & np.isnan(b.value) if a.dtype.is_inexact and b.dtype.is_inexact else np.False_
    return Ball(equal.value | both, DType.BOOL, equal.r)


def order_key(x: Ball) -> Ball:
    """i64 keys of a total order: integers as they are, floats by their bits, -0 as +0, nan above inf."""
    if not x.dtype.is_inexact:
        return cast(x, DType.I64)
    if x.dtype.is_complex:
        raise TypeError("complex values have no order")

    def key(v: Array) -> Array:
        bits = np.where(v == 0, 0.0, v).view(np.int64)
        folded = np.where(bits >= 0, bits, np.int64(np.iinfo(np.int64).min) - bits)
        return np.where(np.isnan(v), np.iinfo(np.int64).max, folded)

    middle = key(np.ascontiguousarray(x.value).reshape(x.value.shape))
    if x.r is None:
        return Ball(middle, DType.I64)
    low, high = (key(np.asarray(x.value + s * x.radius)).astype(np.float64) for s in (-1, 1))
    r = np.maximum(high - middle, middle - low)
    return Ball(middle, DType.I64, np.where(np.isinf(x.r), np.inf, np.where(x.r == 0, 0.0, r)))


def _exponent(x: Ball) -> Ball:
    """floor(log2(|x|)), of zero, inf and nan 0: in the type as written where that is known, else over the radius."""

    def of(v: Array) -> Array:
        power = np.frexp(v)[1].astype(np.int64) - 1
        return np.where(np.isfinite(v) & (v != 0), power, 0)

    if x.typed is not None:
        return Ball(of(x.typed), DType.I64)
    v = of(x.value)
    if x.r is None:
        return Ball(v, DType.I64)
    size = np.abs(x.value)
    off = np.maximum(of(size + x.r) - v, v - of(size - x.r)).astype(np.float64)
    open_ = (x.r > 0) & ((size <= x.r) | ~np.isfinite(size + x.r))
    return Ball(v, DType.I64, unless_zero(np.where(x.r == 0, 0.0, np.where(open_, np.inf, off))))


def _ldexp(x: Ball, power: Ball, dtype: DType) -> Ball:
    """x times a power of two: exact where the result is representable."""
    k = np.clip(power.value, -(2**31) + 1, 2**31 - 1).astype(np.int32)
    v = np.ldexp(x.value, k)
    r = None if x.r is None else np.ldexp(np.broadcast_to(x.r, v.shape), k)
    v, r = rounded(v, r, is_representable(v, dtype) & (np.ldexp(v, -k) == x.value), dtype)
    doubtful = None if power.r is None else np.broadcast_to(power.r > 0, v.shape)
    v, r = settled(v, r, dtype, is_free(x), specials(x), doubtful)
    typed = None if x.typed is None or power.r is not None else round_to(np.ldexp(x.typed, k), dtype)
    return Ball(v, dtype, unless_zero(r), signed=True, nonneg=x.nonneg, typed=typed)


def _atan2(y: Ball, x: Ball, dtype: DType) -> Ball:
    v = np.arctan2(y.value, x.value)
    r: Array | None = None
    if y.r is not None or x.r is not None:
        ry, rx = y.radius, x.radius
        reach = np.hypot(ry, rx)
        away = np.hypot(y.value, x.value) - reach
        r = np.where(away > 0, reach / away, np.inf)
        cut = (x.value - rx <= 0) & (np.abs(y.value) <= ry) & (ry > 0)
        r = np.where((ry == 0) & (rx == 0), 0.0, np.where(cut | np.isnan(r), np.inf, r))
    relative, least = _relative("atan2", dtype)
    v, r = rounded(v, r, False, dtype, relative, least)
    v, r = settled(v, r, dtype, is_free(y, x), specials(y, x))
    return Ball(v, dtype, unless_zero(r))


def _complex_part(fn: str, args: Sequence[Ball], dtype: DType) -> Ball:
    x = args[0]
    if fn == "complex":
        part = DType.F32 if dtype is DType.C64 else DType.F64
        re, im = cast(x, part), cast(args[1], part)
        value = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex128)
        value.real, value.imag = re.value, im.value
        r = None if re.r is None and im.r is None else np.hypot(re.radius, im.radius)
        return Ball(value, dtype, r, signed=True)
    if not x.dtype.is_complex:
        return Ball(np.zeros_like(x.value), x.dtype, signed=True) if fn == "imag" else x
    if fn == "conj":
        return Ball(np.conj(x.value), x.dtype, x.r, signed=True)
    part = DType.F32 if x.dtype is DType.C64 else DType.F64
    return cast(Ball(x.value.real if fn == "real" else x.value.imag, part, x.r, signed=True), dtype)


def _philox(args: Sequence[Ball]) -> Ball:
    seed, offset, lane = (cast(a, DType.I64).value for a in args)
    seed, offset, lane = np.broadcast_arrays(seed, offset, lane)
    words = np.stack(philox4x32(seed, offset))
    return Ball(np.take_along_axis(words, (lane & 3)[None], 0)[0], DType.I64, nonneg=True)


def _uniform(word: Ball, dtype: DType) -> Ball:
    unit = Ball((cast(word, DType.I64).value >> 8).astype(np.float64) * 2.0**-24, DType.F32, nonneg=True)
    return cast(unit, dtype)
