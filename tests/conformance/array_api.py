"""The array API standard, function by function, against NumPy's namespace, which follows it; → docs/array_api.md.

    python -m tests.conformance.array_api            every function of the standard, 60 calls each; writes the page
    python -m tests.conformance.array_api NAME …     some functions; prints

`DRAWS` has, for each function, how arguments are drawn; `differs` compares a call with NumPy's.  `WHY` says where a
function does not hold, and shows it by a call that is not drawn; the page is not written while a drawn call fails, or
one of those does not.  tests/conformance/test_array_api.py draws by hypothesis what this draws by numbers.

To add a function: a line in `DRAWS` (and in the namespace).  May import: opwright, NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).resolve().parents[2] / "docs" / "array_api.md"
CALLS = 60

INTS = ("int8", "int16", "int32", "int64", "uint8")
REALS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATS = REALS + COMPLEX
NUMBERS = INTS + FLOATS
ALL = ("bool", *NUMBERS)
OURS = {"bool": "bool", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float32": "f32",
        "float64": "f64", "complex64": "c64", "complex128": "c128"}  # fmt: skip

Rng = np.random.Generator


@dataclass(frozen=True)
class Call:
    """Arguments, as NumPy takes them; arrays become ours.  `values`: what is compared is more than dtype and shape."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    values: bool = True
    loose: float = 1.0


Draw = Callable[[Rng], Call]


# ---- arrays ----------------------------------------------------------------------------------------------------------


def shape(rng: Rng, low: int = 0, high: int = 3, least: int = 0) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(least, 5, rng.integers(low, high + 1)))


def array(
    rng: Rng,
    dtypes: Sequence[str],
    of: tuple[int, ...] | None = None,
    *,
    special: bool = True,
    small: int = 9,
) -> Any:
    """Whole numbers of a few, reals with zeros of both signs, infinities and nan among them."""
    dtype = str(rng.choice(dtypes))
    of = shape(rng) if of is None else of
    if dtype == "bool":
        return rng.integers(0, 2, of).astype(bool)
    if dtype in INTS:
        return rng.integers(0 if dtype == "uint8" else -small, small, of).astype(dtype)
    out = rng.normal(size=of) * 3
    if dtype in COMPLEX:
        return np.asarray(out + 1j * rng.normal(size=of)).astype(dtype)
    out = np.asarray(out)
    if special and out.size and rng.random() < 0.3:
        places = rng.integers(0, out.size, rng.integers(1, 3))
        out.reshape(-1)[places] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], len(places))
    return out.astype(dtype)


def partner(rng: Rng, x: Any, dtypes: Sequence[str], **kind: Any) -> Any:
    """An array that broadcasts with another one."""
    of = [n if rng.random() < 0.7 else 1 for n in x.shape]
    return array(
        rng, dtypes, tuple(of[int(rng.integers(0, len(of) + 1)) :] if rng.random() < 0.3 else of), **kind
    )


def kin(dtype: Any, among: Sequence[str]) -> tuple[str, ...]:
    """Dtypes that the standard promotes with this one."""
    for kind in (("bool",), INTS, FLOATS):
        if str(dtype) in kind:
            return tuple(d for d in kind if d in among)
    return ()


def axis_of(rng: Rng, x: Any) -> int:
    return int(rng.integers(-x.ndim, x.ndim))


# ---- how arguments are drawn -----------------------------------------------------------------------------------------


def unary(dtypes: Sequence[str], change: Callable[[Any], Any] = lambda x: x, **kind: Any) -> Draw:
    return lambda rng: Call((change(array(rng, dtypes, **kind)),))


def binary(dtypes: Sequence[str], change: Callable[[Any], Any] = lambda x: x, **kind: Any) -> Draw:
    def draw(rng: Rng) -> Call:
        x = array(rng, dtypes, **kind)
        x = change(x)  # either may stand on the right
        numbers = {"b": True, "i": 3, "u": 3, "f": 2.5, "c": 2.5 + 1j}
        if rng.random() < 0.2:
            y: Any = numbers[x.dtype.kind]
            return Call((x, y) if rng.random() < 0.7 or not x.ndim else (y, x))
        return Call((x, change(partner(rng, x, kin(x.dtype, dtypes), **kind))))

    return draw


def reduced(dtypes: Sequence[str], *, several: bool = True, least: int = 0, **kind: Any) -> Draw:
    def draw(rng: Rng) -> Call:
        x = array(rng, dtypes, shape(rng, 0, 3, least), **kind)
        kwargs: dict[str, Any] = {}
        which = rng.integers(0, 4)
        if which == 1 and x.ndim:
            kwargs["axis"] = axis_of(rng, x)
        elif which == 2 and several and x.ndim:
            kwargs["axis"] = tuple(int(k) for k in rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)])
        if rng.random() < 0.5:
            kwargs["keepdims"] = True
        return Call((x,), kwargs)

    return draw


def along(
    dtypes: Sequence[str], low: int = 1, least: int = 1, **kind: Any
) -> Callable[[Rng], tuple[Any, int]]:
    def draw(rng: Rng) -> tuple[Any, int]:
        x = array(rng, dtypes, shape(rng, low, 3, least), **kind)
        return x, axis_of(rng, x)

    return draw


def by_axis(draw: Callable[[Rng], tuple[Any, int]], **kwargs: Any) -> Draw:
    def call(rng: Rng) -> Call:
        x, axis = draw(rng)
        return Call((x,), {"axis": axis, **kwargs})

    return call


def matrices(
    dtypes: Sequence[str] = FLOATS, *, square: bool = True, definite: bool = False
) -> Callable[[Rng], Any]:
    """Well conditioned ones."""

    def draw(rng: Rng) -> Any:
        n = int(rng.integers(1, 5))
        m = n if square else int(rng.integers(1, 5))
        x = array(rng, dtypes, (*shape(rng, 0, 1, 1), n, m), special=False)
        if definite:
            return (x @ np.conj(x.swapaxes(-1, -2)) + 3 * n * np.eye(n)).astype(x.dtype)
        return (x + (6 * np.eye(n, m) if square else 0)).astype(x.dtype)

    return draw


def of(draw: Callable[[Rng], Any], **kwargs: Any) -> Draw:
    return lambda rng: Call((draw(rng),), kwargs, loose=100)


def within(low: float, high: float) -> Callable[[Any], Any]:
    """Numbers folded into an interval."""

    def change(x: Any) -> Any:
        if x.dtype.kind == "c":
            return x
        return (low + np.abs(np.where(np.isfinite(x), x, 1)) % (high - low)).astype(x.dtype)

    return change


def few(x: Any) -> Any:
    return np.abs(x % 5).astype(x.dtype) if x.dtype.kind != "c" else x


def nonzero_ints(x: Any) -> Any:
    return np.where(x == 0, 2, x).astype(x.dtype) if x.dtype.kind in "iu" else x


def _pair_of(
    rng: Rng, dtypes: Sequence[str], first: tuple[int, ...], second: tuple[int, ...]
) -> tuple[Any, Any]:
    x = array(rng, dtypes, first, special=False)
    return x, array(rng, (str(x.dtype),), second, special=False)


def _matmul(rng: Rng) -> Call:
    n, m, k = (int(v) for v in rng.integers(1, 5, 3))
    first, second = [
        ((n, m), (m, k)),
        ((m,), (m, k)),
        ((n, m), (m,)),
        ((m,), (m,)),
        ((3, n, m), (m, k)),
        ((2, 1, n, m), (3, m, k)),
    ][rng.integers(0, 6)]
    return Call(_pair_of(rng, NUMBERS, first, second), loose=10)


def _tensordot(rng: Rng) -> Call:
    x, y = _pair_of(rng, NUMBERS, (2, 3, 4), (4, 3, 2))
    axes: Any = [0, 1, ((2, 1), (0, 1)), ((0,), (2,)), ((-1,), (0,))][rng.integers(0, 5)]
    return Call((x, y), {"axes": axes}, loose=10)


def _vecdot(rng: Rng) -> Call:
    of = shape(rng, 1, 3, 1)
    return Call(_pair_of(rng, NUMBERS, of, of), {"axis": -1}, loose=10)


def _solve(rng: Rng) -> Call:
    x = matrices()(rng)
    right = array(
        rng, (str(x.dtype),), (x.shape[-1],) if rng.random() < 0.4 else (*x.shape[:-1], 2), special=False
    )
    return Call((x, right), loose=100)


def _arrays(rng: Rng, n: int = 3) -> tuple[list[Any], int]:
    of = list(shape(rng, 1, 3, 1))
    axis = int(rng.integers(0, len(of)))
    first = array(rng, ALL, tuple(of))
    return [first, *(array(rng, kin(first.dtype, ALL), tuple(of)) for _ in range(n - 1))], axis


def _concat(rng: Rng) -> Call:
    xs, axis = _arrays(rng)
    return Call((xs,), {"axis": None if rng.random() < 0.2 else axis})


def _stack(rng: Rng) -> Call:
    xs, axis = _arrays(rng)
    return Call((xs,), {"axis": axis})


def _roll(rng: Rng) -> Call:
    x, axis = along(ALL)(rng)
    if rng.random() < 0.3:
        return Call((x, int(rng.integers(-5, 6))))
    return Call((x, int(rng.integers(-5, 6))), {"axis": axis})


def _repeat(rng: Rng) -> Call:
    x, axis = along(ALL)(rng)
    if rng.random() < 0.3:
        return Call((x, int(rng.integers(0, 4))))
    counts = rng.integers(0, 3, x.shape[axis]) if rng.random() < 0.5 else int(rng.integers(0, 4))
    return Call((x, counts), {"axis": axis})


def _reshape(rng: Rng) -> Call:
    x = array(rng, ALL, (2, 3, 4))
    return Call(
        (
            x if rng.random() < 0.5 else x.swapaxes(0, 2),
            [(24,), (4, -1), (2, 1, 12), (3, 8)][rng.integers(0, 4)],
        )
    )


def _squeeze(rng: Rng) -> Call:
    return Call((array(rng, ALL, (1, 3, 1)), [0, 2, -1, (0, 2), (0,)][rng.integers(0, 5)]))


def _moveaxis(rng: Rng) -> Call:
    x = array(rng, ALL, (2, 3, 4))
    pairs: list[tuple[Any, Any]] = [(0, -1), (2, 0), ((0, 1), (2, 0)), (1, 1)]
    return Call((x, *pairs[rng.integers(0, 4)]))


def _flip(rng: Rng) -> Call:
    x = array(rng, ALL)
    axes: list[Any] = [None] + ([axis_of(rng, x), (axis_of(rng, x),)] if x.ndim else [])
    return Call((x,), {"axis": axes[rng.integers(0, len(axes))]})


def _tile(rng: Rng) -> Call:
    return Call((array(rng, ALL), tuple(int(n) for n in rng.integers(0, 3, rng.integers(0, 4)))))


def _broadcast_to(rng: Rng) -> Call:
    x = array(rng, ALL, (3, 1))
    return Call((x, [(3, 1), (3, 4), (2, 3, 1), (0, 3, 4)][rng.integers(0, 4)]))


def _where(rng: Rng) -> Call:
    x = array(rng, ALL)
    condition = partner(rng, x, ("bool",))
    y: Any = partner(rng, x, kin(x.dtype, ALL))
    return Call((condition, x, y))


def _take(rng: Rng) -> Call:
    x, axis = along(ALL)(rng)
    n = x.shape[axis]
    return Call((x, rng.integers(-n, n, 3).astype(str(rng.choice(["int64", "int32"])))), {"axis": axis})


def _take_along(rng: Rng) -> Call:
    x, axis = along(ALL)(rng)
    places = list(x.shape)
    places[axis] = 2
    n = x.shape[axis]
    return Call((x, rng.integers(-n, n, places)), {"axis": axis})


def _sorted(rng: Rng) -> Call:
    x, axis = along(INTS + REALS, special=False)(rng)
    return Call((x,), {"axis": axis, **({"stable": True} if rng.random() < 0.5 else {})})


def _searchsorted(rng: Rng) -> Call:
    ordered = np.sort(array(rng, INTS + REALS, (6,), special=False))
    values = array(rng, (str(ordered.dtype),), shape(rng), special=False)
    return Call((ordered, values), {"side": str(rng.choice(["left", "right"]))})


def _clip(rng: Rng) -> Call:
    x = array(rng, INTS + REALS)
    bounds: list[Any] = [
        None,
        1,
        2.5 if x.dtype.kind == "f" else 2,
        partner(rng, x, (str(x.dtype),), special=False),
    ]
    low, high = bounds[rng.integers(0, 4)], bounds[rng.integers(0, 4)]
    if low is None and high is None:
        low = 0
    return Call((x, low, high))


def _cumulative(rng: Rng) -> Call:
    x, axis = along(NUMBERS, special=False, small=4)(rng)
    kwargs: dict[str, Any] = {"axis": axis, "include_initial": bool(rng.random() < 0.4)}
    return Call((x,), kwargs, loose=10)


def _diff(rng: Rng) -> Call:
    x, axis = along(NUMBERS)(rng)
    kwargs: dict[str, Any] = {"axis": axis, "n": int(rng.integers(0, 3))}
    if kwargs["n"] and rng.random() < 0.4:  # NumPy joins nothing where nothing is subtracted
        kwargs[str(rng.choice(["prepend", "append"]))] = x
    return Call((x,), kwargs)


def _astype(rng: Rng) -> Call:
    x = array(rng, ALL, special=False)
    to = [d for d in ALL if x.dtype.kind != "c" or d in COMPLEX]
    return Call((np.abs(x).astype(x.dtype) if x.dtype.kind in "if" else x, np.dtype(str(rng.choice(to)))))


def _arange(rng: Rng) -> Call:
    start, stop, step = (int(v) for v in (*rng.integers(-5, 9, 2), rng.choice([-2, -1, 1, 2, 3])))
    dtype = np.dtype(str(rng.choice(["int64", "int32", "float32", "float64"])))
    cases: list[tuple[Any, ...]] = [(stop,), (start, stop), (start, stop, step), (0, stop, 0.25)]
    args = cases[rng.integers(0, 4)]
    return Call(args, {"dtype": np.dtype("float64") if isinstance(args[-1], float) else dtype})


def _linspace(rng: Rng) -> Call:
    start, stop = (float(v) for v in rng.normal(size=2) * 4)
    dtype = np.dtype(str(rng.choice(FLOATS)))
    ends: tuple[Any, Any] = (start + 1j, stop) if dtype.kind == "c" else (start, stop)
    return Call(
        (*ends, int(rng.integers(0, 6))), {"dtype": dtype, "endpoint": bool(rng.random() < 0.6)}, loose=10
    )


def _made(values: bool, *, filled: bool = False) -> Draw:
    def draw(rng: Rng) -> Call:
        dtype = np.dtype(str(rng.choice(ALL)))
        fill = ({"b": True, "i": 3, "u": 3, "f": 2.5, "c": 1j}[dtype.kind],) if filled else ()
        return Call((shape(rng), *fill), {"dtype": dtype}, values)

    return draw


def _like(values: bool, *, filled: bool = False) -> Draw:
    def draw(rng: Rng) -> Call:
        x = array(rng, ALL)
        fill = ({"b": True, "i": 3, "u": 3, "f": 2.5, "c": 1j}[x.dtype.kind],) if filled else ()
        return Call((x, *fill), {}, values)

    return draw


def _eye(rng: Rng) -> Call:
    n, m = (int(v) for v in rng.integers(0, 5, 2))
    return Call(
        (n,) if rng.random() < 0.3 else (n, m),
        {"k": int(rng.integers(-3, 4)), "dtype": np.dtype(str(rng.choice(ALL)))},
    )


def _meshgrid(rng: Rng) -> Call:
    dtype = (str(rng.choice(NUMBERS)),)
    xs = tuple(array(rng, dtype, (int(n),)) for n in rng.integers(1, 4, rng.integers(1, 4)))
    return Call(xs, {"indexing": str(rng.choice(["xy", "ij"]))})


def _asarray(rng: Rng) -> Call:
    x = array(rng, ALL, special=False)
    return Call((x.tolist() if rng.random() < 0.5 else x,), {"dtype": x.dtype})


def _dtypes(rng: Rng, n: int) -> list[Any]:
    first = str(rng.choice(ALL))
    return [np.dtype(first), *(np.dtype(str(rng.choice(kin(first, ALL)))) for _ in range(n - 1))]


def _result_type(rng: Rng) -> Call:
    return Call(tuple(np.zeros(2, d) if rng.random() < 0.5 else d for d in _dtypes(rng, 3)))


def _isdtype(rng: Rng) -> Call:
    kinds: list[Any] = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
                        "numeric", ("bool", "real floating"), np.dtype("int32"),
                        (np.dtype("float32"), "integral")]  # fmt: skip
    return Call((np.dtype(str(rng.choice(ALL))), kinds[rng.integers(0, len(kinds))]))


def _permute(rng: Rng) -> Call:
    x = array(rng, ALL)
    return Call((x, tuple(int(k) for k in rng.permutation(x.ndim))))


def _norm(rng: Rng) -> Call:
    x, axis = along(FLOATS, special=False)(rng)
    kwargs: dict[str, Any] = {"axis": axis, "ord": [1, 2, 3, np.inf, -np.inf, 0][rng.integers(0, 6)]}
    return Call((x,), {**kwargs, "keepdims": bool(rng.random() < 0.5)}, loose=10)


def _matrix_norm(rng: Rng) -> Call:
    x = matrices(square=False)(rng)
    return Call((x,), {"ord": ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf][rng.integers(0, 8)],
                       "keepdims": bool(rng.random() < 0.5)}, loose=100)  # fmt: skip


def _cross(rng: Rng) -> Call:
    return Call(_pair_of(rng, NUMBERS, (2, 3), (2, 3)), {"axis": -1}, loose=10)


def _fft(dtypes: Sequence[str]) -> Draw:
    def draw(rng: Rng) -> Call:
        x, axis = along(dtypes, special=False, least=2)(rng)
        n = [None, 3, 6][rng.integers(0, 3)]
        return Call(
            (x,), {"axis": axis, "n": n, "norm": str(rng.choice(["backward", "ortho", "forward"]))}, loose=100
        )

    return draw


def _fftn(dtypes: Sequence[str]) -> Draw:
    def draw(rng: Rng) -> Call:
        x = array(rng, dtypes, (3, 4, 5), special=False)
        axes = [(0, 1), (1, 2), (0, 2), (2,)][rng.integers(0, 4)]
        s = None if rng.random() < 0.5 else tuple(int(v) for v in rng.integers(2, 6, len(axes)))
        return Call((x,), {"s": s, "axes": axes, "norm": str(rng.choice(["backward", "ortho"]))}, loose=100)

    return draw


def by_axes(dtypes: Sequence[str]) -> Draw:
    def draw(rng: Rng) -> Call:
        x, axis = along(dtypes)(rng)
        return Call((x,), {"axes": [None, axis, (axis,)][rng.integers(0, 3)]})

    return draw


def _freq(rng: Rng) -> Call:
    return Call((int(rng.integers(1, 9)),), {"d": float(rng.choice([1.0, 0.5, 0.1]))}, loose=10)


def _triangle(rng: Rng) -> Call:
    return Call((array(rng, ALL, (*shape(rng, 0, 1), 3, 4)),), {"k": int(rng.integers(-3, 4))})


plain = partial(unary, NUMBERS)

DRAWS: dict[str, Draw] = {
    # creation
    "arange": _arange, "asarray": _asarray, "empty": _made(False), "empty_like": _like(False), "eye": _eye,
    "from_dlpack": unary(ALL), "full": _made(True, filled=True), "full_like": _like(True, filled=True),
    "linspace": _linspace, "meshgrid": _meshgrid, "ones": _made(True), "ones_like": _like(True),
    "tril": _triangle, "triu": _triangle, "zeros": _made(True), "zeros_like": _like(True),
    # dtypes
    "astype": _astype, "broadcast_arrays": lambda rng: Call((x := array(rng, ALL), partner(rng, x, ALL))),
    "broadcast_to": _broadcast_to, "can_cast": lambda rng: Call(tuple(_dtypes(rng, 2))),
    "finfo": lambda rng: Call((np.dtype(str(rng.choice(FLOATS))),)),
    "iinfo": lambda rng: Call((np.dtype(str(rng.choice(INTS))),)), "isdtype": _isdtype,
    "result_type": _result_type,
    # element by element
    "abs": plain(), "acos": unary(FLOATS, within(-1, 1)), "acosh": unary(FLOATS, within(1, 9)),
    "add": binary(NUMBERS, special=False), "asin": unary(FLOATS, within(-1, 1)), "asinh": unary(FLOATS),
    "atan": unary(FLOATS),
    "atan2": binary(REALS), "atanh": unary(FLOATS, within(-0.9, 0.9)), "bitwise_and": binary(("bool", *INTS)),
    "bitwise_invert": unary(("bool", *INTS)), "bitwise_left_shift": binary(INTS, few),
    "bitwise_or": binary(("bool", *INTS)), "bitwise_right_shift": binary(INTS, few),
    "bitwise_xor": binary(("bool", *INTS)), "ceil": unary(INTS + REALS), "clip": _clip, "conj": plain(),
    "copysign": binary(REALS), "cos": unary(FLOATS), "cosh": unary(FLOATS),
    "divide": binary(FLOATS, special=False), "equal": binary(ALL), "exp": unary(FLOATS), "expm1": unary(FLOATS),
    "floor": unary(INTS + REALS), "floor_divide": binary(INTS + REALS, nonzero_ints, special=False),
    "greater": binary(INTS + REALS), "greater_equal": binary(INTS + REALS), "hypot": binary(REALS),
    "imag": unary(COMPLEX), "isfinite": plain(), "isinf": plain(), "isnan": plain(),
    "less": binary(INTS + REALS), "less_equal": binary(INTS + REALS), "log": unary(FLOATS, within(0.1, 9)),
    "log1p": unary(FLOATS, within(0, 9)), "log2": unary(FLOATS, within(0.1, 9)),
    "log10": unary(FLOATS, within(0.1, 9)), "logaddexp": binary(REALS), "logical_and": binary(("bool",)),
    "logical_not": unary(("bool",)), "logical_or": binary(("bool",)), "logical_xor": binary(("bool",)),
    "maximum": binary(INTS + REALS), "minimum": binary(INTS + REALS),
    "multiply": binary(NUMBERS, special=False), "negative": plain(), "nextafter": binary(REALS),
    "not_equal": binary(ALL), "positive": plain(), "pow": binary(INTS + REALS, few, special=False, small=4),
    "real": plain(), "reciprocal": unary(FLOATS, special=False),
    "remainder": binary(INTS + REALS, nonzero_ints, special=False), "round": plain(), "sign": plain(),
    "signbit": unary(REALS), "sin": unary(FLOATS), "sinh": unary(FLOATS), "square": plain(),
    "sqrt": unary(FLOATS, within(0, 9)), "subtract": binary(NUMBERS, special=False), "tan": unary(FLOATS),
    "tanh": unary(FLOATS), "trunc": unary(INTS + REALS),
    # indexing, products
    "take": _take, "take_along_axis": _take_along, "matmul": _matmul,
    "matrix_transpose": unary(ALL, lambda x: np.broadcast_to(x, (2, 3, *x.shape)) if x.ndim < 2 else x),
    "tensordot": _tensordot, "vecdot": _vecdot,
    # arrangements
    "concat": _concat,
    "expand_dims": lambda rng: Call((x := array(rng, ALL),), {"axis": int(rng.integers(-x.ndim - 1, x.ndim + 1))}),
    "flip": _flip, "moveaxis": _moveaxis, "permute_dims": _permute, "repeat": _repeat, "reshape": _reshape,
    "roll": _roll, "squeeze": _squeeze, "stack": _stack, "tile": _tile, "unstack": by_axis(along(ALL)),
    # searching, sets, sorting
    "argmax": reduced(INTS + REALS, several=False, least=1, special=False),
    "argmin": reduced(INTS + REALS, several=False, least=1, special=False), "count_nonzero": reduced(NUMBERS),
    "nonzero": unary(ALL, lambda x: x.reshape(-1) if not x.ndim else x), "searchsorted": _searchsorted,
    "where": _where, "unique_all": unary(INTS + REALS, special=False),
    "unique_counts": unary(INTS + REALS, special=False), "unique_inverse": unary(INTS + REALS, special=False),
    "unique_values": unary(INTS + REALS, special=False), "argsort": _sorted, "sort": _sorted,
    # over axes
    "cumulative_prod": _cumulative, "cumulative_sum": _cumulative, "max": reduced(INTS + REALS, least=1),
    "mean": reduced(FLOATS, least=1), "min": reduced(INTS + REALS, least=1),
    "prod": reduced(NUMBERS, special=False, small=4), "std": reduced(REALS, least=1, special=False),
    "sum": reduced(NUMBERS, special=False), "var": reduced(REALS, least=1, special=False), "all": reduced(ALL),
    "any": reduced(ALL), "diff": _diff,
    # linalg
    "linalg.cholesky": of(matrices(definite=True)), "linalg.cross": _cross, "linalg.det": of(matrices()),
    "linalg.diagonal": of(matrices(ALL[1:], square=False)), "linalg.eigh": of(matrices(definite=True)),
    "linalg.eigvalsh": of(matrices(definite=True)), "linalg.inv": of(matrices()), "linalg.matmul": _matmul,
    "linalg.matrix_norm": _matrix_norm,
    "linalg.matrix_power": lambda rng: Call((matrices()(rng), int(rng.integers(-2, 4))), loose=1000),
    "linalg.matrix_rank": of(matrices()), "linalg.matrix_transpose": of(matrices(square=False)),
    "linalg.outer": lambda rng: Call(_pair_of(rng, NUMBERS, (3,), (4,))),
    "linalg.pinv": of(matrices(square=False)), "linalg.qr": of(matrices(square=False)),
    "linalg.slogdet": of(matrices()), "linalg.solve": _solve, "linalg.svd": of(matrices(square=False)),
    "linalg.svdvals": of(matrices(square=False)), "linalg.tensordot": _tensordot,
    "linalg.trace": of(matrices(NUMBERS, square=False)), "linalg.vecdot": _vecdot, "linalg.vector_norm": _norm,
    # fft
    "fft.fft": _fft(FLOATS), "fft.ifft": _fft(FLOATS), "fft.rfft": _fft(REALS), "fft.irfft": _fft(COMPLEX),
    "fft.hfft": _fft(COMPLEX), "fft.ihfft": _fft(REALS), "fft.fftn": _fftn(FLOATS), "fft.ifftn": _fftn(FLOATS),
    "fft.rfftn": _fftn(REALS), "fft.irfftn": _fftn(COMPLEX), "fft.fftfreq": _freq, "fft.rfftfreq": _freq,
    "fft.fftshift": by_axes(FLOATS), "fft.ifftshift": by_axes(FLOATS),
}  # fmt: skip

_FAR, _TURNED = np.array([complex(np.inf, 0)]), np.array([1j])
_ALPHA = (
    "as PyTorch's, it multiplies the second argument by a number first, which makes nan of the imaginary part of an"
    " infinite complex number; finite numbers are right"
)
#: What is not the standard's: why, and a call that shows it.
WHY: dict[str, tuple[str, Call]] = {
    "add": (_ALPHA, Call((_TURNED, _FAR))),
    "subtract": (_ALPHA, Call((_TURNED, _FAR))),
}
#: What holds of all functions, though a standard's reader may expect otherwise.
NOTES = (
    "Unsigned integers are `uint8` alone: no operator has wider ones. Sums, products and counts of it are `int64`.",
    "The default dtypes are `float32`, `complex64` and `int64`; `float16` and `bfloat16` are there as well.",
    "A dtype is a string (`xp.float32 == 'f32'`, equal to `x.dtype`); NumPy's and PyTorch's are understood as well.",
    'There is one device, `"cpu"`, and an array may have 16 axes.',
    "Kinds of numbers that the standard does not mix (integers with floats) mix as in PyTorch: the float's dtype.",
    "`x.size` and `x.shape` are known for every array; nothing is lazy.",
    "Operators (`x + y`) take an array of rank 0 as PyTorch does, as weak as a number of its kind; functions do not.",
    "An int or a slice beside positions in a subscript makes a view first, as in PyTorch.",
    "Vectors of decompositions (`eigh`, `svd`, `qr`) are held to what they must do: their signs are nobody's to say.",
)


# ---- a call, here and there ------------------------------------------------------------------------------------------


def namespace(name: str, root: Any) -> Any:
    for part in name.split("."):
        root = getattr(root, part)
    return root


def numpys(name: str) -> Any:
    """NumPy has what the standard moved to `linalg` there, and some of it beside."""
    if name in ("fft.fftfreq", "fft.rfftfreq"):
        return lambda n, d: namespace(name, np)(n, d=d).astype(np.float32)
    if name == "linalg.matrix_norm":
        return lambda x, ord, keepdims: np.linalg.norm(x, ord, (-2, -1), keepdims)
    if name in ("sort", "argsort"):
        return lambda x, **kwargs: namespace(name, np)(x, **{**kwargs, "stable": True})
    if name == "unique_values":  # NumPy's are in no order
        return lambda x: np.sort(np.unique_values(x))
    return namespace(name, np)


def ours(value: Any) -> Any:
    """NumPy's arguments as ours."""
    import opwright as ow

    if isinstance(value, np.ndarray | np.generic):  # NumPy makes scalars of arrays of rank 0
        return ow.tensor(value)
    if isinstance(value, np.dtype):
        return OURS[value.name]
    if isinstance(value, list | tuple) and any(isinstance(v, np.ndarray | np.dtype) for v in value):
        return type(value)(ours(v) for v in value)
    return value


def differs(name: str, call: Call) -> str:
    """What our result has otherwise; empty: nothing."""
    import opwright.array_api as xp

    with np.errstate(all="ignore"):
        want = numpys(name)(*call.args, **call.kwargs)
    got = namespace(name, xp)(*map(ours, call.args), **{k: ours(v) for k, v in call.kwargs.items()})
    if name in ("finfo", "iinfo"):
        fields = ("bits", "max", "min") + (("eps", "smallest_normal") if name == "finfo" else ())
        wrong = [f for f in fields if float(getattr(want, f)) != float(getattr(got, f))]
        return f"{wrong} differ" if wrong or OURS[want.dtype.name] != got.dtype else ""
    if (decomposed := _decomposed(name, call, got)) is not None:
        return decomposed
    return _compared(got, want, call)


def _compared(got: Any, want: Any, call: Call) -> str:
    if isinstance(want, tuple | list):
        if len(got) != len(want):
            return f"{len(want)} results wanted, got {len(got)}"
        return next((d for g, w in zip(got, want, strict=True) if (d := _compared(g, w, call))), "")
    if isinstance(want, bool | np.dtype):
        known = OURS[want.name] if isinstance(want, np.dtype) else want
        return "" if got == known else f"{known} wanted, got {got}"
    want = np.asarray(want)
    dtype = "i64" if want.dtype.kind == "u" and want.dtype.itemsize > 1 else OURS[want.dtype.name]
    if got.dtype != dtype:
        return f"dtype {dtype} wanted, got {got.dtype}"
    if got.shape != want.shape:
        return f"shape {want.shape} wanted, got {got.shape}"
    if not call.values:
        return ""
    tol = {"f32": 4e-6, "c64": 8e-6, "f64": 1e-13, "c128": 2e-13}.get(dtype, 0) * call.loose
    finite = np.abs(want[np.isfinite(want)]) if want.dtype.kind in "fc" else np.zeros(0)
    near = np.isclose(
        got.numpy(), want, rtol=tol, atol=tol * (finite.max() if finite.size else 1), equal_nan=True
    )
    if near.all():
        return ""
    at = tuple(int(k[0]) for k in np.nonzero(~near)) if want.ndim else ()
    return f"{want[at]} wanted, got {got.numpy()[at]}"


def _decomposed(name: str, call: Call, got: Any) -> str | None:
    """Whether factors make the matrix; None where nothing is decomposed."""
    kind = name.removeprefix("linalg.")
    if kind not in ("eigh", "svd", "qr"):
        return None
    x = call.args[0]
    parts = [p.numpy() for p in got]
    if kind == "eigh":
        made = parts[1] * parts[0][..., None, :] @ np.conj(parts[1].swapaxes(-1, -2))
    elif kind == "qr":
        made = parts[0] @ parts[1]
    else:
        k = parts[1].shape[-1]
        made = parts[0][..., :, :k] * parts[1][..., None, :] @ parts[2][..., :k, :]
    tol = 1e-4 if x.dtype in ("float32", "complex64") else 1e-11
    if made.shape != x.shape or not np.allclose(made, x, rtol=tol, atol=tol * 10):
        return "the factors do not make the matrix"
    want = {
        "float32": ("f32", "f32"),
        "complex64": ("c64", "f32"),
        "float64": ("f64", "f64"),
        "complex128": ("c128", "f64"),
    }
    dtypes = {p.dtype for p in got}
    return "" if dtypes <= set(want[str(x.dtype)]) else f"dtypes {sorted(dtypes)}"


def trouble(name: str, seed: int) -> str:
    """What is wrong with one drawn call; empty: nothing."""
    call = DRAWS[name](np.random.default_rng([seed, *name.encode()]))
    try:
        return differs(name, call)
    except Exception as error:  # whatever it is, the function does not hold
        return f"{type(error).__name__}: {error}".splitlines()[0]


# ---- the object ------------------------------------------------------------------------------------------------------

ATTRIBUTES = ("dtype", "device", "mT", "ndim", "shape", "size", "T")
METHODS = (
    "__abs__", "__add__", "__and__", "__array_namespace__", "__bool__", "__complex__", "__dlpack__",
    "__dlpack_device__", "__eq__", "__float__", "__floordiv__", "__ge__", "__getitem__", "__gt__",
    "__index__", "__int__", "__invert__", "__le__", "__lshift__", "__lt__", "__matmul__", "__mod__",
    "__mul__", "__ne__", "__neg__", "__or__", "__pos__", "__pow__", "__rshift__", "__setitem__", "__sub__",
    "__truediv__", "__xor__", "to_device", "__iadd__", "__radd__", "__isub__", "__rsub__", "__imul__",
    "__rmul__", "__itruediv__", "__rtruediv__", "__ifloordiv__", "__rfloordiv__", "__ipow__", "__rpow__",
    "__imod__", "__rmod__", "__rmatmul__", "__iand__", "__rand__", "__ior__", "__ror__", "__ixor__",
    "__rxor__", "__ilshift__", "__rlshift__", "__irshift__", "__rrshift__", "__imatmul__",
)  # fmt: skip
CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")


def absent() -> list[str]:
    """Names of the standard that are not there."""
    import opwright as ow
    import opwright.array_api as xp

    out = [f"Tensor.{n}" for n in (*ATTRIBUTES, *METHODS) if not hasattr(ow.Tensor, n)]
    out += [n for n in CONSTANTS if not hasattr(xp, n)]
    for name in DRAWS:
        try:
            namespace(name, xp)
        except AttributeError:
            out.append(name)
    return out


# ---- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    """docs/array_api.md."""
    lines = [
        "# The array API standard",
        "",
        "`x.__array_namespace__()` (or `import opwright.array_api as xp`) is the namespace of the array API standard,",
        "2024.12, with its extensions `linalg` and `fft`. Every function is a call of proven operators. Made by",
        f"`python -m tests.conformance.array_api`, which calls each {CALLS} times with drawn arguments and compares",
        "values, dtypes and shapes with NumPy's namespace; tests/conformance/test_array_api.py draws others.",
        "",
        f"{len(DRAWS)} functions, {len(METHODS)} methods and {len(ATTRIBUTES)} attributes of the standard are there;"
        f" {len(WHY)} functions do not hold everywhere.",
        "",
        "## What does not hold",
        "",
        "| function | where, and why |",
        "| --- | --- |",
        *(f"| `{n}` | {why} |" for n, (why, _) in sorted(WHY.items())),
        "",
        "## What a reader of the standard may not expect",
        "",
        *(f"- {note}" for note in NOTES),
    ]
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> int:
    wrong = [f"{n}: is not there" for n in absent()]
    for name in names or DRAWS:
        why = next((f"call {k}: {t}" for k in range(CALLS) if (t := trouble(name, k))), "")
        if why:
            wrong.append(f"{name}: {why}")
    wrong += [
        f"{n}: holds where `WHY` says it does not" for n, (_, call) in WHY.items() if not differs(n, call)
    ]
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    if wrong or names:
        return 1 if wrong else 0
    from opwright.files import write_text

    write_text(PAGE, page())
    print(f"{PAGE.name}: {len(DRAWS)} functions, {len(WHY)} do not hold everywhere")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
