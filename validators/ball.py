"""Ball arithmetic: a value and a radius that any correct kernel's result stays within.

A `Ball` is a whole array.  `r is None` means that every element is exact; a radius of inf means that the element is
*free*: an intermediate may have overflowed, or a decision hung on rounding, and every result is accepted (nan only
where the value is nan, that is where more arithmetic followed the overflow).  Integers and bools are exact; where a
float decided them within its radius they carry one too (1 marks an ambiguous bool).

Invariant: an element of radius 0 is exactly a value of its dtype.  So an operation on exact operands whose result is
representable adds no error: sums and products of the value class `exact` keep radius 0.

The radius holds the kernel's error and the oracle's own (`U64` an operation), so `|got - want| <= r` is the rule.

May import: numpy, values, generator.types.  To add an operation: value in float64, radius through the derivative, then
`rounded` (what rounding adds) and `settled` (overflow, inf and nan).  Functions of the language: ball_functions.py;
reductions: ball_reduce.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import numpy as np

from ..generator.types import DType, promote
from .values import (
    ARRAY,
    STORAGE,
    U64,
    Array,
    from_array,
    is_representable,
    least,
    product_is_exact,
    round_to,
    sum_error,
    to_integer,
)

__all__ = [
    "Ball",
    "CheckResult",
    "absolute",
    "add",
    "are_floats",
    "arithmetic",
    "as_floats",
    "cast",
    "check",
    "compare",
    "constant",
    "divide",
    "exact",
    "extremum",
    "logical",
    "multiply",
    "negate",
    "select",
    "square",
    "subtract",
]


#: Whether balls are made without radius (`as_floats`).
_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def as_floats() -> Iterator[None]:
    """Within, a ball is what float arithmetic gives, an overflow included, and nothing is said of its error: whether a
    formula comes to a number where an intermediate is infinite."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def are_floats() -> bool:
    """Whether we are inside `as_floats`."""
    return _PLAIN.get()


@dataclass(eq=False, slots=True)
class Ball:
    """A value (float64, complex128, or integers and bools of their own width) and a radius.

    r        radius, broadcastable to value; None: all exact
    signed   a zero's sign is part of the meaning (copies, selections, negation; not arithmetic)
    nonneg   what a kernel computes here is never negative, whatever the radius says (squares, exp, sums of those)
    typed    the value as rounded in its dtype at each step as written; kept only where index arithmetic needs it
    choices  of argmax/argmin: accepted indices, one more axis at the end
    """

    value: Array
    dtype: DType
    r: Array | None = None
    signed: bool = False
    nonneg: bool = False
    typed: Array | None = None
    choices: Array | None = None

    def __post_init__(self) -> None:
        if _PLAIN.get():
            self.r = None

    @property
    def radius(self) -> Array:
        """The radius as an array of the value's shape."""
        if self.r is None:
            return np.zeros(self.value.shape)
        return np.broadcast_to(self.r, self.value.shape)

    @property
    def free(self) -> Array:
        """Where every result is accepted."""
        return np.isinf(self.radius)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def map(self, fn: Callable[[Array], Array]) -> Ball:
        """The same elements in another arrangement (transpose, reshape, take …)."""
        r = None if self.r is None else fn(np.broadcast_to(self.r, self.value.shape))
        typed = None if self.typed is None else fn(np.broadcast_to(self.typed, self.value.shape))
        return replace(self, value=fn(self.value), r=r, typed=typed, choices=None)


def exact(array: Array, dtype: DType, *, track: bool = False) -> Ball:
    """An input: every element exact."""
    value = from_array(np.asarray(array), dtype)
    return Ball(value, dtype, signed=True, typed=value if track and dtype.is_float else None)


def constant(number: complex, dtype: DType, ndim: int = 0, *, track: bool = False) -> Ball:
    """A literal or an attribute in `dtype`: exact when `dtype` has it, else off by one rounding."""
    shape = (1,) * ndim
    if not dtype.is_inexact:
        if isinstance(number, complex):
            number = number.real
        raw = np.array(number) if abs(number) < 2**63 else np.array(float(number))
        return Ball(to_integer(raw, dtype).reshape(shape), dtype, signed=True, nonneg=bool(number >= 0))
    value = np.full(shape, number, STORAGE[dtype])
    nonneg = not dtype.is_complex and bool(value.real.flat[0] >= 0)
    v, r = rounded(value, None, is_representable(value, dtype), dtype, given=True)
    v, r = settled(v, r, dtype, None, ~np.isfinite(value))
    typed = round_to(value, dtype) if track and dtype.is_float else None
    return Ball(v, dtype, r, signed=True, nonneg=nonneg, typed=typed)


# ------------------------------------------------------------------------------------------------- rounding


def is_free(*balls: Ball) -> Array | None:
    """Where any operand is free; None when none is anywhere."""
    out: Array | None = None
    for b in balls:
        if b.r is not None:
            f = np.isinf(b.r)
            if f.any():
                out = f if out is None else out | f
    return out


def added(*radii: Array | None) -> Array | None:
    """Sum of radii, None standing for zero."""
    out: Array | None = None
    for r in radii:
        if r is not None:
            out = r if out is None else out + r
    return out


#: Whether an operation whose result is representable still counts as one that rounds (`every_rounding_counts`).
_ROUNDS: ContextVar[bool] = ContextVar("rounds", default=False)


@contextmanager
def every_rounding_counts() -> Iterator[None]:
    """The radius of *any* evaluation order, where this one's happens to be exact: `p*(q*x)` may be exact and `(p*q)*x`
    not.  The gate of meaning compares with a program whose order it does not know; a kernel's order is the spec's."""
    token = _ROUNDS.set(True)
    try:
        yield
    finally:
        _ROUNDS.reset(token)


def counts_every_rounding() -> bool:
    """Whether we are inside `every_rounding_counts`."""
    return _ROUNDS.get()


def rounded(
    v: Array,
    r: Array | None,
    is_exact: Array | bool,
    dtype: DType,
    relative: float | None = None,
    absolute_error: float | Array | None = None,
    given: bool = False,
) -> tuple[Array, Array | None]:
    """The radius after one rounding to `dtype`: + u(|v| + r) + eta, except where the operation was exact.

    given: a constant or a conversion, which no order of evaluation changes: a comparison with 0 is not in doubt.
    """
    u = dtype.u + U64 if relative is None else relative
    eta = least(dtype) if absolute_error is None else absolute_error
    if _ROUNDS.get() and not given:
        is_exact = False
    if r is None:
        if np.all(is_exact):
            return v, None
        return v, np.where(is_exact, 0.0, u * np.abs(v) + eta)
    grown = r + (u * (np.abs(v) + r) + eta)
    return v, np.where(is_exact & (r == 0), 0.0, grown) if np.any(is_exact) else grown


def settled(
    v: Array,
    r: Array | None,
    dtype: DType,
    free: Array | None,
    special: Array | None,
    doubtful: Array | None = None,
) -> tuple[Array, Array | None]:
    """Overflow, inf and nan.

    free      an operand was free: the result is too, nan included
    special   an exact inf, nan or pole made this element: a non-finite value is exact
    doubtful  the operands' radii leave a non-finite result open (inf * (0 +- r)): free, nan included
    Everything else that is not finite, or may exceed the largest value, overflowed: free.
    """
    size = np.abs(v) if r is None else np.abs(v) + r
    bad = ~(size <= float(dtype.max))
    if free is None and doubtful is None and not bad.any():
        return v, r
    radius = np.zeros(v.shape) if r is None else np.array(np.broadcast_to(r, v.shape))
    exact_here = np.zeros(v.shape, np.bool_) if special is None else special & ~np.isfinite(v)
    radius = np.where(bad, np.where(exact_here, 0.0, np.inf), radius)
    for wild in (free, doubtful):
        if wild is not None:
            radius = np.where(wild, np.inf, radius)
            v = np.where(wild, np.nan, v)
    return v, radius


def specials(*balls: Ball) -> Array | None:
    """Where an operand is exactly inf or nan."""
    out: Array | None = None
    for b in balls:
        s = ~np.isfinite(b.value)
        if s.any():
            if b.r is not None:
                s = s & (b.r == 0)
            out = s if out is None else out | s
    return out


def uncertain_sign(b: Ball) -> Array | None:
    """Where zero lies within the radius of an inexact element."""
    if b.r is None:
        return None
    return (b.r > 0) & ~(np.abs(b.value) > b.r)


def zero_if(mask: Array | None, r: Array | None) -> Array | None:
    return r if mask is None or r is None else np.where(mask, 0.0, r)


# ------------------------------------------------------------------------------------------------- casts

_WIDER: dict[DType, frozenset[DType]] = {
    DType.F16: frozenset({DType.F32, DType.F64, DType.C64, DType.C128}),
    DType.BF16: frozenset({DType.F32, DType.F64, DType.C64, DType.C128}),
    DType.F32: frozenset({DType.F64, DType.C64, DType.C128}),
    DType.F64: frozenset({DType.C128}),
    DType.C64: frozenset({DType.C128}),
    DType.C128: frozenset(),
}


def cast(b: Ball, dtype: DType) -> Ball:
    """Conversion to `dtype`, which rounds once; widening is exact."""
    if b.dtype is dtype:
        return b
    with np.errstate(all="ignore"):
        if dtype is DType.BOOL:
            unsure = uncertain_sign(b)
            r = None if unsure is None or not unsure.any() else unsure.astype(np.float64)
            return Ball(b.value != 0, dtype, r)
        if not b.dtype.is_inexact:
            return _from_integer(b, dtype)
        if not dtype.is_inexact:
            return _float_to_integer(b, dtype)
        if b.dtype.is_complex and not dtype.is_complex:
            part = Ball(b.value.real, DType.F32 if b.dtype is DType.C64 else DType.F64, b.r)
            return cast(part, dtype)
        if dtype in _WIDER[b.dtype]:
            return replace(
                b,
                value=b.value.astype(STORAGE[dtype]),
                dtype=dtype,
                choices=None,
                typed=b.typed if dtype.is_float else None,
            )
        return _narrowed(b, dtype)


def _from_integer(b: Ball, dtype: DType) -> Ball:
    if not dtype.is_inexact:
        return replace(b, value=to_integer(b.value, dtype), dtype=dtype, typed=None)
    v = b.value.astype(STORAGE[dtype])
    is_exact = is_representable(v, dtype)
    if b.dtype is DType.I64:
        inside = np.abs(v) < 2.0**62
        back = np.where(inside, v.real, 0.0).astype(np.int64)
        is_exact = is_exact & ((inside & (back == b.value)) | (b.value == np.iinfo(np.int64).min))
    r = b.r
    if b.dtype is DType.BOOL and r is not None:
        v = np.where(r > 0, 0.5, v)
        r = np.where(r > 0, 0.5, 0.0)
    v, r = rounded(v, r, is_exact, dtype, given=True)
    v, r = settled(v, r, dtype, is_free(b), None)
    typed = round_to(b.value.astype(np.float64), dtype) if dtype.is_float and b.r is None else None
    return Ball(v, dtype, r, signed=True, nonneg=b.nonneg, typed=typed)


def _float_to_integer(b: Ball, dtype: DType) -> Ball:
    if b.typed is not None:
        return Ball(to_integer(b.typed, dtype), dtype, nonneg=b.nonneg)
    v = b.value.real
    if b.r is None:
        return Ball(to_integer(v, dtype), dtype, nonneg=b.nonneg)
    low, high = np.trunc(v - b.r), np.trunc(v + b.r)
    middle = np.trunc(v)
    r = np.maximum(high - middle, middle - low)
    outside = (b.r > 0) & ~((low >= float(dtype.min)) & (high <= float(dtype.max)))
    return Ball(
        to_integer(v, dtype), dtype, np.where(b.r == 0, 0.0, np.where(outside, np.inf, r)), nonneg=b.nonneg
    )


#: Casts of which the language says how they round: to nearest, ties to even, and once.
_ONE_ROUNDING = {
    DType.F32: (DType.F64,),
    DType.BF16: (DType.F32, DType.F16),
    DType.F16: (DType.F32, DType.BF16),
}


def _narrowed(b: Ball, dtype: DType) -> Ball:
    value = b.value.astype(STORAGE[dtype])
    known: Array | bool = is_representable(b.value, dtype)
    if b.dtype in _ONE_ROUNDING.get(dtype, ()) and not _ROUNDS.get():
        # what is exact is rounded to one number, and not to either of two that are near
        known = np.ones(value.shape, np.bool_) if b.r is None else b.r == 0
        value = np.where(known, round_to(value, dtype), value)
    v, r = rounded(value, b.r, known, dtype)
    size = np.abs(b.value)
    spread = np.float64(0) if b.r is None else b.r
    # Halfway between the largest value and the next power of two: from there on rounding gives inf.
    limit = float(dtype.max) + 2.0 ** (np.frexp(float(dtype.max))[1] - 1) * dtype.u
    if (size + spread >= limit).any():
        radius = np.zeros(v.shape) if r is None else np.array(np.broadcast_to(r, v.shape))
        surely = np.isfinite(b.value) & (size - spread >= limit)
        maybe = np.isfinite(b.value) & ~surely & (size + spread >= limit)
        v = np.where(surely, np.copysign(np.inf, v.real), v)
        r = np.where(surely, 0.0, np.where(maybe, np.inf, radius))
    special = ~np.isfinite(b.value)
    if special.any() and r is not None:
        r = np.where(special, b.radius, r)
    typed = None if b.typed is None else round_to(b.typed, dtype)
    return Ball(v, dtype, r, signed=b.signed, nonneg=b.nonneg, typed=typed)


# ------------------------------------------------------------------------------------------------- arithmetic


def _typed(fn: Callable[[Array, Array], Array], a: Ball, b: Ball, dtype: DType) -> Array | None:
    if a.typed is None or b.typed is None or not dtype.is_float:
        return None
    return round_to(fn(a.typed, b.typed), dtype)


def unless_zero(r: Array | None) -> Array | None:
    return None if r is None or not np.any(r) else r


def add(a: Ball, b: Ball, dtype: DType) -> Ball:
    """a + b in `dtype`."""
    return _sum(cast(a, dtype), cast(b, dtype), dtype, 1)


def subtract(a: Ball, b: Ball, dtype: DType) -> Ball:
    """a - b in `dtype`."""
    return _sum(cast(a, dtype), cast(b, dtype), dtype, -1)


def _sum(a: Ball, b: Ball, dtype: DType, sign: int) -> Ball:
    with np.errstate(all="ignore"):
        if not dtype.is_inexact:
            if sign < 0 and dtype is DType.BOOL:
                raise TypeError("bool - bool is not defined")
            v = a.value + b.value if sign > 0 else a.value - b.value
            return Ball(v, dtype, added(a.r, b.r), nonneg=sign > 0 and a.nonneg and b.nonneg)
        bv = b.value if sign > 0 else -b.value
        v = a.value + bv
        r = added(a.r, b.r)
        is_exact: Array | bool = False
        if r is None or not np.all(r):
            # (v == a) & (b == 0) is seen by sum_error too; inf and nan are settled below
            is_exact = (sum_error(a.value, bv, v) == 0) & is_representable(v, dtype)
        v, r = rounded(v, r, is_exact, dtype)
        v, r = settled(v, r, dtype, is_free(a, b), specials(a, b))
        typed = _typed(np.add if sign > 0 else np.subtract, a, b, dtype)
        return Ball(v, dtype, unless_zero(r), nonneg=sign > 0 and a.nonneg and b.nonneg, typed=typed)


def multiply(a: Ball, b: Ball, dtype: DType) -> Ball:
    """a * b in `dtype`."""
    return _product(cast(a, dtype), cast(b, dtype), dtype, a.nonneg and b.nonneg)


def square(a: Ball, dtype: DType) -> Ball:
    """a * a: like the product, and never negative."""
    a = cast(a, dtype)
    return _product(a, a, dtype, not dtype.is_complex and dtype.is_inexact)


def _product(a: Ball, b: Ball, dtype: DType, nonneg: bool) -> Ball:
    with np.errstate(all="ignore"):
        v = a.value * b.value
        cross = None
        if a.r is not None or b.r is not None:
            cross = product_radius(a, b)
        if not dtype.is_inexact:
            return Ball(v, dtype, cross, nonneg=nonneg)
        is_exact: Array | bool = False
        if cross is None or not np.all(cross):
            is_exact = exact_product(a.value, b.value, v, dtype)
        u = dtype.u + U64
        # Four products and two sums, with or without fma (Jeannerod et al.: sqrt(5) u for the plain formula).
        v, r = rounded(v, cross, is_exact, dtype, relative=3 * u if dtype.is_complex else None)
        special = specials(a, b)
        doubtful: Array | None = None
        if special is not None:
            for x, y in ((a, b), (b, a)):
                unsure = uncertain_sign(y)
                if unsure is not None:
                    d = np.isinf(x.value) & unsure
                    doubtful = d if doubtful is None else doubtful | d
        v, r = settled(v, r, dtype, is_free(a, b), special, doubtful)
        return Ball(v, dtype, unless_zero(r), nonneg=nonneg, typed=_typed(np.multiply, a, b, dtype))


def product_radius(a: Ball, b: Ball) -> Array:
    """|a| rb + |b| ra + ra rb, zero where an exact zero meets anything."""
    ra, rb = a.r, b.r
    out: Array = np.zeros(())
    if rb is not None:
        out = out + np.where(rb == 0, 0.0, np.abs(a.value) * rb)
    if ra is not None:
        out = out + np.where(ra == 0, 0.0, (np.abs(b.value) if rb is None else np.abs(b.value) + rb) * ra)
    return np.where(np.isnan(out), np.inf, out)


def exact_product(a: Array, b: Array, p: Array, dtype: DType) -> Array:
    """Where a * b has no rounding error in `dtype`, and float64 has none either."""
    if dtype.is_complex:
        # Enough for integers: all partial results are integers below 2**p.
        limit = 2.0 ** (24 if dtype is DType.C64 else 53)
        whole = [(np.rint(x.real) == x.real) & (np.rint(x.imag) == x.imag) for x in (a, b)]
        return np.asarray(whole[0] & whole[1] & (np.abs(a) * np.abs(b) * 2 <= limit))
    if dtype is DType.F64:
        return product_is_exact(a, b, p)
    return is_representable(p, dtype)  # 24 + 24 bits fit in 53


def divide(a: Ball, b: Ball, dtype: DType) -> Ball:
    """True division in an inexact `dtype`."""
    a, b = cast(a, dtype), cast(b, dtype)
    with np.errstate(all="ignore"):
        v = a.value / b.value
        u = dtype.u + U64
        r: Array | None = None
        doubtful: Array | None = None
        if a.r is not None or b.r is not None:
            rb = np.zeros(()) if b.r is None else b.r
            ra = np.zeros(()) if a.r is None else a.r
            away = np.abs(b.value) - rb
            r = np.where((ra == 0) & (rb == 0), 0.0, (ra + np.where(rb == 0, 0.0, np.abs(v) * rb)) / away)
            pole = (away <= 0) & (rb > 0)  # the divisor may be zero
            open_sign = (b.value == 0) & (rb == 0) & (ra > 0) & (np.abs(a.value) <= ra)  # (0 +- r) / 0
            open_sign |= np.isinf(a.value) & (rb > 0) & pole
            doubtful = pole | open_sign
            r = np.where(np.isnan(r) | (r < 0), np.inf, r)
        is_exact: Array | bool = False
        if r is None or not np.all(r):
            back = v * b.value
            is_exact = (back == a.value) & is_representable(v, dtype)
            if dtype is DType.F64:
                is_exact = is_exact & product_is_exact(v, b.value, back)
            elif dtype.is_complex:
                is_exact = (b.value.imag == 0) & (a.value == 0) & (b.value != 0)
        v, r = rounded(v, r, is_exact, dtype, relative=8 * u if dtype.is_complex else None)
        special = specials(a, b)
        zero = b.value == 0
        if zero.any():
            zero = zero if b.r is None else zero & (b.r == 0)
            special = zero if special is None else special | zero
        r = zero_if(None if special is None else special & (v == 0), r)
        v, r = settled(v, r, dtype, is_free(a, b), special, doubtful)
        return Ball(
            v, dtype, unless_zero(r), nonneg=a.nonneg and b.nonneg, typed=_typed(np.divide, a, b, dtype)
        )


def negate(b: Ball) -> Ball:
    """-b, exact."""
    with np.errstate(all="ignore"):
        return Ball(-b.value, b.dtype, b.r, signed=b.signed, typed=None if b.typed is None else -b.typed)


def absolute(b: Ball) -> Ball:
    """|b|, exact for reals; of complex values in their real type."""
    with np.errstate(all="ignore"):
        if b.dtype.is_complex:
            real = DType.F32 if b.dtype is DType.C64 else DType.F64
            v, r = rounded(np.abs(b.value), b.r, b.value == 0, real, relative=4 * (real.u + U64))
            v, r = settled(v, r, real, is_free(b), specials(b))
            return Ball(v, real, unless_zero(r), nonneg=True)
        return Ball(
            np.abs(b.value),
            b.dtype,
            b.r,
            signed=b.signed,
            nonneg=b.dtype.is_float,
            typed=None if b.typed is None else np.abs(b.typed),
        )


# -- division and bits


def _integer(
    fn: Callable[[Array, Array], Array], a: Ball, b: Ball, dtype: DType, *, divisor: bool = False
) -> Ball:
    with np.errstate(all="ignore"):
        v = np.asarray(fn(a.value, b.value))
    r = None
    if a.r is not None or b.r is not None:
        r = np.where(added(a.r, b.r) > 0, np.inf, 0.0)  # type: ignore[operator]
    if divisor and (zero := b.value == 0).any():
        # Division by an integer zero has no defined result; it only must not crash.
        r = np.where(zero, np.inf, 0.0 if r is None else r)
    return Ball(v.astype(STORAGE[dtype]), dtype, r, nonneg=a.nonneg and b.nonneg)


def _hull(low: Array, middle: Array, high: Array) -> Array:
    r = np.maximum(high - middle, middle - low)
    return np.where(np.isnan(r), np.inf, r)


def _floor_divide(a: Ball, b: Ball, dtype: DType) -> Ball:
    if not dtype.is_inexact:
        return _integer(np.floor_divide, a, b, dtype, divisor=True)
    q = divide(a, b, dtype)
    with np.errstate(all="ignore"):
        v = np.floor_divide(a.value, b.value)
        if a.typed is not None and b.typed is not None:
            typed = round_to(np.floor_divide(a.typed, b.typed), dtype)
            return Ball(typed, dtype, signed=True, typed=typed)
        v, r = rounded(v, None, is_representable(v, dtype), dtype)
        if a.r is not None or b.r is not None:
            unsure = np.broadcast_to(added(a.r, b.r), v.shape) > 0  # type: ignore[arg-type]
            wide = q.radius
            hull = _hull(np.floor(q.value - wide), np.floor(q.value), np.floor(q.value + wide))
            v = np.where(unsure, np.floor(q.value), v)
            r = np.where(unsure, hull + (0.0 if r is None else r), 0.0 if r is None else r)
        v, r = settled(v, r, dtype, is_free(a, b), (~np.isfinite(v)) & (q.radius == 0))
        return Ball(v, dtype, unless_zero(r))


def _remainder(
    fn: Callable[[Array, Array], Array], cut: Callable[[Array], Array], a: Ball, b: Ball, dtype: DType
) -> Ball:
    """a - b * cut(a / b): % (cut = floor) and fmod/trem (cut = trunc)."""
    if not dtype.is_inexact:
        return _integer(fn, a, b, dtype, divisor=True)
    with np.errstate(all="ignore"):
        v = fn(a.value, b.value)
        v, r = rounded(v, None, is_representable(v, dtype), dtype)
        if a.r is not None or b.r is not None:
            q = divide(a, b, dtype)
            wide = q.radius
            low, high = cut(q.value - wide), cut(q.value + wide)
            unsure = np.broadcast_to(added(a.r, b.r), v.shape) > 0  # type: ignore[arg-type]
            ra, rb = a.radius, b.radius
            inside = (
                ra + np.maximum(np.abs(low), np.abs(high)) * rb + np.where(low == high, 0.0, np.abs(b.value))
            )
            inside = np.where(np.isnan(inside), np.inf, inside)
            r = np.where(unsure, inside + dtype.u * np.abs(v) + least(dtype), 0.0 if r is None else r)
        sure = np.isfinite(a.value) & np.isfinite(b.value) & (b.value != 0)
        v, r = settled(v, r, dtype, is_free(a, b), ~sure)
        return Ball(v, dtype, unless_zero(r), typed=_typed(fn, a, b, dtype))


def _truncate_divide(a: Ball, b: Ball, dtype: DType) -> Ball:
    if not dtype.is_inexact:

        def whole(x: Array, y: Array) -> Array:
            q = np.floor_divide(x, y)
            return np.where((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)), q + np.asarray(1, q.dtype), q)

        return _integer(whole, a, b, dtype, divisor=True)
    return cut_to_integer(
        divide(replace(a, typed=a.value), replace(b, typed=b.value), dtype)
        if a.r is None and b.r is None
        else divide(a, b, dtype),
        np.trunc,
    )


def cut_to_integer(b: Ball, cut: Callable[[Array], Array]) -> Ball:
    """floor, ceil, trunc or round: in the type as written where that is known, else the hull over the radius."""
    with np.errstate(all="ignore"):
        if b.typed is not None:
            v = cut(b.typed)
            return Ball(v, b.dtype, signed=True, nonneg=b.nonneg, typed=v)
        v = cut(b.value)
        if b.r is None:
            return Ball(v, b.dtype, signed=b.signed, nonneg=b.nonneg)
        r = np.where(b.r == 0, 0.0, _hull(cut(b.value - b.r), v, cut(b.value + b.r)))
        r = np.where(np.isinf(b.r), np.inf, r)
        return Ball(v, b.dtype, unless_zero(r), nonneg=b.nonneg)


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def fn(x: Array, n: Array) -> Array:
        width = x.dtype.itemsize * 8
        outside = (n < 0) | (n >= width)
        by = np.where(outside, 0 if left else width - 1, n).astype(x.dtype)
        return np.where(outside, 0, np.left_shift(x, by)) if left else np.right_shift(x, by)

    return fn


def _ceil_divide(a: Array, b: Array) -> Array:
    return -np.floor_divide(-a, b)


_BITS: dict[str, Callable[[Array, Array], Array]] = {
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": _shift(True),
    ">>": _shift(False),
    "cdiv": _ceil_divide,
}


def arithmetic(op: str, a: Ball, b: Ball, dtype: DType) -> Ball:
    """`a op b` in `dtype` for the language's binary operators but `**`, and for cdiv, tdiv, trem, fmod."""
    match op:
        case "+":
            return add(a, b, dtype)
        case "-":
            return subtract(a, b, dtype)
        case "*":
            return multiply(a, b, dtype)
        case "/":
            return divide(a, b, dtype)
    a, b = cast(a, dtype), cast(b, dtype)
    match op:
        case "//":
            return _floor_divide(a, b, dtype)
        case "%":
            return _remainder(np.remainder, np.floor, a, b, dtype)
        case "trem" | "fmod":
            return _remainder(np.fmod, np.trunc, a, b, dtype)
        case "tdiv":
            return _truncate_divide(a, b, dtype)
    if dtype.is_inexact:
        raise TypeError(f"`{op}` is not defined on {dtype}")
    return _integer(_BITS[op], a, b, dtype, divisor=op == "cdiv")


# ------------------------------------------------------------------------------------------------- decisions

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _ambiguous(mask: Array | None) -> Array | None:
    return None if mask is None or not mask.any() else mask.astype(np.float64)


def compare(op: str, a: Ball, b: Ball) -> Ball:
    """A comparison; ambiguous where the two balls meet.  Mixed int and float operands compare as floats."""
    with np.errstate(all="ignore"):
        if a.dtype.is_inexact != b.dtype.is_inexact:
            common = promote(a.dtype, b.dtype)
            a, b = cast(a, common), cast(b, common)
        v = np.asarray(_COMPARE[op](a.value, b.value))
        r = added(a.r, b.r)
        if r is None:
            return Ball(v, DType.BOOL)
        meet = (r > 0) & ~(_distance(a.value, b.value) > r)
        for x in (a, b):
            if x.dtype.is_inexact:
                surely_nan = np.isnan(x.value) & (np.zeros(()) == (0.0 if x.r is None else x.r))
                meet = meet & ~surely_nan
        return Ball(v, DType.BOOL, _ambiguous(meet | np.isinf(r)))


def _distance(a: Array, b: Array) -> Array:
    if a.dtype.kind in "bui":
        return np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(a == b, 0.0, np.abs(a - b))


def logical(op: str, a: Ball, b: Ball) -> Ball:
    """`and` or `or` of bools."""
    v = a.value & b.value if op == "and" else a.value | b.value
    if a.r is None and b.r is None:
        return Ball(v, DType.BOOL)
    absorbing = op == "or"
    unsure = (a.radius > 0) | (b.radius > 0)
    decided = ((a.value == absorbing) & (a.radius == 0)) | ((b.value == absorbing) & (b.radius == 0))
    return Ball(v, DType.BOOL, _ambiguous(unsure & ~decided))


def select(test: Ball, then: Ball, other: Ball, dtype: DType) -> Ball:
    """`then if test else other`; where the test is ambiguous, the hull of both."""
    a, b = cast(then, dtype), cast(other, dtype)
    with np.errstate(all="ignore"):
        v = np.where(test.value, a.value, b.value)
        r: Array | None = None
        if a.r is not None or b.r is not None:
            r = np.where(test.value, 0.0 if a.r is None else a.r, 0.0 if b.r is None else b.r)
        typed = None
        if a.typed is not None and b.typed is not None and test.r is None:
            typed = np.where(test.value, a.typed, b.typed)
        if test.r is not None:
            open_ = np.broadcast_to(test.r > 0, v.shape)
            wide = np.maximum(0.0 if a.r is None else a.r, 0.0 if b.r is None else b.r)
            if dtype is DType.BOOL:
                hull = np.where(a.value != b.value, 1.0, wide)
                middle: Array = v
            elif not dtype.is_inexact:
                hull = _distance(a.value, b.value) + wide
                middle = np.broadcast_to(a.value, v.shape)
            else:
                both = (a.value == b.value) | (np.isnan(a.value) & np.isnan(b.value))
                middle = np.where(both, a.value, a.value / 2 + b.value / 2)
                hull = np.where(both, 0.0, np.abs(a.value - b.value) / 2) + wide
                hull = np.where(np.isnan(hull), np.inf, hull)
                # an infinity against a number: free, and a nan only where a branch may be nan
                clash = ~both & ~(np.isfinite(a.value) & np.isfinite(b.value))
                middle = np.where(clash & ~(np.isnan(a.value) | np.isnan(b.value)), 0.0, middle)
            v = np.where(open_, middle, v)
            r = np.where(open_, hull, 0.0 if r is None else r)
        return Ball(
            v, dtype, unless_zero(r), signed=a.signed and b.signed, nonneg=a.nonneg and b.nonneg, typed=typed
        )


def extremum(kind: str, a: Ball, b: Ball, dtype: DType) -> Ball:
    """max, min (nan if either is nan), fmax, fmin (the other if one is nan)."""
    a, b = cast(a, dtype), cast(b, dtype)
    fn = {"max": np.maximum, "min": np.minimum, "fmax": np.fmax, "fmin": np.fmin}[kind]
    with np.errstate(all="ignore"):
        v = np.asarray(fn(a.value, b.value))
        r: Array | None = None
        if a.r is not None or b.r is not None:
            r = np.zeros(v.shape)
            for x in (a, b):
                if x.r is not None:
                    near = np.abs(x.value - v) <= x.r if kind[-3:] == "max" else np.abs(v - x.value) <= x.r
                    near = near | (x.value == v) | np.isinf(x.r)
                    r = np.maximum(r, np.where(near, x.r, 0.0))
        some = any if kind.endswith("max") else all
        return Ball(v, dtype, unless_zero(r), nonneg=some((a.nonneg, b.nonneg)), typed=_typed_pair(fn, a, b))


def _typed_pair(fn: Callable[[Array, Array], Array], a: Ball, b: Ball) -> Array | None:
    return None if a.typed is None or b.typed is None else fn(a.typed, b.typed)


# ------------------------------------------------------------------------------------------------- the check


@dataclass(frozen=True)
class CheckResult:
    """What `check` found.

    ratio  worst |got - want| / r over the elements that are not free: <= 1 passes, inf where an exact element differs
    ok     per element
    free   the fraction of free elements
    worst  the position with the worst ratio; None for an empty output
    """

    ratio: float
    ok: Array
    free: float
    worst: tuple[int, ...] | None = None
    got: object = None
    want: object = None
    radius: float = 0.0
    reason: str = ""

    @property
    def passed(self) -> bool:
        return bool(np.all(self.ok))


def check(got: Array, want: Ball, dtype: DType | None = None, *, signed_zero: bool = True) -> CheckResult:
    """Compare a kernel's output with the oracle's.  Shape and dtype must be right, or nothing is.

    signed_zero: compare the signs of exact zeros where the meaning is a copy or a selection (`want.signed`).
    """
    dtype = want.dtype if dtype is None else dtype
    if got.shape != want.shape:
        return CheckResult(
            np.inf, np.zeros((), np.bool_), 0.0, reason=f"shape {got.shape}, expected {want.shape}"
        )
    if got.dtype != ARRAY[dtype]:
        return CheckResult(np.inf, np.zeros((), np.bool_), 0.0, reason=f"dtype {got.dtype}, expected {dtype}")
    value = from_array(got, dtype)
    if want.dtype is not dtype:
        want = cast(want, dtype)
    ratio = _ratios(value, want, dtype, signed_zero)
    free = want.free
    free_fraction = float(free.mean()) if free.size else 0.0
    ok = ratio <= 1
    if not ratio.size:
        return CheckResult(0.0, ok, free_fraction)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    radius = float(want.radius[at])
    return CheckResult(
        float(ratio[at]),
        ok,
        free_fraction,
        at,
        got[at],
        want.value[at],
        radius,
        "" if ok.all() else f"at {list(at)}: got {got[at]}, want {want.value[at]} within {radius:.3g}",
    )


def _ratios(got: Array, want: Ball, dtype: DType, signed_zero: bool) -> Array:
    r = want.radius
    v = want.value
    with np.errstate(all="ignore"):
        if want.choices is not None:
            inside = (got >= 0) & (got < want.choices.shape[-1])
            index = np.where(inside, got, 0).astype(np.int64)[..., None]
            allowed = np.take_along_axis(want.choices, index, -1)[..., 0] & inside
            return np.where(allowed, 0.0, np.inf)
        equal = got == v
        if not dtype.is_inexact:
            off = _distance(got, v) if dtype is not DType.BOOL else (~equal).astype(np.float64)
            out = np.where(equal, 0.0, np.where(r > 0, off / np.where(r > 0, r, 1.0), np.inf))
            return np.where(np.isinf(r), 0.0, out)
        equal |= np.isnan(got) & np.isnan(v)
        if signed_zero and want.signed and not dtype.is_complex:
            equal &= ~((v == 0) & (r == 0) & (np.signbit(got) != np.signbit(v)))
        out = np.where(r > 0, np.abs(got - v) / np.where(r > 0, r, 1.0), np.inf)
        out = np.where(np.isnan(out) | ~np.isfinite(v), np.inf, out)
        out = np.where(equal, 0.0, out)
        wild = np.isinf(r) & (np.isnan(v) | ~np.isnan(got))
        return np.where(wild, 0.0, out)
