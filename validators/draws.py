"""Value classes: the numbers that tensors are filled with; index classes: integers that point into other tensors.

May import: numpy, values, generator.types.  To add a class: a function in `_FLOATS` or `_INTEGERS`, its traits in
`VALUE_CLASSES`, its name in generator/spec_model.py, which specs are read by; of indices: a case in `draw_index`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..generator.types import DType
from .values import ARRAY, Array, precision, to_array

__all__ = ["DENORMAL_STEPS", "INDEX_CLASSES", "VALUE_CLASSES", "applicable", "draw", "draw_index"]

Rng = np.random.Generator
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Traits:
    """kinds: dtypes the class is for.  finite: no inf or nan in it."""

    kinds: tuple[str, ...]
    finite: bool = True


_ALL = ("float", "complex", "int", "uint", "bool")
_INEXACT = ("float", "complex")
VALUE_CLASSES: dict[str, Traits] = {
    "exact": Traits(_ALL),
    "normal": Traits(_ALL),
    "large": Traits(_INEXACT),
    "tiny": Traits(_INEXACT),
    "denormal": Traits(_INEXACT),
    "zeros": Traits(_ALL),
    "nan_inf": Traits(_INEXACT, finite=False),
    "nan": Traits(_INEXACT, finite=False),
    "inf": Traits(_INEXACT, finite=False),
    "halves": Traits(_INEXACT),
    "all_equal": Traits(_ALL),
    "one_neg_inf": Traits(("float",), finite=False),
    "all_neg_inf": Traits(("float",), finite=False),
    "int_limits": Traits(("int", "uint")),
    "wide": Traits(("float", "complex", "int", "uint")),
    "mixed": Traits(_INEXACT),
    "unit": Traits(_INEXACT),
}
#: How many steps above zero a number of class `denormal` may be.
DENORMAL_STEPS = 1000
INDEX_CLASSES = ("uniform", "same", "bounds", "negative")


def applicable(value_class: str, dtypes: list[DType]) -> bool:
    """Whether any tensor of these dtypes can hold the class (without tensors: `normal` alone)."""
    kinds = VALUE_CLASSES[value_class].kinds
    return any(d.kind in kinds for d in dtypes) if dtypes else value_class == "normal"


def draw(value_class: str, shape: Shape, dtype: DType, rng: Rng, *, depth: int = 1, place: int = 0) -> Array:
    """An array of the class.

    depth: the longest sum that the operator forms (class `exact` keeps its partial sums representable)
    place: position among the operator's inexact inputs (`exact` gives later factors from {-1, 0, 1})
    """
    if dtype.kind not in VALUE_CLASSES[value_class].kinds:
        value_class = "normal"
    if dtype is DType.BOOL:
        out = (
            np.full(shape, bool(rng.integers(2)))
            if value_class == "all_equal"
            else rng.integers(0, 2, shape) == 1
        )
        return np.asarray(np.zeros(shape, np.bool_) if value_class == "zeros" else out)
    if not dtype.is_inexact:
        return _INTEGERS.get(value_class, _small)(shape, dtype, rng).astype(ARRAY[dtype])
    if dtype.is_complex:
        part = DType.F32 if dtype is DType.C64 else DType.F64
        parts = [draw(value_class, shape, part, rng, depth=2 * depth, place=place) for _ in range(2)]
        out = np.empty(shape, ARRAY[dtype])
        out.real, out.imag = parts
        return out
    if value_class == "exact":
        return to_array(_exact(shape, dtype, rng, depth, place), dtype)
    values = _FLOATS[value_class](shape, dtype, rng)
    return to_array(
        np.clip(values, dtype.min, dtype.max) if VALUE_CLASSES[value_class].finite else values, dtype
    )


# ------------------------------------------------------------------------------------------------- floats


def _exact(shape: Shape, dtype: DType, rng: Rng, depth: int, place: int) -> Array:
    """Integers whose sums of `depth` products stay below 2**24 (so in f32, the accumulator of half types, too)."""
    room = 24 - math.ceil(math.log2(max(depth, 1)))
    if depth > 1 and place > 0:
        return rng.integers(-1, 2, shape).astype(np.float64)
    bits = max(1, min(12, room, precision(dtype)))
    return rng.integers(-(2**bits) + 1, 2**bits, shape).astype(np.float64) * rng.integers(-1, 2, shape)


def _normal(shape: Shape, dtype: DType, rng: Rng) -> Array:
    return rng.standard_normal(shape)


def _large(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Well above 1, with room for a square and a sum."""
    top = 2.0 if dtype is DType.F16 else 4.0
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(1.0, top, shape)


def _tiny(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Around and below the epsilons that operators add."""
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-6.0, -2.0, shape)


def _denormal(shape: Shape, dtype: DType, rng: Rng) -> Array:
    small = rng.integers(-DENORMAL_STEPS, DENORMAL_STEPS + 1, shape) * (dtype.eta * 2 or 2.0**-1074)
    return np.where(rng.random(shape) < 0.25, rng.standard_normal(shape), small)


def _wide(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Of any size, each power of two as likely as the next: some of all that the dtype has, where integers end, where
    an argument is far, where what is tiny is not yet denormal; most within 2 to the 16, where a function still changes.
    A kernel that is made for small numbers, or goes by way of fewer bits, is right below.  Some are neighbours, the
    largest of what is usual or any: fewer bits hold them for equal.
    """
    low, high = math.log2(dtype.eta * 2 or 2.0**-1074), math.log2(dtype.max)
    far = rng.random(shape) < 0.3
    power = np.where(far, rng.uniform(low, high, shape), rng.uniform(max(low, -16), min(high, 16), shape))
    whole = np.floor(power)
    sign = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    out = sign * np.ldexp(np.exp2(power - whole), whole.astype(np.int64))
    one = rng.choice([-1.0, 1.0]) * 2.0 ** min(high - 1, rng.choice([16.0, rng.uniform(-16, 16)]))
    beside = one * (1 + 2 * dtype.u * rng.integers(1, 9, shape))
    return np.asarray(np.where(rng.random(shape) < 0.12, beside, out))


def _zeros(shape: Shape, dtype: DType, rng: Rng) -> Array:
    signed = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
    return np.where(rng.random(shape) < 0.25, rng.standard_normal(shape), signed)


def _halves(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """k + 0.5, where rounding rules differ; among them whole numbers and the next number on either side of a half.

    The largest of some rows is what integers of few bits end at: whoever divides a row by its largest over that many
    levels divides by 1 there, and meets halves as well.
    """
    half = rng.integers(-24, 24, shape) + 0.5
    beside = half * (1 + 2 * dtype.u * rng.choice([-1.0, 1.0], shape))
    pick = rng.random(shape)
    out = np.asarray(np.where(pick < 0.7, half, np.where(pick < 0.85, beside, np.floor(half))))
    if not shape or not out.size:
        return out
    rows = out.reshape(-1, shape[-1])
    for k, levels in enumerate((127, 7)):
        some = rows[k + 1 :: 3]
        np.clip(some, 0.5 - levels, levels - 0.5, out=some)
        some[np.arange(len(some)), rng.integers(0, rows.shape[1], len(some))] = levels
    return rows.reshape(shape)


def _sprinkled(*choices: tuple[float, ...]) -> Callable[[Shape, DType, Rng], Array]:
    """Normal numbers, among them every special value of one choice, each at places of its own.

    Half of the draws have few, so that a long row is not decided by its first one, and half many; half have one in
    the very last element, which is the last along every axis.  A nan has either sign: 0 / 0 gives a negative one on
    x86, and a kernel that orders by bits, or asks for the sign, treats them apart.
    """

    def contents(shape: Shape, dtype: DType, rng: Rng) -> Array:
        flat = rng.standard_normal(math.prod(shape))
        specials = rng.permutation(choices[int(rng.integers(len(choices)))])
        few = 1.5 * flat.size / max((1, *shape))
        count = few if rng.random() < 0.5 else 0.06 * len(specials) * flat.size
        places = rng.permutation(flat.size)
        if flat.size and rng.random() < 0.5:
            places = np.concatenate([[flat.size - 1], places[places != flat.size - 1]])
        places = places[: max(len(specials), round(count))]
        flat[places] = np.resize(specials, len(places))
        nans = places[np.isnan(flat[places])]
        flat[nans] = np.copysign(np.nan, rng.standard_normal(len(nans)))
        return flat.reshape(shape)

    return contents


def _with_zeros(a: Array, rng: Rng) -> Array:
    """Zeros among its numbers, which a kernel may leave out where they meet: 0 times inf is nan."""
    zeros = np.where(rng.random(a.shape) < 0.5, 0.0, -0.0)
    return np.where(np.isfinite(a) & (rng.random(a.shape) < 0.15), zeros, a)


def _nan_inf(shape: Shape, dtype: DType, rng: Rng) -> Array:
    return _with_zeros(_sprinkled((np.nan, np.inf, -np.inf))(shape, dtype, rng), rng)


def _infinite(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Rows with inf alone, -inf alone, both, and none: what one decides, the other must not hide."""
    out = rng.standard_normal(shape)
    if not out.size:
        return out
    rows = out.reshape(-1, shape[-1] if shape else 1)
    # what is in the last place, and what is anywhere else
    kinds = [
        ((np.inf,), ()),
        ((-np.inf,), ()),
        ((), (np.inf,)),
        ((), (-np.inf,)),
        ((), (np.inf, -np.inf)),
        ((), ()),
    ]
    first = int(rng.integers(len(kinds) - 1))  # of a single row, that is all there is
    order = [first, *(k for k in rng.permutation(len(kinds)) if k != first)]
    for k, row in enumerate(rows):
        last, kind = kinds[order[k % len(kinds)]]
        row[len(row) - len(last) :] = last
        places = rng.permutation(len(row) - len(last))
        for at, value in zip(places, kind, strict=False):
            row[at] = value
    return _with_zeros(rows.reshape(shape), rng)


def _all_equal(shape: Shape, dtype: DType, rng: Rng) -> Array:
    return np.full(shape, rng.standard_normal())


def _one_neg_inf(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """One -inf in every row of every axis that has more than one element."""
    out = rng.standard_normal(shape)
    if out.size:
        rows = out.reshape(-1, shape[-1] if shape else 1)
        rows[np.arange(len(rows)), rng.integers(0, rows.shape[1], len(rows))] = -np.inf
        out = rows.reshape(shape)
    return out


def _all_neg_inf(shape: Shape, dtype: DType, rng: Rng) -> Array:
    return np.full(shape, -np.inf)


def _mixed(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Rows of several classes in one tensor: an easy path for some of them shows."""
    out = rng.standard_normal(shape)
    if len(shape) < 1 or not out.size:
        return out
    rows = out.reshape(-1, shape[-1])
    kinds = [_normal, _large, _tiny, _zeros, _all_equal]
    for k in range(min(len(rows), 64)):
        pick = kinds[int(rng.integers(len(kinds)))]
        row = int(rng.integers(len(rows))) if len(rows) > 64 else k
        rows[row] = pick((shape[-1],), dtype, rng)
    return rows.reshape(shape)


def _unit(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Between 0 and 1, with some near and at the ends: probabilities."""
    out = rng.random(shape)
    near = rng.random(shape)
    out = np.where(near < 0.1, out * 2.0**-7, np.where(near > 0.9, 1 - out * 2.0**-7, out))
    return np.where(rng.random(shape) < 0.03, np.rint(out), out)


_FLOATS: dict[str, Callable[[Shape, DType, Rng], Array]] = {
    "normal": _normal,
    "large": _large,
    "tiny": _tiny,
    "denormal": _denormal,
    "zeros": _zeros,
    "nan_inf": _nan_inf,
    "nan": _sprinkled((np.nan,)),
    "inf": _infinite,
    "halves": _halves,
    "all_equal": _all_equal,
    "one_neg_inf": _one_neg_inf,
    "all_neg_inf": _all_neg_inf,
    "wide": _wide,
    "mixed": _mixed,
    "unit": _unit,
}

# ------------------------------------------------------------------------------------------------- integers


def _small(shape: Shape, dtype: DType, rng: Rng) -> Array:
    low = 0 if dtype.kind == "uint" else -100
    return rng.integers(low, 101, shape)


def _int_zeros(shape: Shape, dtype: DType, rng: Rng) -> Array:
    return np.where(rng.random(shape) < 0.75, 0, _small(shape, dtype, rng))


def _int_equal(shape: Shape, dtype: DType, rng: Rng) -> Array:
    return np.full(shape, int(rng.integers(1, 101)))


def _int_limits(shape: Shape, dtype: DType, rng: Rng) -> Array:
    low, high = int(dtype.min), int(dtype.max)
    edges = np.array([low, low + 1, -1 if low < 0 else 0, 0, 1, 2, high - 1, high], ARRAY[dtype])
    # the lowest and -1 more often: their quotient, which does not exist, is what two tensors of few elements must hold
    weights = np.array([6, 1, 6, 2, 1, 1, 1, 2]) / 20
    return np.asarray(rng.choice(edges, shape, p=weights))


def _int_wide(shape: Shape, dtype: DType, rng: Rng) -> Array:
    """Of any number of bits: beyond what a float or a narrower integer holds, and short of the limits.  Some are
    neighbours, which a float holds for equal.
    """
    high = int(dtype.max)
    bits = rng.integers(1, high.bit_length() + 1, shape)
    size = rng.integers(0, high, shape, np.uint64 if high >> 62 else np.int64, endpoint=True)
    size = size.astype(np.int64) >> (high.bit_length() - bits)
    one = int(rng.integers(high // 2, high - 8)) + rng.integers(0, 8, shape)
    size = np.where(rng.random(shape) < 0.25, one, size)
    sign = rng.choice([-1, 1]) if rng.random() < 0.5 else rng.choice([-1, 1], shape)
    return np.asarray(size * sign if dtype.min < 0 else size)


_INTEGERS: dict[str, Callable[[Shape, DType, Rng], Array]] = {
    "exact": _small,
    "normal": _small,
    "zeros": _int_zeros,
    "all_equal": _int_equal,
    "int_limits": _int_limits,
    "wide": _int_wide,
}


def draw_index(index_class: str, shape: Shape, dtype: DType, extent: int, rng: Rng) -> Array:
    """Positions of an axis of `extent`: anywhere, all the same, its two ends, or counted from the end as well."""
    count = max(extent, 1)
    match index_class:
        case "uniform":
            out = rng.integers(0, count, shape)
        case "same":
            out = np.full(shape, int(rng.integers(count)))
        case "bounds":
            out = np.where(rng.random(shape) < 0.5, 0, count - 1)
        case "negative":
            out = np.asarray(rng.integers(-count, count, shape))
            if out.size:
                out.reshape(-1)[int(rng.integers(out.size))] = -int(rng.integers(1, count + 1))
        case _:
            raise ValueError(f"no index class `{index_class}`")
    return np.asarray(out).astype(ARRAY[dtype])
