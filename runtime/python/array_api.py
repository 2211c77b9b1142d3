"""The array API standard (2024.12) over Tensor: `xp = x.__array_namespace__()`, or `import opwright.array_api as xp`.

Each function has the standard's name, arguments and meaning; what does not hold is in docs/array_api.md, which
`python -m tests.conformance.array_api` writes.  The extensions are array_linalg.py and array_fft.py.  Names of
Python's own (`abs`, `all`, `bool`, …) mean the standard's here: `builtins` has the others.

To add one: a function here, its name in `__all__`, and a case in tests/conformance/array_api.py.

May import: `.array_fft`, `.array_linalg`, `.aliases`, `.aten`, `.exceptions`, `.load`, `.methods`, `.registry`.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from . import array_fft as fft
from . import array_linalg as linalg
from .aliases import ORDER
from .array_linalg import matmul, matrix_transpose, tensordot, vecdot
from .aten import call_aten
from .exceptions import OpTypeError, OpValueError
from .load import core
from .methods import apply, op

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add", "all", "any",
    "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "bfloat16", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "bool", "broadcast_arrays", "broadcast_to", "can_cast", "ceil", "clip", "complex64",
    "complex128", "concat", "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod",
    "cumulative_sum", "diff", "divide", "e", "empty", "empty_like", "equal", "exp", "expand_dims", "expm1",
    "eye", "fft", "finfo", "flip", "float16", "float32", "float64", "floor", "floor_divide", "from_dlpack",
    "full", "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag", "inf", "int8", "int16",
    "int32", "int64", "isdtype", "isfinite", "isinf", "isnan", "less", "less_equal", "linalg", "linspace",
    "log", "log1p", "log2", "log10", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor",
    "matmul", "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis",
    "multiply", "nan", "negative", "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like",
    "permute_dims", "pi", "positive", "pow", "prod", "real", "reciprocal", "remainder", "repeat", "reshape",
    "result_type", "roll", "round", "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt",
    "square", "squeeze", "stack", "std", "subtract", "sum", "take", "take_along_axis", "tan", "tanh",
    "tensordot", "tile", "tril", "triu", "trunc", "uint8", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
]  # fmt: skip

Tensor: TypeAlias = Any
Shape: TypeAlias = "int | Sequence[int]"
Axes: TypeAlias = "int | Sequence[int] | None"

__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

bool, uint8, int8, int16, int32, int64 = "bool", "u8", "i8", "i16", "i32", "i64"
float16, bfloat16, float32, float64, complex64, complex128 = "f16", "bf16", "f32", "f64", "c64", "c128"

_SIGNED, _UNSIGNED = ("i8", "i16", "i32", "i64"), ("u8",)
_REAL, _COMPLEX = ("f16", "bf16", "f32", "f64"), ("c64", "c128")
_KINDS = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}


def checked(api_version: str | None) -> Any:
    """This module, for a version of the standard that it speaks."""
    if api_version is not None and api_version not in _VERSIONS:
        raise OpValueError(f"version {api_version} of the array API standard is not spoken; {_VERSIONS} are")
    return sys.modules[__name__]


def _here(device: Any) -> None:
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise OpValueError(f"the device must be cpu, got {device}", hint="there is one device here, cpu")


def _dtype(dtype: Any) -> str:
    return str(core.empty((0,), dtype).dtype)


# ---- what there is ---------------------------------------------------------------------------------------------------


class _Info:
    """What `__array_namespace_info__()` gives."""

    def capabilities(self) -> dict[str, Any]:
        """What may depend on data, and how many axes there may be."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 16}

    def default_device(self) -> str:
        """Where arrays are made."""
        return "cpu"

    def devices(self) -> list[str]:
        """All places that arrays may be."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, str]:
        """What Python's numbers become."""
        _here(device)
        return {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, str]:
        """Dtypes by the standard's names; those of the standard, without f16 and bf16."""
        _here(device)
        return {n: d for n, d in _STANDARD.items() if kind is None or isdtype(d, kind)}


_STANDARD = {
    "bool": bool, "int8": int8, "int16": int16, "int32": int32, "int64": int64, "uint8": uint8, "float32": float32,
    "float64": float64, "complex64": complex64, "complex128": complex128,
}  # fmt: skip


def __array_namespace_info__() -> _Info:  # noqa: N807
    """What the namespace can do."""
    return _Info()


# ---- dtypes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FloatInfo:
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: str


@dataclass(frozen=True)
class _IntInfo:
    bits: int
    max: int
    min: int
    dtype: str


#: bits, bits of the fraction, greatest exponent of two
_FLOATS = {"f16": (16, 10, 15), "bf16": (16, 7, 127), "f32": (32, 23, 127), "f64": (64, 52, 1023)}


def finfo(type: Any, /) -> _FloatInfo:
    """Limits of a dtype of reals, or of the parts of a complex one."""
    dtype = type.dtype if isinstance(type, core.Tensor) else _dtype(type)
    dtype = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    if dtype not in _FLOATS:
        raise OpTypeError(f"finfo: {dtype} holds no floats")
    bits, fraction, top = _FLOATS[dtype]
    greatest = (2.0 - 2.0**-fraction) * 2.0**top
    return _FloatInfo(bits, 2.0**-fraction, greatest, -greatest, 2.0 ** (1 - top), dtype)


def iinfo(type: Any, /) -> _IntInfo:
    """Limits of a dtype of integers."""
    dtype = type.dtype if isinstance(type, core.Tensor) else _dtype(type)
    if dtype not in _SIGNED + _UNSIGNED:
        raise OpTypeError(f"iinfo: {dtype} holds no integers")
    bits = int(dtype[1:])
    low = 0 if dtype in _UNSIGNED else -(2 ** (bits - 1))
    return _IntInfo(bits, low + 2**bits - 1, low, dtype)


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a dtype is one, of a kind, or of one of several."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    name = _dtype(dtype)
    if isinstance(kind, str) and kind in _KINDS:
        return name in _KINDS[kind]
    return name == _dtype(kind)


def _joined(a: str, b: str) -> str:
    """The dtype that holds both."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda d: ORDER[d])
    if ORDER[low] < ORDER[high]:
        # A real beside a complex one keeps its width.
        return "c128" if ORDER[high] == 3 and low == "f64" else high
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    if "u8" in (a, b):
        other = a if b == "u8" else b
        return "i16" if other == "i8" else other
    return builtins.max(a, b, key=lambda d: int(d.lstrip("ibfc")))


def result_type(*arrays_and_dtypes: Any) -> str:
    """The dtype of what these make together; a Python number counts by its kind alone."""
    strong = [
        x.dtype if isinstance(x, core.Tensor) else _dtype(x) for x in arrays_and_dtypes if not _number(x)
    ]
    if not strong:
        raise OpValueError("result_type: an array or a dtype is wanted")
    out = strong[0]
    for dtype in strong[1:]:
        out = _joined(out, dtype)
    for number in (x for x in arrays_and_dtypes if _number(x)):
        if isinstance(number, complex) and ORDER[out] < 3:
            out = "c128" if out == "f64" else "c64"
        elif isinstance(number, float) and ORDER[out] < 2:
            out = "f32"
        elif not isinstance(number, builtins.bool | complex | float) and out == "bool":
            out = "i64"
    return out


def _number(x: Any) -> builtins.bool:
    return isinstance(x, builtins.bool | int | float | complex)


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether a dtype holds every value of another, by the standard's table of promotions."""
    source = from_.dtype if isinstance(from_, core.Tensor) else _dtype(from_)
    return _joined(source, _dtype(to)) == _dtype(to)


def astype(x: Tensor, dtype: Any, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    """In another dtype; a copy unless it says otherwise."""
    _here(device)
    return x.astype(dtype, copy=copy)


# ---- making arrays ---------------------------------------------------------------------------------------------------


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: builtins.bool | None = None
) -> Tensor:
    """A tensor of numbers, nested lists or any array; without a copy where none is needed."""
    _here(device)
    given = isinstance(obj, core.Tensor) or hasattr(obj, "__dlpack__") or hasattr(obj, "__array_interface__")
    if not given:
        if copy is False:
            raise OpValueError("asarray: numbers cannot be taken without a copy")
        return core.tensor(obj, dtype) if dtype is not None else core.tensor(obj)
    x = obj if isinstance(obj, core.Tensor) else core.from_dlpack(obj)
    if dtype is not None and _dtype(dtype) != x.dtype:
        if copy is False:
            raise OpValueError(f"asarray: {x.dtype} cannot become {_dtype(dtype)} without a copy")
        return x.to(dtype)
    return x.clone() if copy else x


def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Tensor:
    """The memory of another library's array."""
    _here(device)
    out = core.from_dlpack(x)
    return out.clone() if copy else out


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Evenly spaced numbers of a half-open interval."""
    _here(device)
    if stop is None:
        start, stop = 0, start
    whole = builtins.all(isinstance(v, int) for v in (start, stop, step))
    wanted = ("i64" if whole else "f32") if dtype is None else _dtype(dtype)
    if (stop - start) * step <= 0:
        return core.empty((0,), wanted)
    return op("arange")(start=start, end=stop, step=step, dtype=wanted)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """So many numbers from one to another."""
    _here(device)
    if isinstance(start, complex) or isinstance(stop, complex):
        start, stop = complex(start), complex(stop)
        parts = [linspace(a, b, num, dtype="f64", endpoint=endpoint)
                 for a, b in ((start.real, stop.real), (start.imag, stop.imag))]  # fmt: skip
        return op("complex")(*parts).to("c64" if dtype is None else dtype)
    wanted = "f32" if dtype is None else _dtype(dtype)
    # In f64, so that the ends of an f32 are what they say; without the end one more, which is left out.
    wide = op("linspace")(start=start, end=stop, steps=num if endpoint else num + 1, dtype="f64")
    return (wide if endpoint else wide[:num]).to(wanted)


def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Unset values."""
    _here(device)
    return core.empty(shape, dtype or "f32")


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value."""
    _here(device)
    return core.full(shape, fill_value, dtype)


def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    return full(shape, 0, dtype=dtype or "f32", device=device)


def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    return full(shape, 1, dtype=dtype or "f32", device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Unset values, as many as another array has."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value, as often as another array has elements."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros, as many as another array has elements."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones, as many as another array has elements."""
    return full_like(x, 1, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    _here(device)
    columns = n_rows if n_cols is None else n_cols
    here = (arange(n_rows).unsqueeze(-1) + k) == arange(columns)
    return here.to(dtype or "f32")


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Zeros above a diagonal."""
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Zeros below a diagonal."""
    return x.triu(k)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of the points of a grid."""
    if indexing not in ("xy", "ij"):
        raise OpValueError(f'meshgrid: `indexing` must be "xy" or "ij", got {indexing!r}')
    n = len(arrays)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    shape = [arrays[k].size for k in order]
    out = []
    for k, x in enumerate(arrays):
        at = order.index(k)
        out.append(x.reshape([-1 if j == at else 1 for j in range(n)]).expand(shape).clone())
    return tuple(out)


# ---- element by element ----------------------------------------------------------------------------------------------


def _promoted(x1: Any, x2: Any) -> tuple[Any, Any]:
    """In the dtype of both: here an array of rank 0 counts as much as any other."""
    tensors = isinstance(x1, core.Tensor) and isinstance(x2, core.Tensor)
    if not tensors or x1.dtype == x2.dtype or (x1.ndim and x2.ndim):
        return x1, x2
    dtype = _joined(x1.dtype, x2.dtype)
    return x1.to(dtype), x2.to(dtype)


def _both(name: str, x1: Any, x2: Any) -> Tensor:
    return apply(name, *_promoted(x1, x2))


def abs(x: Tensor, /) -> Tensor:
    return apply("abs", x)


def acos(x: Tensor, /) -> Tensor:
    return apply("acos", x)


def acosh(x: Tensor, /) -> Tensor:
    return apply("acosh", x)


def add(x1: Any, x2: Any, /) -> Tensor:
    return _both("add", x1, x2)


def asin(x: Tensor, /) -> Tensor:
    return apply("asin", x)


def asinh(x: Tensor, /) -> Tensor:
    return apply("asinh", x)


def atan(x: Tensor, /) -> Tensor:
    return apply("atan", x)


def atan2(x1: Any, x2: Any, /) -> Tensor:
    return _both("atan2", x1, x2)


def atanh(x: Tensor, /) -> Tensor:
    return apply("atanh", x)


def bitwise_and(x1: Any, x2: Any, /) -> Tensor:
    return _both("bitwise_and", x1, x2)


def bitwise_invert(x: Tensor, /) -> Tensor:
    return apply("bitwise_not", x)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    return _both("bitwise_left_shift", x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    return _both("bitwise_or", x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    return _both("bitwise_right_shift", x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    return _both("bitwise_xor", x1, x2)


def _whole(name: str, x: Tensor) -> Tensor:
    """Integers round to themselves."""
    return x.clone() if ORDER[x.dtype] < 2 else apply(name, x)


def ceil(x: Tensor, /) -> Tensor:
    return _whole("ceil", x)


def floor(x: Tensor, /) -> Tensor:
    return _whole("floor", x)


def trunc(x: Tensor, /) -> Tensor:
    return _whole("trunc", x)


def round(x: Tensor, /) -> Tensor:
    """Halves to the even one; both parts of a complex number."""
    if x.dtype in _COMPLEX:
        return op("complex")(apply("round", real(x)), apply("round", imag(x)))
    return _whole("round", x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Kept between two bounds, in the array's dtype."""
    out = x
    for bound, name in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            # A bound of another kind of numbers must not change the array's.
            known = bound.to(x.dtype) if isinstance(bound, core.Tensor) and bound.dtype != x.dtype else bound
            out = apply(name, out, known)
    return out.clone() if out is x else out


def conj(x: Tensor, /) -> Tensor:
    return op("conj_physical")(x) if x.dtype in _COMPLEX else x.clone()


def copysign(x1: Any, x2: Any, /) -> Tensor:
    return _both("copysign", x1, x2)


def cos(x: Tensor, /) -> Tensor:
    return apply("cos", x)


def cosh(x: Tensor, /) -> Tensor:
    return apply("cosh", x)


def divide(x1: Any, x2: Any, /) -> Tensor:
    return _both("div", x1, x2)


def equal(x1: Any, x2: Any, /) -> Tensor:
    return _both("eq", x1, x2)


def exp(x: Tensor, /) -> Tensor:
    return apply("exp", x)


def expm1(x: Tensor, /) -> Tensor:
    return apply("expm1", x)


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    return _both("floor_divide", x1, x2)


def greater(x1: Any, x2: Any, /) -> Tensor:
    return _both("gt", x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> Tensor:
    return _both("ge", x1, x2)


def hypot(x1: Any, x2: Any, /) -> Tensor:
    return _both("hypot", x1, x2)


def imag(x: Tensor, /) -> Tensor:
    return op("imag")(x)


def isfinite(x: Tensor, /) -> Tensor:
    return apply("isfinite", x)


def isinf(x: Tensor, /) -> Tensor:
    return apply("isinf", x)


def isnan(x: Tensor, /) -> Tensor:
    return apply("isnan", x)


def less(x1: Any, x2: Any, /) -> Tensor:
    return _both("lt", x1, x2)


def less_equal(x1: Any, x2: Any, /) -> Tensor:
    return _both("le", x1, x2)


def log(x: Tensor, /) -> Tensor:
    return apply("log", x)


def log1p(x: Tensor, /) -> Tensor:
    return apply("log1p", x)


def log2(x: Tensor, /) -> Tensor:
    return apply("log2", x)


def log10(x: Tensor, /) -> Tensor:
    return apply("log10", x)


def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    return _both("logaddexp", x1, x2)


def logical_and(x1: Any, x2: Any, /) -> Tensor:
    return _both("logical_and", x1, x2)


def logical_not(x: Tensor, /) -> Tensor:
    return apply("logical_not", x)


def logical_or(x1: Any, x2: Any, /) -> Tensor:
    return _both("logical_or", x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    return _both("logical_xor", x1, x2)


def maximum(x1: Any, x2: Any, /) -> Tensor:
    return _both("maximum", x1, x2)


def minimum(x1: Any, x2: Any, /) -> Tensor:
    return _both("minimum", x1, x2)


def multiply(x1: Any, x2: Any, /) -> Tensor:
    return _both("mul", x1, x2)


def negative(x: Tensor, /) -> Tensor:
    return apply("neg", x)


def nextafter(x1: Any, x2: Any, /) -> Tensor:
    return _both("nextafter", x1, x2)


def not_equal(x1: Any, x2: Any, /) -> Tensor:
    return _both("ne", x1, x2)


def positive(x: Tensor, /) -> Tensor:
    return x.clone()


def pow(x1: Any, x2: Any, /) -> Tensor:
    return _both("pow", x1, x2)


def real(x: Tensor, /) -> Tensor:
    return op("real")(x) if x.dtype in _COMPLEX else x.clone()


def reciprocal(x: Tensor, /) -> Tensor:
    return apply("reciprocal", x)


def remainder(x1: Any, x2: Any, /) -> Tensor:
    return _both("remainder", x1, x2)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; of a complex number its direction; nan of nan."""
    if x.dtype in _COMPLEX:
        return call_aten("aten.sgn.default", x)
    signs = apply("sign", x)
    return op("where")(isnan(x), x, signs) if ORDER[x.dtype] == 2 else signs


def signbit(x: Tensor, /) -> Tensor:
    return apply("signbit", x)


def sin(x: Tensor, /) -> Tensor:
    return apply("sin", x)


def sinh(x: Tensor, /) -> Tensor:
    return apply("sinh", x)


def square(x: Tensor, /) -> Tensor:
    return apply("mul", x, x)


def sqrt(x: Tensor, /) -> Tensor:
    return apply("sqrt", x)


def subtract(x1: Any, x2: Any, /) -> Tensor:
    return _both("sub", x1, x2)


def tan(x: Tensor, /) -> Tensor:
    return apply("tan", x)


def tanh(x: Tensor, /) -> Tensor:
    return apply("tanh", x)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of one array where the condition holds, of another elsewhere."""
    if _number(x1) and _number(x2):
        x1 = core.tensor(x1)
    return op("where")(condition, *_promoted(x1, x2))


# ---- arrangements ----------------------------------------------------------------------------------------------------


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Views of the shape that the arrays have together."""
    return list(call_aten("aten.broadcast_tensors.default", list(arrays)))


def broadcast_to(x: Tensor, /, shape: Shape) -> Tensor:
    return x.broadcast_to(*_listed(shape))


def _listed(axes: Any) -> list[int]:
    return [axes] if isinstance(axes, int) else list(axes)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """One after the other along an axis; without one, all elements in order."""
    dtype = result_type(*arrays)
    xs = [x.to(dtype) for x in arrays]
    if axis is None:
        return op("cat")([x.reshape(-1) for x in xs], dim=0)
    return op("cat")(xs, dim=axis)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    return x.flip(list(range(x.ndim)) if axis is None else _listed(axis)) if x.ndim else x.clone()


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    return x.permute(axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element so often, one number for all or one for each."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    if isinstance(repeats, core.Tensor) and repeats.size == 1 and x.shape[axis] != 1:
        repeats = int(repeats.item())
    which = "self_int" if isinstance(repeats, int) else "self_Tensor"
    return call_aten(f"aten.repeat_interleave.{which}", x, repeats, axis)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: builtins.bool | None = None) -> Tensor:
    """Other extents; `copy=False` is an error where strides do not allow a view."""
    if copy is False:
        return x.view(*_listed(shape))
    out = x.reshape(_listed(shape))
    return out.clone() if copy and out.size and out.data_ptr() == x.data_ptr() else out


def roll(x: Tensor, /, shift: int | Sequence[int], *, axis: Axes = None) -> Tensor:
    if isinstance(shift, int) and isinstance(axis, tuple | list):
        shift = [shift] * len(axis)
    return x.roll(shift, axis) if x.ndim else x.clone()


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """Without axes of extent 1; an error where one has another."""
    for k in _listed(axis):
        if x.shape[k] != 1:
            raise OpValueError(f"squeeze: axis {k} has extent {x.shape[k]}, not 1")
    return x.squeeze(_listed(axis))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    dtype = result_type(*arrays)
    return call_aten("aten.stack.default", [x.to(dtype) for x in arrays], axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    times = list(repetitions)
    return x.tile([*([1] * (x.ndim - len(times))), *times])


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(x.unbind(axis))


# ---- searching, sorting, sets ----------------------------------------------------------------------------------------


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    return x.argmin(axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    return sum(not_equal(x, 0), axis=axis, keepdims=keepdims, dtype="i64")


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Positions of what is not zero, an array for each axis."""
    if x.ndim == 0:
        raise OpValueError("nonzero: an array of at least one axis is wanted")
    places = x.nonzero()
    return tuple(places[:, k] for k in range(x.ndim))


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where values would stand in an array that is in order."""
    if side not in ("left", "right"):
        raise OpValueError(f'searchsorted: `side` must be "left" or "right", got {side!r}')
    ordered = x1 if sorter is None else take(x1, sorter)
    values = x2 if isinstance(x2, core.Tensor) else core.tensor(x2, x1.dtype)
    dtype = result_type(ordered, values)
    return op("bucketize")(values.to(dtype), ordered.to(dtype), right=side == "right")


def sort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    return x.sort(axis, descending).values


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    return x.argsort(axis, descending)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Elements along an axis, by their positions."""
    if axis is None:
        if x.ndim != 1:
            raise OpValueError("take: an axis must be named unless there is one alone")
        axis = 0
    key: list[Any] = [slice(None)] * x.ndim
    key[axis] = indices
    return x[tuple(key)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """An element for each position, along an axis; other axes broadcast."""
    return call_aten("aten.take_along_dim.default", x, _from_zero(indices, x.shape[axis]), axis)


def _from_zero(indices: Tensor, extent: int) -> Tensor:
    wide = indices.to("i64")
    return op("where")(wide < 0, wide + extent, wide)


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The values in order, where each stands first, which one each element is, and how often each occurs."""
    flat = x.reshape(-1)
    values, inverse, counts = op("unique")(flat)
    # The first place of each: places counted from the end, so that the last one written is the first.
    places = op("flip")(arange(flat.size), flags=[1])
    backwards = op("flip")(inverse, flags=[1])
    first = zeros(values.shape, dtype="i64")
    if flat.size:
        first[backwards] = places
    return UniqueAll(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    values, _, counts = op("unique")(x.reshape(-1))
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    values, inverse, _ = op("unique")(x.reshape(-1))
    return UniqueInverse(values, inverse.reshape(x.shape))


def unique_values(x: Tensor, /) -> Tensor:
    return op("unique")(x.reshape(-1))[0]


# ---- over axes -------------------------------------------------------------------------------------------------------


def sum(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    return _over("sum", x, axis, keepdims, dtype=dtype)


def _over(name: str, x: Tensor, axis: Axes, keepdims: builtins.bool, **attrs: Any) -> Tensor:
    if isinstance(axis, tuple | list) and not axis:  # no axis at all: each element by itself
        return getattr(x.unsqueeze(-1), name)(dim=-1, keepdim=False, **attrs)
    return getattr(x, name)(dim=axis, keepdim=keepdims, **attrs)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    axes = list(range(x.ndim)) if axis is None else sorted(k % builtins.max(x.ndim, 1) for k in _listed(axis))
    if not axes:
        return x.unsqueeze(-1).prod(-1, dtype=dtype)
    out = x
    for k in axes:
        out = out.prod(k, True, dtype=dtype)
    return out if keepdims else out.squeeze(axes)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    return _over("mean", x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    return _over("amax", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    return _over("amin", x, axis, keepdims)


def std(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    return _over("std", x, axis, keepdims, correction=correction)


def var(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    return _over("var", x, axis, keepdims, correction=correction)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    return _over("all", x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    return _over("any", x, axis, keepdims)


def _running(name: str, x: Tensor, axis: int | None, dtype: Any, first: Any) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise OpValueError("an axis must be named unless there is one alone")
        axis = 0
    x = x.reshape(1) if x.ndim == 0 else x
    out = getattr(x, name)(axis, dtype=dtype)
    if first is None:
        return out
    shape = [1 if k == axis % x.ndim else n for k, n in enumerate(x.shape)]
    return op("cat")([core.full(shape, first, out.dtype), out], dim=axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> Tensor:
    """Sums of all up to each; with the initial 0 in front where it is asked for."""
    return _running("cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> Tensor:
    """Products of all up to each; with the initial 1 in front where it is asked for."""
    return _running("cumprod", x, axis, dtype, 1 if include_initial else None)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours, n times over."""
    parts = [p for p in (prepend, x, append) if p is not None]
    out = concat(parts, axis=axis) if len(parts) > 1 else x
    return out.diff(n, axis) if n else out.clone()
