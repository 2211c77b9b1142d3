"""Reductions in ball arithmetic: sums and products with the error of a blocked order, extrema, any/all, argmax, scans,
contractions, and updates of one place by many (scatter).

A sum of n terms that are not exactly zero adds c(n) * u_A * sum(|x| + r), c(n) = min(n, 4 sqrt(n) + 16).  It is exact,
in any order, when every term is and sum(|x|) stays within the integers that A holds, in units of the lowest set bit.

May import: numpy, ball, values, generator.types.  To add a reduction: a case in `reduce_` and in `identity`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..generator.types import DType, accum
from .ball import Ball, are_floats, cast, counts_every_rounding, unless_zero
from .values import STORAGE, U64, Array, least, lowest_unit, precision

__all__ = ["Accumulator", "contract", "identity", "reduce_", "scan", "sum_factor"]


def sum_factor(n: Array) -> Array:
    """c(n): how many roundings a blocked or pairwise sum of n terms may add up; none for a single term.

    Blocks are asked of kernels: another program, which the gate of meaning compares with, may add in one chain.
    """
    count = np.asarray(n, np.float64)
    if counts_every_rounding():
        return np.where(count <= 1, 0.0, count)
    return np.where(count <= 1, 0.0, np.minimum(count, 4 * np.sqrt(count) + 16))


def identity(kind: str, dtype: DType) -> float | int | bool:
    """What a reduction over nothing gives."""
    match kind:
        case "sum":
            return 0
        case "prod" | "all":
            return 1
        case "any":
            return 0
        case "max":
            return -np.inf if dtype.is_inexact else dtype.min
        case "min":
            return np.inf if dtype.is_inexact else dtype.max
    raise ValueError(f"{kind} over nothing has no value")


def _last(x: Array, shape: tuple[int, ...], axes: Sequence[int]) -> Array:
    """`x`, broadcast to `shape`, with `axes` moved together to one last axis (contiguous: NumPy sums it pairwise)."""
    x = np.broadcast_to(x, shape)
    keep = [k for k in range(len(shape)) if k not in axes]
    moved = np.transpose(x, [*keep, *axes])
    return np.ascontiguousarray(moved).reshape(*(shape[k] for k in keep), math.prod(shape[k] for k in axes))


def reduce_(kind: str, body: Ball, axes: Sequence[int], shape: tuple[int, ...], dtype: DType) -> Ball:
    """`kind[axes](body)`: `body` broadcast to `shape`; the reduced axes are gone from the result."""
    axes = sorted(axes)
    with np.errstate(all="ignore"):
        if kind in ("argmax", "argmin"):
            return cast(_arg(kind, _flat(body, shape, axes)), dtype)
        if kind in ("any", "all"):
            return _any(kind, _flat(cast(body, DType.BOOL), shape, axes))
        if kind in ("max", "min"):
            return _extremum(kind, _flat(cast(body, dtype), shape, axes))
        wide = accum(dtype) if dtype.is_inexact else dtype
        flat = _flat(cast(body, wide), shape, axes)
        out = _sum(flat, wide) if kind == "sum" else _product(flat, wide)
        return cast(out, dtype)


def _flat(b: Ball, shape: tuple[int, ...], axes: Sequence[int]) -> Ball:
    r = None if b.r is None else _last(b.r, shape, axes)
    return Ball(_last(b.value, shape, axes), b.dtype, r, nonneg=b.nonneg)


# ------------------------------------------------------------------------------------------------- sums


def total(
    v: Array,
    size: Array,
    spread: Array | None,
    count: Array,
    unit: Array | None,
    dtype: DType,
    open_: Array | None,
    sequential: bool = False,
) -> tuple[Array, Array | None]:
    """Value and radius of a sum from its parts.

    v       the float64 sum          size   sum of |x| + r over finite terms      spread  sum of r, or None
    count   terms that are not exactly zero              unit    least lowest set bit of the terms (None: not exact)
    open_   where a term is free     sequential  terms one after the other: n roundings instead of c(n)
    """
    roundings = np.maximum(count - 1, 0) if sequential else sum_factor(count)
    grown = roundings * (dtype.u + U64) * size
    r = grown if spread is None else grown + spread
    is_exact: Array | bool = count <= 1
    if unit is not None and not counts_every_rounding():
        is_exact = is_exact | (size <= 2.0 ** precision(dtype) * unit)
    calm = np.zeros(()) if spread is None else spread
    r = np.where(is_exact & (calm == 0), 0.0, np.where(count <= 1, calm, r))
    bad = ~(size <= float(dtype.max)) | ~np.isfinite(v)
    if np.any(bad):
        # an exact inf or nan among the terms decides, unless the finite ones may overflow against it
        overflow = ~(size <= float(dtype.max))
        r = np.where(bad, np.where(~np.isfinite(v) & ~overflow, 0.0, np.inf), r)
        if not are_floats():
            v = np.where(overflow & (~np.isfinite(v) | _opposed(v, size, dtype)), np.nan, v)
    if open_ is not None and np.any(open_):
        v, r = np.where(open_, np.nan, v), np.where(open_, np.inf, r)
    return v, unless_zero(r)


def _opposed(v: Array, size: Array, dtype: DType) -> Array:
    """Where the positive terms of a sum overflow by themselves, and the negative ones do: in some order of the terms it
    is inf - inf."""
    with np.errstate(all="ignore"):
        return np.asarray((size - np.abs(v)) / 2 > float(dtype.max))


def _sum(b: Ball, dtype: DType) -> Ball:
    if not dtype.is_inexact:
        v = np.asarray(
            b.value.any(axis=-1) if dtype is DType.BOOL else b.value.sum(axis=-1, dtype=STORAGE[dtype])
        )
        return Ball(v, dtype, None if b.r is None else b.r.sum(axis=-1), nonneg=b.nonneg)
    x, open_ = b.value, None
    r = b.r
    if r is not None and np.isinf(r).any():
        open_ = np.asarray(np.isinf(r).any(axis=-1))
        r = np.where(np.isinf(r), 0.0, r)
    size = np.abs(x)
    finite = np.isfinite(size)
    if not finite.all():
        size = np.where(finite, size, 0.0)
    if r is not None:
        size = size + r
    spread = None if r is None else r.sum(axis=-1)
    count = np.count_nonzero((size != 0) | ~finite, axis=-1)
    unit = None
    if spread is None or not np.all(spread):
        unit = (
            np.min(lowest_unit(np.where(finite, np.abs(x), 0.0)), axis=-1, initial=np.inf)
            if not dtype.is_complex
            else np.min(
                np.minimum(
                    lowest_unit(np.where(finite, x.real, 0.0)), lowest_unit(np.where(finite, x.imag, 0.0))
                ),
                axis=-1,
                initial=np.inf,
            )
        )
    v, r = total(x.sum(axis=-1), size.sum(axis=-1), spread, count, unit, dtype, open_)
    return Ball(v, dtype, r, nonneg=b.nonneg)


def _product(b: Ball, dtype: DType) -> Ball:
    if not dtype.is_inexact:
        v = np.asarray(
            b.value.all(axis=-1) if dtype is DType.BOOL else b.value.prod(axis=-1, dtype=STORAGE[dtype])
        )
        return Ball(
            v, dtype, None if b.r is None else np.where(b.r.any(axis=-1), np.inf, 0.0), nonneg=b.nonneg
        )
    x = b.value
    r = np.zeros(()) if b.r is None else b.r
    size = np.abs(x)
    v = x.prod(axis=-1)
    if are_floats():
        return Ball(v, dtype)
    count = np.count_nonzero((x != 1) | (r != 0), axis=-1)
    upper = (size + r).prod(axis=-1)
    out = np.maximum(upper - np.abs(v), 0.0) if b.r is not None else np.zeros(v.shape)
    out = out + sum_factor(count) * (dtype.u + U64) * upper * (3 if dtype.is_complex else 1)
    # Partial products below the normal numbers lose bits, times all that may follow.
    largest = np.maximum(size + r, 1.0).prod(axis=-1)
    out = out + np.where(v == 0, 0.0, sum_factor(count) * least(dtype) * largest)
    odd = np.where(size == 0, 1.0, size / np.where(size == 0, 1.0, lowest_unit(size)))
    tiny = np.minimum(np.where(size == 0, 1.0, size), 1.0).prod(axis=-1)
    is_exact = (
        (odd.prod(axis=-1) <= 2.0 ** precision(dtype))
        & (tiny >= least(dtype) * 2 ** (precision(dtype) + 1))
        & (largest <= float(dtype.max))
    ) & (not counts_every_rounding())
    special = ~np.isfinite(x).all(axis=-1)
    has_zero = ((x == 0) & (r == 0)).any(axis=-1) & ~special & (largest <= float(dtype.max))
    certain = np.all(r == 0, axis=-1) if b.r is not None else np.ones(v.shape, np.bool_)
    out = np.where((count <= 1) & certain | is_exact & certain | has_zero, 0.0, out)
    overflows = ~(largest <= float(dtype.max))
    out = np.where(overflows | np.isnan(out), np.inf, out)
    # A partial product that overflows before a factor comes that may be 0 makes inf * 0.
    v = np.where(overflows & ((size - r) <= 0).any(axis=-1) & ~special, np.nan, v)
    if special.any():
        open_ = ~certain if b.r is not None else np.zeros(v.shape, np.bool_)
        finite_part = np.maximum(np.where(np.isfinite(size), size, 1.0), 1.0).prod(axis=-1)
        shrink = np.where(np.isfinite(size), np.minimum(np.where(size == 0, 1.0, size), 1.0), 1.0).prod(
            axis=-1
        )
        # inf * (a partial product that underflowed to 0) would be nan
        sure = special & ~open_ & (finite_part <= float(dtype.max)) & (shrink > least(dtype) * 2)
        out = np.where(special, np.where(sure & ~np.isfinite(v), 0.0, np.inf), out)
        v = np.where(special & ~sure, np.nan, v)
    return Ball(v, dtype, unless_zero(out), nonneg=b.nonneg)


# ------------------------------------------------------------------------------------------------- extrema


def _extremum(kind: str, b: Ball) -> Ball:
    x, dtype = b.value, b.dtype
    first = np.full((*x.shape[:-1], 1), identity(kind, dtype)).astype(STORAGE[dtype])
    v = np.asarray((np.max if kind == "max" else np.min)(np.concatenate([x, first], axis=-1), axis=-1))
    r = None
    if b.r is not None:
        # Only the terms that may be the extremum count.
        near = (np.abs(x - v[..., None]) <= b.r) | (x == v[..., None]) | np.isinf(b.r)
        r = np.max(np.where(near, b.r, 0.0), axis=-1, initial=0.0)
        nan_for_sure = (np.isnan(x) & (b.r == 0)).any(axis=-1)
        r = np.where(nan_for_sure, 0.0, r)
        r = unless_zero(r)
    return Ball(v, dtype, r, nonneg=b.nonneg and x.shape[-1] > 0)


def _any(kind: str, b: Ball) -> Ball:
    absorbing = kind == "any"
    v = np.asarray(b.value.any(axis=-1) if absorbing else b.value.all(axis=-1))
    if b.r is None:
        return Ball(v, DType.BOOL)
    sure = b.r == 0
    decided = ((b.value == absorbing) & sure).any(axis=-1)
    unsure = ~sure.all(axis=-1) & ~decided
    return Ball(v, DType.BOOL, unless_zero(unsure.astype(np.float64)))


def _arg(kind: str, b: Ball) -> Ball:
    """The first extremum (the first nan, if any); within the radii every index that may be it is accepted."""
    x = b.value
    n = x.shape[-1]
    if n == 0:
        raise ValueError(f"{kind} over nothing has no value")
    v = x.argmax(axis=-1) if kind == "argmax" else x.argmin(axis=-1)  # NumPy's give the first nan
    index = v.astype(np.int64)
    if b.r is None:
        return Ball(index, DType.I64, nonneg=True)
    r = np.broadcast_to(b.r, x.shape)
    sign = 1.0 if kind == "argmax" else -1.0
    y = sign * x.astype(np.float64)
    nan, free = np.isnan(y) & (r == 0), np.isinf(r)
    low = np.where(nan, np.inf, np.where(free, -np.inf, y - r))
    high = np.where(nan | free, np.inf, y + r)
    # j may be the first largest: before it everything can be smaller, after it nothing need be larger
    nothing = np.full((*low.shape[:-1], 1), -np.inf)
    before = np.concatenate([nothing, np.maximum.accumulate(low, axis=-1)[..., :-1]], axis=-1)
    after = np.flip(np.maximum.accumulate(np.flip(low, -1), axis=-1), -1)
    after = np.concatenate([after[..., 1:], nothing], axis=-1)
    allowed = (before < high) & (after <= high)
    first_nan = np.arange(n) == np.argmax(nan, axis=-1)[..., None]
    allowed = np.where(nan.any(axis=-1)[..., None], first_nan, allowed) | free
    allowed |= np.arange(n) == index[..., None]
    places = np.arange(n)
    far = np.where(allowed, np.abs(places - index[..., None]), 0).max(axis=-1).astype(np.float64)
    choices = allowed if far.any() else None
    return Ball(index, DType.I64, unless_zero(far), nonneg=True, choices=choices)


# ------------------------------------------------------------------------------------------------- scans


def scan(
    kind: str, body: Ball, axis: int, shape: tuple[int, ...], dtype: DType, reverse: bool = False
) -> Ball:
    """Inclusive running sum, max or min along `axis` (from the end when `reverse`), of `body` broadcast to `shape`."""
    wide = accum(dtype) if dtype.is_inexact and kind == "sum" else dtype
    b = cast(body, wide)

    def line(x: Array) -> Array:
        x = np.moveaxis(np.broadcast_to(x, shape), axis, -1)
        return np.flip(x, -1) if reverse else x

    def back(x: Array) -> Array:
        return np.moveaxis(np.flip(x, -1) if reverse else x, -1, axis)

    with np.errstate(all="ignore"):
        x = line(b.value)
        r = None if b.r is None else line(b.r)
        if kind == "sum":
            v, radius = _running_sum(x, r, wide)
        else:
            fn = np.maximum if kind == "max" else np.minimum
            v = fn.accumulate(x, axis=-1)
            radius = None
            if r is not None:
                # wider than the plain reduction's: the largest radius so far
                radius = np.maximum.accumulate(r, axis=-1)
        out = Ball(back(v), wide, None if radius is None else unless_zero(back(radius)), nonneg=b.nonneg)
        return cast(out, dtype)


def _running_sum(x: Array, r: Array | None, dtype: DType) -> tuple[Array, Array | None]:
    if not dtype.is_inexact:
        v = np.cumsum(x, axis=-1, dtype=STORAGE[dtype])
        return v, None if r is None else np.cumsum(r, axis=-1)
    finite = np.isfinite(x)
    open_ = None
    if r is not None and np.isinf(r).any():
        open_ = np.logical_or.accumulate(np.isinf(r), axis=-1)
        r = np.where(np.isinf(r), 0.0, r)
    size = np.where(finite, np.abs(x), 0.0)
    if r is not None:
        size = size + r
    # Sequential, so in extended precision: its own error stays far below u_A even for f64.
    long = np.clongdouble if dtype.is_complex else np.longdouble
    v = np.cumsum(x.astype(long), axis=-1).astype(x.dtype)
    count = np.cumsum((size != 0) | ~finite, axis=-1)
    spread = None if r is None else np.cumsum(r, axis=-1)
    unit = None
    if (spread is None or not np.all(spread)) and not dtype.is_complex:
        unit = np.minimum.accumulate(lowest_unit(np.where(finite, np.abs(x), 0.0)), axis=-1)
    return total(v, np.cumsum(size, axis=-1), spread, count, unit, dtype, open_)


# ------------------------------------------------------------------------------------------------- contractions


def contract(a: Ball, b: Ball, axes: Sequence[int], shape: tuple[int, ...], dtype: DType) -> Ball | None:
    """sum[axes](a * b) without the full product; None where that does not apply and the caller must take the slow way.

    a and b are aligned (one axis per index, 1 where they do not depend on it).  Applies to finite floats.
    """
    wide = accum(dtype)
    a, b = cast(a, wide), cast(b, wide)
    for x in (a, b):
        if not np.isfinite(x.value).all() or (x.r is not None and not np.isfinite(x.r).all()):
            return None
    plan = _matmul_plan(a.shape, b.shape, axes, shape)
    if plan is None:
        return None
    with np.errstate(all="ignore"):

        def mm(x: Array, y: Array) -> Array:
            return plan.run(np.broadcast_to(x, a.shape), np.broadcast_to(y, b.shape))

        n = plan.terms
        size_a, size_b = np.abs(a.value), np.abs(b.value)
        v = mm(a.value, b.value)
        if a.r is None and b.r is None and not wide.is_complex:
            unit = 1.0
            for size in (size_a, size_b):
                unit *= float(np.min(lowest_unit(size), initial=np.inf))
            most = n * float(np.max(size_a, initial=0.0)) * float(np.max(size_b, initial=0.0))
            if unit < 2 * least(wide):
                unit = np.nan  # a product may be smaller than any number: it rounds
            limit = 2.0 ** precision(wide)
            if most <= limit * unit and most <= float(wide.max):
                return cast(Ball(v, wide, nonneg=a.nonneg and b.nonneg), dtype)
        else:
            unit = np.nan
        size = mm(size_a, size_b)
        spread = np.zeros(())
        if a.r is not None:
            spread = spread + mm(a.r, size_b if b.r is None else size_b + b.r)
        if b.r is not None:
            spread = spread + mm(size_a, b.r)
        u = (wide.u + U64) * (3 if wide.is_complex else 1)
        whole = size + spread
        count = np.asarray(n)
        some = [
            (size != 0) if x.r is None else (size != 0) | (x.r != 0) for x, size in ((a, size_a), (b, size_b))
        ]
        if not all(s.all() for s in some):
            count = np.rint(
                mm(some[0].astype(np.float64), some[1].astype(np.float64))
            )  # exact zeros do not round
        products = spread + u * whole + count * least(wide)  # each product rounds once
        r = products + sum_factor(count) * (wide.u + U64) * (whole + products)
        r = np.where(whole == 0, 0.0, r)
        if np.isfinite(unit):
            r = np.where(size <= 2.0 ** precision(wide) * unit, 0.0, r)
        overflow = ~(whole + products <= float(wide.max))
        r = np.where(overflow, np.inf, r)
        if overflow.any() and not are_floats():
            v = np.where(overflow & _opposed(v, whole + products, wide), np.nan, v)
        return cast(Ball(v, wide, unless_zero(r), nonneg=a.nonneg and b.nonneg), dtype)


class _Plan:
    """How an aligned pair of operands becomes one batched matrix product."""

    def __init__(
        self,
        orders: tuple[list[int], list[int]],
        sizes: Sequence[tuple[int, ...]],
        out_order: list[int],
        out_shape: tuple[int, ...],
    ) -> None:
        self.order_a, self.order_b = orders
        self.batch, self.left, self.inner, self.right = sizes
        self.out_order, self.out_shape = out_order, out_shape
        self.terms = int(np.prod(self.inner, dtype=np.int64))

    def run(self, a: Array, b: Array) -> Array:
        m, k, n = (int(np.prod(s, dtype=np.int64)) for s in (self.left, self.inner, self.right))
        count = int(np.prod(self.batch, dtype=np.int64))
        a = np.transpose(a, self.order_a).reshape(count, m, k)
        b = np.transpose(b, self.order_b).reshape(count, k, n)
        out = np.matmul(a, b).reshape(*self.batch, *self.left, *self.right)
        return np.transpose(out, self.out_order).reshape(self.out_shape)


def _matmul_plan(
    a: tuple[int, ...], b: tuple[int, ...], axes: Sequence[int], shape: tuple[int, ...]
) -> _Plan | None:
    batch, left, right, inner, ones = [], [], [], [], []
    for k, extent in enumerate(shape):
        in_a, in_b = a[k] == extent, b[k] == extent
        if extent == 1:
            ones.append(k)
        elif k in axes:
            if not (in_a and in_b):
                return None  # an index that one operand does not depend on: a plain factor; rare
            inner.append(k)
        elif in_a and in_b:
            batch.append(k)
        elif in_a:
            left.append(k)
        elif in_b:
            right.append(k)
        else:
            ones.append(k)
    order_a = [*batch, *left, *inner, *right, *ones]
    order_b = [*batch, *inner, *right, *left, *ones]
    kept = [*batch, *left, *right]
    free = [k for k in range(len(shape)) if k not in axes]
    spread = {k: shape[k] for k in kept}
    out_order = [kept.index(k) for k in free if k in spread]
    out_shape = tuple(spread.get(k, 1) for k in free)
    sizes = [tuple(shape[k] for k in group) for group in (batch, left, inner, right)]
    return _Plan((order_a, order_b), sizes, out_order, out_shape)


# ------------------------------------------------------------------------------------------------- updates


class Accumulator:
    """A tensor that several statements, or several points of one, add to: accumulated in A, rounded once at the end.

    Values are flat; `base` is what they start from (None: the identity of the mode).  Terms come one after the other,
    in any order, so n of them may add up n roundings: a blocked order would need memory that a scatter does not have.
    """

    def __init__(self, mode: str, dtype: DType, size: int, base: Ball | None) -> None:
        self.mode = mode
        self.dtype = dtype
        self.wide = accum(dtype) if dtype.is_inexact and mode in ("+=", "*=") else dtype
        self.touched = np.zeros(size, np.int64)
        kind = {"+=": "sum", "*=": "prod"}.get(mode, mode)
        if base is None:
            self.value = np.full(size, identity(kind, self.wide), STORAGE[self.wide])
            self.r = np.zeros(size)
            self.count = np.zeros(size, np.int64)
        else:
            base = cast(base, self.wide)
            self.value = np.array(base.value).reshape(size)
            self.r = np.array(base.radius, np.float64).reshape(size)
            neutral = 0 if mode == "+=" else 1
            self.count = ((self.value != neutral) | (self.r != 0)).astype(np.int64)
        self.nonneg = base is None or base.nonneg
        with np.errstate(all="ignore"):
            self.size = (
                np.abs(np.asarray(self.value, np.complex128 if self.wide.is_complex else np.float64)) + self.r
            )
            self.upper = np.asarray(self.value, np.float64) + self.r if not self.wide.is_complex else self.r
            self.lower = np.asarray(self.value, np.float64) - self.r if not self.wide.is_complex else self.r
            self.unit, self.odd = np.full(size, np.inf), np.ones(size)
            if self.wide.is_float:
                self.unit = lowest_unit(np.where(np.isfinite(self.value), self.value, 0.0))
                self.odd = _odd_part(self.value)
            # the smallest and the largest that partial products may become, in any order
            self.least, self.most = np.ones(size), np.ones(size)
            if self.wide.is_inexact:
                self._bound_products(np.arange(size), np.abs(self.value), self.r)

    def update(self, at: Array, x: Ball) -> None:
        """Apply the terms `x` (flat) at the flat positions `at`, in order."""
        x = cast(x, self.wide)
        v, r = x.value, x.radius
        self.nonneg = self.nonneg and x.nonneg
        np.add.at(self.touched, at, 1)
        with np.errstate(all="ignore"):
            match self.mode:
                case "+=":
                    np.add.at(self.value, at, v)
                    np.add.at(self.r, at, r)
                    if self.wide.is_inexact:
                        finite = np.isfinite(v)
                        size = np.where(finite, np.abs(v), 0.0) + r
                        np.add.at(self.count, at, ((size != 0) | ~finite).astype(np.int64))
                        np.add.at(self.size, at, size)
                        if self.wide.is_float:
                            np.minimum.at(self.unit, at, lowest_unit(np.where(finite, v, 0.0)))
                case "*=":
                    if not self.wide.is_inexact:
                        np.multiply.at(self.value, at, v)
                        np.add.at(self.r, at, np.where(r > 0, np.inf, 0.0))
                        return
                    np.multiply.at(self.value, at, v)
                    np.add.at(self.count, at, ((v != 1) | (r != 0)).astype(np.int64))
                    np.multiply.at(self.size, at, np.abs(v) + r)
                    np.multiply.at(self.odd, at, _odd_part(v))
                    self._bound_products(at, np.abs(v), r)
                    np.add.at(self.r, at, r)
                case "max" | "min":
                    fn = np.maximum if self.mode == "max" else np.minimum
                    fn.at(self.value, at, v)
                    fn.at(self.upper, at, v + r)
                    fn.at(self.lower, at, v - r)
                    np.maximum.at(self.r, at, r)
                case "any" | "all":
                    fn_ = np.logical_or if self.mode == "any" else np.logical_and
                    unsure = r > 0
                    fn_.at(self.value, at, v)
                    upper, lower = self.upper > 0, self.lower > 0
                    fn_.at(upper, at, v | unsure)
                    fn_.at(lower, at, v & ~unsure)
                    self.upper, self.lower = upper.astype(np.float64), lower.astype(np.float64)
                case _:
                    raise ValueError(f"`{self.mode}` does not accumulate")

    def _bound_products(self, at: Array, size: Array, r: Array) -> None:
        np.multiply.at(self.least, at, np.where(size == 0, 1.0, np.minimum(size, 1.0)))
        np.multiply.at(self.most, at, np.maximum(size + r, 1.0))

    def result(self) -> Ball:
        """The ball after all updates, in the target's own dtype."""
        with np.errstate(all="ignore"):
            r: Array | None
            v = self.value
            if not self.wide.is_inexact:
                if self.mode in ("max", "min"):
                    r = np.where(self.r > 0, np.maximum(self.upper - v, v - self.lower), 0.0)
                elif self.mode in ("any", "all"):
                    r = (self.upper != self.lower).astype(np.float64)
                else:
                    r = self.r
                return Ball(v, self.dtype, unless_zero(r), nonneg=self.nonneg)
            match self.mode:
                case "+=":
                    open_ = np.isinf(self.r)
                    spread = np.where(open_, 0.0, self.r)
                    size = np.where(np.isfinite(self.size), self.size, np.where(np.isfinite(v), np.inf, 0.0))
                    unit = self.unit if self.wide.is_float else None
                    v, r = total(v, size, spread, self.count, unit, self.wide, open_, sequential=True)
                case "*=":
                    whole = self.size
                    grown = np.maximum(whole - np.abs(v), 0.0) + self.count * (self.wide.u + U64) * whole
                    grown = grown + self.count * least(self.wide) * self.most
                    tiny = self.least < least(self.wide) * 2.0 ** (precision(self.wide) + 1)
                    odd = self.odd <= 2.0 ** precision(self.wide)
                    same = (self.r == 0) & ((self.count <= 1) | ~tiny & (odd | (v == 0)))
                    r = np.where(same & np.isfinite(v), 0.0, grown)
                    r = np.where(np.isnan(r) | ~(self.most <= float(self.wide.max)), np.inf, r)
                    special = ~np.isfinite(v) & (self.r == 0) & ~np.isfinite(whole) & ~tiny
                    r = np.where(special & np.isnan(v), 0.0, r)
                case _:
                    r = np.where(self.r > 0, np.maximum(self.upper - v, v - self.lower), 0.0)
                    r = np.where(np.isnan(r), np.where(np.isinf(self.r), np.inf, 0.0), r)
            return cast(Ball(v, self.wide, unless_zero(r), nonneg=self.nonneg), self.dtype)


def _odd_part(v: Array) -> Array:
    size = np.abs(np.where(np.isfinite(v), v, 1.0))
    return np.where(size == 0, 1.0, size / np.where(size == 0, 1.0, lowest_unit(size)))
