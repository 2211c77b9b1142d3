"""The methods of Tensor that are written in Python, by PyTorch's names; `install()` puts them on the class.

Each calls an operator, or what `call_aten` makes of an overload.  The views, conversions to Python and the operators'
symbols are C++ (`runtime/src/py_tensor.cpp`).  NumPy's `axis` and `keepdims` are taken for `dim` and `keepdim`.

To add one: an operator of the same name and arguments, a line in `UNARY` or `BINARY`; an overload whose arguments are
the method's, a line in `BY_ATEN`; else a function of `Methods`.

May import: `.aliases`, `.aten`, `.complexes`, `.exceptions`, `.indexing`, `.load`, `.printing`, `.registry`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from . import indexing, printing, registry
from .aliases import ORDER
from .aten import call_aten
from .complexes import COMPLEXES, has_complex
from .exceptions import OpIndexError, OpTypeError, OpValueError
from .load import core

__all__ = [
    "BINARY",
    "BY_ATEN",
    "IN_PLACE",
    "UNARY",
    "Extremes",
    "Methods",
    "another_way",
    "apply",
    "install",
    "members",
    "op",
]

Tensor: TypeAlias = Any
Axes: TypeAlias = "int | Sequence[int] | None"

#: Methods that are the operator of this name, of the tensor alone.
UNARY = (
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "deg2rad",
    "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "i0", "isfinite", "isinf", "isnan",
    "isneginf", "isposinf", "lgamma", "log", "log10", "log1p", "log2", "logical_not", "neg", "rad2deg", "reciprocal",
    "relu", "rsqrt", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
#: Those of the tensor and another one, or a number.
BINARY = (
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "copysign",
    "eq", "floor_divide", "fmax", "fmin", "fmod", "gcd", "ge", "gt", "heaviside", "hypot", "lcm", "le", "logaddexp",
    "logaddexp2", "logical_and", "logical_or", "logical_xor", "lt", "matmul", "maximum", "minimum", "mul", "ne",
    "nextafter", "pow", "remainder", "sub", "xlogy",
)  # fmt: skip
#: Those that have a form ending in `_`, which writes over the tensor.
IN_PLACE = tuple(n for n in UNARY if not n.startswith(("is", "sign"))) + tuple(
    n for n in BINARY if n not in ("matmul",)
)
#: Methods whose arguments are the overload's.
BY_ATEN = {
    "addmm": "aten.addmm.default",
    "argwhere": "aten.nonzero.default",
    "bmm": "aten.bmm.default",
    "chunk": "aten.chunk.default",
    "conj": "aten.conj.default",
    "cross": "aten.linalg_cross.default",
    "cummax": "aten.cummax.default",
    "cummin": "aten.cummin.default",
    "diag": "aten.diag.default",
    "diff": "aten.diff.default",
    "dot": "aten.dot.default",
    "gather": "aten.gather.default",
    "index_add": "aten.index_add.default",
    "index_copy": "aten.index_copy.default",
    "index_select": "aten.index_select.default",
    "inner": "aten.inner.default",
    "inverse": "aten.linalg_inv.default",
    "kthvalue": "aten.kthvalue.default",
    "masked_scatter": "aten.masked_scatter.default",
    "masked_select": "aten.masked_select.default",
    "mm": "aten.mm.default",
    "mv": "aten.mv.default",
    "narrow": "aten.narrow.default",
    "nonzero": "aten.nonzero.default",
    "outer": "aten.outer.default",
    "repeat_interleave": "aten.repeat_interleave.self_int",
    "scatter_add": "aten.scatter_add.default",
    "select": "aten.select.int",
    "split": "aten.split.Tensor",
    "take": "aten.take.default",
    "take_along_dim": "aten.take_along_dim.default",
    "trace": "aten.trace.default",
    "tril": "aten.tril.default",
    "triu": "aten.triu.default",
    "unbind": "aten.unbind.int",
    "unflatten": "aten.unflatten.int",
    "unfold": "aten.unfold.default",
}
_DTYPES = {
    "bfloat16": "bf16", "bool": "bool", "char": "i8", "double": "f64", "float": "f32", "half": "f16", "int": "i32",
    "long": "i64", "short": "i16",
}  # fmt: skip


class Extremes(NamedTuple):
    """What orders along an axis: the values, and where they stood."""

    values: Any
    indices: Any


@functools.cache
def op(name: str) -> Any:
    """The op of a name, looked up once: an op object lives as long as the process."""
    return registry.get(name)


def another_way(name: str, args: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """What `call_aten` answers and the operator of this name does not: most of complex numbers, products of vectors."""
    if name == "matmul":
        return call_aten("aten.matmul.default", *args)
    if name == "pow":  # a tensor of rank 0 promotes no more than a number
        ranks = [getattr(a, "ndim", 0) for a in args]
        args = tuple(
            a.item() if hasattr(a, "item") and r == 0 < max(ranks) else a
            for a, r in zip(args, ranks, strict=True)
        )
        which = "Scalar" if not hasattr(args[0], "shape") else "Tensor_Tensor"
        which = which if hasattr(args[1], "shape") else "Tensor_Scalar"
    else:
        which = "default" if len(args) == 1 else "Tensor" if hasattr(args[1], "shape") else "Scalar"
    for overload in (f"aten.{name}.{which}", f"aten.{name}.default"):
        if overload in COMPLEXES and has_complex(args, attrs):
            return call_aten(overload, *args, **attrs)
    return NotImplemented


def apply(name: str, *args: Any, **attrs: Any) -> Any:
    """The op's answer, or `another_way`'s."""
    try:
        return op(name)(*args, **attrs) if attrs else op(name)(*args)
    except OpTypeError:
        if (out := another_way(name, args, attrs)) is NotImplemented:
            raise
        return out


def _numpy_names(method: Callable[..., Any]) -> Callable[..., Any]:
    """`axis` for `dim`, `keepdims` for `keepdim`, and no `out`, as NumPy's functions call methods of their names."""

    @functools.wraps(method)
    def taking(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return method(self, *args)
        for theirs, ours in (("axis", "dim"), ("keepdims", "keepdim")):
            if theirs in kwargs:
                kwargs[ours] = kwargs.pop(theirs)
        if kwargs.get("out", ...) is None:
            del kwargs["out"]
        return method(self, *args, **kwargs)

    return taking


def _each(args: tuple[Any, ...]) -> list[Any]:
    """f(2, 3) and f((2, 3)) mean the same."""
    one = len(args) == 1 and isinstance(args[0], list | tuple)
    return list(args[0]) if one else list(args)


def _axis(dim: int, rank: int) -> int:
    span = max(rank, 1)
    if not -span <= dim < span:
        raise OpIndexError(f"axis {dim} is out of range for rank {rank}")
    return dim % span


def _reduced(name: str, x: Tensor, dim: Axes, keepdim: bool, **attrs: Any) -> Tensor:
    if dim is not None:
        if x.ndim == 0:  # one element, whose "dim 0" may be named
            for d in [dim] if isinstance(dim, int) else dim:
                _axis(d, 0)
            dim = None
        elif not isinstance(dim, int):
            dim = tuple(dim) or None  # PyTorch: no axis named is every axis
    if name in _COMPLEX and x.dtype in ("c64", "c128"):
        return _of_complex(name, x, dim, keepdim, attrs)
    if not attrs:  # a call by a dict of names costs as much as a small kernel
        return op(name)(x, dim=dim, keepdim=keepdim)
    return op(name)(x, dim=dim, keepdim=keepdim, **attrs)


def _of_complex(name: str, x: Tensor, dim: Any, keepdim: bool, attrs: Mapping[str, Any]) -> Tensor:
    overload, names = _COMPLEX[name]
    if overload is None:  # whether something is not 0 is asked of real numbers alone
        return op(name)(x != 0, dim=dim, keepdim=keepdim)
    dims = [dim] if isinstance(dim, int) else dim
    return call_aten(overload, x, dim=dims, keepdim=keepdim, **{n: v for n, v in attrs.items() if n in names})


#: Reductions of complex numbers that `call_aten` composes, and the arguments they take beside `dim` and `keepdim`.
_COMPLEX: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "all": (None, ()),
    "any": (None, ()),
    "mean": ("aten.mean.dim", ("dtype",)),
    "std": ("aten.std.correction", ("correction",)),
    "var": ("aten.var.correction", ("correction",)),
    "vector_norm": ("aten.linalg_vector_norm.default", ("ord",)),
}


def _along(overload: str, x: Tensor, *args: Any, **kwargs: Any) -> Extremes:
    return Extremes(*call_aten(overload, x, *args, **kwargs))


def _over(x: Tensor, result: Tensor) -> Tensor:
    """The result's values in the tensor's memory."""
    if tuple(result.shape) != tuple(x.shape):
        raise OpValueError(
            f"a result of shape {list(result.shape)} does not fit into {list(x.shape)}, which is written in place"
        )
    if ORDER[result.dtype] > ORDER[x.dtype]:
        raise OpTypeError(f"a result of {result.dtype} cannot be written in place as {x.dtype}")
    return x.copy_(result)


class Methods:
    """Not a base of Tensor: its members are put on the class."""

    # ---- extents and layouts

    def numel(self: Tensor) -> int:
        """The number of elements."""
        return int(self.size)

    def dim(self: Tensor) -> int:
        """The rank."""
        return int(self.ndim)

    def stride(self: Tensor, dim: int | None = None) -> Any:
        """Strides in elements, all of them or one axis'."""
        return self.strides if dim is None else self.strides[_axis(dim, self.ndim)]

    def storage_offset(self: Tensor) -> int:
        """Elements between the start of the storage and the first element."""
        return int(self.offset)

    def element_size(self: Tensor) -> int:
        """Bytes of an element."""
        return int(self.itemsize)

    def is_floating_point(self: Tensor) -> bool:
        """Whether elements are f16, bf16, f32 or f64."""
        return ORDER[self.dtype] == 2

    def is_complex(self: Tensor) -> bool:
        """Whether elements are c64 or c128."""
        return ORDER[self.dtype] == 3

    def view(self: Tensor, *shape: Any) -> Tensor:
        """A view of other extents; an error where strides do not allow one (`reshape` copies then)."""
        return call_aten("aten.view.default", self, _each(shape))

    def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Axes from `start_dim` to `end_dim` made one."""
        return call_aten("aten.flatten.using_ints", self, start_dim, end_dim)

    def ravel(self: Tensor) -> Tensor:
        """All axes made one."""
        return self.reshape(-1)

    def squeeze(self: Tensor, dim: Axes = None) -> Tensor:
        """A view without axes of extent 1: all of them, or those named."""
        dims = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        gone = {_axis(d, self.ndim) for d in dims}
        return self[tuple(0 if k in gone and n == 1 else slice(None) for k, n in enumerate(self.shape))]

    def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
        """A view with two axes swapped."""
        return self.transpose(axis0, axis1)

    def t(self: Tensor) -> Tensor:
        """A matrix transposed, a view; tensors of one axis or none stay."""
        return call_aten("aten.t.default", self)

    def movedim(self: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """A view with axes in other places."""
        return call_aten("aten.movedim.intlist", self, source, destination)

    def expand_as(self: Tensor, other: Tensor) -> Tensor:
        """A view of the other's extents."""
        return self.expand(other.shape)

    def broadcast_to(self: Tensor, *shape: Any) -> Tensor:
        """A view of these extents."""
        return self.expand(_each(shape))

    def view_as(self: Tensor, other: Tensor) -> Tensor:
        """A view of the other's extents."""
        return self.view(other.shape)

    def reshape_as(self: Tensor, other: Tensor) -> Tensor:
        """The same elements in the other's extents."""
        return self.reshape(other.shape)

    def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """A view of a diagonal, as the last axis."""
        return call_aten("aten.diagonal.default", self, offset, dim1, dim2)

    def repeat(self: Tensor, *times: Any) -> Tensor:
        """Laid side by side, so often along each axis."""
        return call_aten("aten.repeat.default", self, _each(times))

    def tile(self: Tensor, *times: Any) -> Tensor:
        """As `repeat`, with fewer numbers for the last axes alone."""
        times_ = _each(times)
        return self.repeat([*([1] * (self.ndim - len(times_))), *times_])

    def flip(self: Tensor, *dims: Any) -> Tensor:
        """Backwards along axes."""
        return call_aten("aten.flip.default", self, _each(dims))

    def roll(self: Tensor, shifts: int | Sequence[int], dims: Axes = None) -> Tensor:
        """Moved round along axes, or through all elements in order."""
        listed = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
        return call_aten(
            "aten.roll.default", self, [shifts] if isinstance(shifts, int) else list(shifts), listed
        )

    # ---- conversions

    def to(
        self: Tensor, target: Any = None, *, dtype: Any = None, device: Any = None, copy: bool = False
    ) -> Tensor:
        """In another dtype, or in that of another tensor; itself where nothing changes, unless `copy`."""
        if isinstance(target, core.Tensor):
            target = target.dtype
        if isinstance(target, str) and target.partition(":")[0] == "cpu":
            target = None
        if isinstance(target, str) and target.partition(":")[0] in _DEVICES:
            device, target = target, None
        if device is not None and str(device).partition(":")[0] != "cpu":
            raise OpValueError(
                f"to: the device must be cpu, got {device}", hint="there is one device here, cpu"
            )
        wanted = dtype if target is None else target
        out = self if wanted is None else _converted(self, wanted)
        return out.clone() if copy and out is self else out

    def astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
        """A copy in this dtype; without `copy` itself, where it has it."""
        return self.to(dtype, copy=copy)

    def type_as(self: Tensor, other: Tensor) -> Tensor:
        """In the other's dtype."""
        return _converted(self, other.dtype)

    def cpu(self: Tensor) -> Tensor:
        """Itself: its memory is the CPU's."""
        return self

    def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
        """Itself, on the CPU; an error for any other place."""
        return self.to(device=device)

    def detach(self: Tensor) -> Tensor:
        """A view; nothing is recorded for gradients here (`ow.vjp`)."""
        return self.reshape(self.shape)

    # ---- what is computed over axes

    @_numpy_names
    def sum(self: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The sum over axes, or over all; of integers in i64."""
        if dtype is None:
            return _reduced("sum", self, dim, keepdim)
        return _reduced("sum", self, dim, keepdim, dtype=dtype)

    @_numpy_names
    def mean(self: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The mean over axes, or over all."""
        if dtype is None:
            return _reduced("mean", self, dim, keepdim)
        return _reduced("mean", self, dim, keepdim, dtype=dtype)

    @_numpy_names
    def prod(self: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The product over an axis, or over all; of integers in i64."""
        if dim is None or self.ndim == 0:
            return call_aten("aten.prod.default", self, dtype=dtype)
        return op("prod")(self, dim=dim, keepdim=keepdim, dtype=dtype)

    @_numpy_names
    def amax(self: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The greatest over axes, or over all."""
        return _reduced("amax", self, dim, keepdim)

    @_numpy_names
    def amin(self: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The least over axes, or over all."""
        return _reduced("amin", self, dim, keepdim)

    @_numpy_names
    def max(self: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        """The greatest of all; along an axis with its place; or element by element, beside another tensor."""
        if dim is None:
            return op("amax")(self)
        if isinstance(dim, core.Tensor):
            return op("maximum")(self, dim)
        return _along("aten.max.dim", self, dim, keepdim)

    @_numpy_names
    def min(self: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        """The least of all; along an axis with its place; or element by element, beside another tensor."""
        if dim is None:
            return op("amin")(self)
        if isinstance(dim, core.Tensor):
            return op("minimum")(self, dim)
        return _along("aten.min.dim", self, dim, keepdim)

    @_numpy_names
    def argmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Where the greatest stands, along an axis or among all elements in order."""
        return call_aten("aten.argmax.default", self, dim, keepdim)

    @_numpy_names
    def argmin(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Where the least stands, along an axis or among all elements in order."""
        return call_aten("aten.argmin.default", self, dim, keepdim)

    @_numpy_names
    def all(self: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Whether all hold, over axes or over all."""
        return _reduced("all", self, dim, keepdim)

    @_numpy_names
    def any(self: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Whether any holds, over axes or over all."""
        return _reduced("any", self, dim, keepdim)

    @_numpy_names
    def var(self: Tensor, dim: Axes = None, *, correction: float = 1, keepdim: bool = False) -> Tensor:
        """The variance over axes, or over all, divided by the count less `correction`."""
        return _reduced("var", self, dim, keepdim, correction=correction)

    @_numpy_names
    def std(self: Tensor, dim: Axes = None, *, correction: float = 1, keepdim: bool = False) -> Tensor:
        """The standard deviation over axes, or over all."""
        return _reduced("std", self, dim, keepdim, correction=correction)

    @_numpy_names
    def norm(self: Tensor, p: float = 2, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The norm of all elements, or along axes: of order `p`."""
        return _reduced("vector_norm", self, dim, keepdim, ord=float(p))

    @_numpy_names
    def logsumexp(self: Tensor, dim: Axes, keepdim: bool = False) -> Tensor:
        """The logarithm of the sum of exponentials."""
        x = self if ORDER[self.dtype] > 1 else _converted(self, "f32")
        return call_aten("aten.logsumexp.default", x, [dim] if isinstance(dim, int) else dim, keepdim)

    @_numpy_names
    def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        """The middle one (the lower of two), of all or along an axis with its place."""
        if dim is None:
            return call_aten("aten.median.default", self)
        return _along("aten.median.dim", self, dim, keepdim)

    @_numpy_names
    def count_nonzero(self: Tensor, dim: Axes = None) -> Tensor:
        """How many are not zero."""
        listed = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return op("count_nonzero")(self if ORDER[self.dtype] < 3 else self != 0, dim=listed)

    @_numpy_names
    def cumsum(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        """Sums of all up to each, along an axis."""
        return call_aten("aten.cumsum.default", self, dim, dtype=dtype)

    @_numpy_names
    def cumprod(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        """Products of all up to each, along an axis."""
        return call_aten("aten.cumprod.default", self, dim, dtype=dtype)

    @_numpy_names
    def softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
        """Exponentials that add up to 1 along an axis."""
        return call_aten("aten.softmax.int", self, dim, dtype)

    @_numpy_names
    def log_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
        """The logarithm of `softmax`."""
        return call_aten("aten.log_softmax.int", self, dim, dtype)

    @_numpy_names
    def sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Extremes:
        """In order along an axis, and where each stood; equal ones keep their order."""
        return _along("aten.sort.default", self, dim, descending)

    @_numpy_names
    def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """Where the elements in order stand."""
        return _along("aten.sort.default", self, dim, descending).indices

    @_numpy_names
    def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extremes:
        """The k greatest (or least) along an axis, in order."""
        return _along("aten.topk.default", self, k, dim, largest)

    def unique(self: Tensor) -> Tensor:
        """The values, in order, each once."""
        return call_aten("aten._unique2.default", self)[0]

    # ---- element by element

    def div(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """The quotient; `rounding_mode`: None, "trunc" or "floor"."""
        if rounding_mode not in (None, "trunc", "floor"):
            raise OpValueError(
                f'div: `rounding_mode` must be None, "trunc" or "floor", got {rounding_mode!r}'
            )
        return op({None: "div", "trunc": "trunc_divide", "floor": "floor_divide"}[rounding_mode])(self, other)

    def round(self: Tensor, *, decimals: int = 0) -> Tensor:
        """To the nearest integer (halves to the even one), or decimal."""
        return op("round")(self) if not decimals else op("round_decimals")(self, decimals=decimals)

    def square(self: Tensor) -> Tensor:
        """Each times itself."""
        return op("mul")(self, self)

    def logit(self: Tensor, eps: float | None = None) -> Tensor:
        """log(x / (1 - x)), of what is kept within [eps, 1 - eps]."""
        return op("logit")(self, eps=eps)

    def clamp(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
        """Kept between two numbers, or tensors."""
        if isinstance(min, core.Tensor) or isinstance(max, core.Tensor):
            return call_aten(
                "aten.clamp.Tensor", self, *(None if v is None else _tensor(v, self) for v in (min, max))
            )
        return call_aten("aten.clamp.default", self, min, max)

    def clip(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
        """As `clamp`."""
        return self.clamp(min, max)

    def where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
        """Its elements where the condition holds, the other's elsewhere."""
        return op("where")(condition, self, other)

    def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
        """One value where the mask holds."""
        value = value.item() if isinstance(value, core.Tensor) else value
        return call_aten("aten.masked_fill.Scalar", self, mask, value)

    def scatter(self: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
        """With `src` (a tensor or a number) at places along an axis."""
        which = "src" if isinstance(src, core.Tensor) else "value"
        return call_aten(f"aten.scatter.{which}", self, dim, index, src)

    def lerp(self: Tensor, end: Tensor, weight: Any) -> Tensor:
        """self + weight * (end - self)."""
        return call_aten(
            f"aten.lerp.{'Tensor' if isinstance(weight, core.Tensor) else 'Scalar'}", self, end, weight
        )

    def isclose(
        self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Tensor:
        """Whether each is near the other's."""
        return op("isclose")(self, other, rtol=rtol, atol=atol, equal_nan=equal_nan)

    def allclose(
        self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all are near the other's."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    def equal(self: Tensor, other: Tensor) -> bool:
        """Whether extents and all elements are the other's."""
        return tuple(self.shape) == tuple(other.shape) and bool((self == other).all())

    # ---- made like it

    def new_empty(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
        """Unset values, in its dtype."""
        return core.empty(_each(shape), dtype or self.dtype)

    def new_full(self: Tensor, shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
        """One value, in its dtype."""
        return core.full(shape, fill_value, dtype or self.dtype)

    def new_zeros(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
        """Zeros, in its dtype."""
        return core.full(_each(shape), 0, dtype or self.dtype)

    def new_ones(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
        """Ones, in its dtype."""
        return core.full(_each(shape), 1, dtype or self.dtype)

    def new_tensor(self: Tensor, data: Any, dtype: Any = None) -> Tensor:
        """A copy of these numbers, in its dtype."""
        return core.tensor(data, dtype or self.dtype)

    # ---- written in place

    def fill_(self: Tensor, value: Any) -> Tensor:
        """Overwritten with one value."""
        return self.copy_(value.item() if isinstance(value, core.Tensor) else value)

    def zero_(self: Tensor) -> Tensor:
        """Overwritten with zeros."""
        return self.copy_(0)

    def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """`div`, written over the tensor."""
        return _over(self, self.div(other, rounding_mode=rounding_mode))

    def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
        """`clamp`, written over the tensor."""
        return _over(self, self.clamp(min, max))

    def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
        """`masked_fill`, written over the tensor."""
        return _over(self, self.masked_fill(mask, value))

    # ---- what Python asks of an object

    def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> Any:
        """The module of the array API standard's functions (docs/array_api.md)."""
        from . import array_api

        return array_api.checked(api_version)

    def __complex__(self: Tensor) -> complex:
        return complex(self.item())

    def __format__(self: Tensor, how: str) -> str:
        return format(self.item(), how) if self.ndim == 0 and how else format(str(self), how)

    def __copy__(self: Tensor) -> Tensor:
        return self.clone()

    def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
        memo[id(self)] = made = self.clone()
        return made

    def __reduce__(self: Tensor) -> tuple[Any, ...]:
        return core.tensor, (self.numpy(),)  # NumPy's arrays and ml_dtypes' know how


_converted = core.Tensor.to  # the core's own: of a dtype alone


def _tensor(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, core.Tensor) else core.full((), value, like.dtype)


def _named(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Any]:
    function.__name__, function.__qualname__, function.__doc__ = name, f"Tensor.{name}", doc
    function.__module__ = "opwright"
    return function


def _unary(name: str) -> Callable[..., Any]:
    def method(self: Tensor) -> Tensor:
        return apply(name, self)

    return _named(name, method, f"{name}() -> `ow.ops.{name}` of this tensor.")


def _binary(name: str) -> Callable[..., Any]:
    def method(self: Tensor, other: Any, **attrs: Any) -> Tensor:
        return apply(name, self, other, **attrs) if attrs else apply(name, self, other)

    return _named(
        name, method, f"{name}(other) -> `ow.ops.{name}` of this tensor and another one, or a number."
    )


def _by_aten(name: str, overload: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return call_aten(overload, self, *args, **kwargs)

    return _named(name, method, f"{name}(…) -> `ow.call_aten({overload!r}, self, …)`.")


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
        return _over(self, apply(name, self, *args, **attrs))

    return _named(f"{name}_", method, f"{name}_(…) -> the tensor, overwritten with `{name}(…)`.")


def _to(name: str, dtype: str) -> Callable[..., Any]:
    def method(self: Tensor) -> Tensor:
        return _converted(self, dtype)

    return _named(name, method, f"{name}() -> in {dtype}; itself, where it is.")


#: What PyTorch's programs write where a dtype may stand as well.
_DEVICES = ("cuda", "mps", "xpu", "hip", "meta", "gpu")
_SPECIAL = ("__array_namespace__", "__complex__", "__copy__", "__deepcopy__", "__format__", "__reduce__")


def members() -> dict[str, Any]:
    """All that `install` puts on Tensor."""
    own = {
        n: m for n, m in vars(Methods).items() if callable(m) and (not n.startswith("__") or n in _SPECIAL)
    }
    return {
        **{n: _unary(n) for n in UNARY},
        **{n: _binary(n) for n in BINARY},
        **{f"{n}_": _in_place(n) for n in IN_PLACE},
        **{n: _by_aten(n, o) for n, o in BY_ATEN.items()},
        **{n: _to(n, d) for n, d in _DTYPES.items()},
        **own,
    }


def install() -> None:
    """Give Tensor its methods."""
    core.extend_tensor(members())
    core.set_tensor_parts(
        getitem=indexing.getitem, setitem=indexing.setitem, repr=printing.text, another_way=another_way
    )
