"""ATen overloads that no row of the table can say alone: views, arguments in another order, calls of a near operator.

`call_aten` asks the three tables below, none of which knows a spec:
  VIEWS     overload → function of the overload's own arguments that gives the results: views, never a kernel
  PREPARE   overload → function that puts the arguments in the order that a row or an operator expects: a `Call`; or
            the result itself, where nothing is to be computed
  COMPOSE   overload → a `Call` of an operator that means the same; only where no row of the table takes the arguments,
            or PREPARE refuses them

To add one: a function whose parameters are the overload's, named and defaulted as in its schema, and a line in the
table it belongs to.  It raises `Refused` where the arguments are beyond it.  Tensors come as they were given (NumPy,
DLPack, `ow.Tensor`): `tensor(x)` makes one of them a Tensor that shares its memory.  `generator/program/overloads.py`
has the same tables for programs (`VIEWS`, `PREPARE`, `COMPOSE`); a new line may belong there, too.  A rule that
needs no more than dtypes and ranks is written once for both, in arguments.py.

What is made of several operators is in composites.py, arrangements.py, products.py and random.py, whose tables are
parts of these.

May import: `.arguments`, `.fronting`, `.composites`, `.arrangements`, `.backward`, `.copies`, `.histograms`,
`.matrices`, `.products`, `.random`, `.signals`, `.special`, `.spellings`, `.statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from inspect import signature
from operator import or_
from typing import Any

from .arguments import RULES
from .arrangements import ARRANGEMENTS, VIEWS_MORE, masked_scatter
from .backward import BACKWARD
from .composites import COMPOSITES
from .copies import COPIES, copies_of
from .fronting import (
    PLACEMENT,
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    at,
    axis_of,
    broadcast,
    dtype_name,
    empty,
    front,
    full,
    inverse,
    run,
    tensor,
    without_axes,
)
from .histograms import HISTOGRAMS
from .matrices import MATRICES
from .products import PRODUCTS
from .random import DRAWS
from .signals import SAMPLED, SIGNALS
from .special import SPECIAL
from .spellings import SPELLINGS
from .statistics import STATISTICS

__all__ = ["COMPOSE", "PLACEMENT", "PREPARE", "VIEWS", "Call", "Front", "Refused", "front", "without_axes"]


# ---- views -------------------------------------------------------------------------------------------------------


def _view(self: Any, size: Ints) -> Tensor:
    x = tensor(self)
    out = x.reshape(list(size))
    if out.size and out.data_ptr() != x.data_ptr():
        raise Refused(f"strides {x.strides} do not allow a view of {x.shape} as {list(size)}")
    return out


def _reshape(self: Any, shape: Ints) -> Tensor:
    return tensor(self).reshape(list(shape))


def _unsafe_view(self: Any, size: Ints) -> Tensor:
    return tensor(self).reshape(list(size))


def _expand(self: Any, size: Ints, implicit: bool = False) -> Tensor:
    return tensor(self).expand(list(size))


def _same(self: Any) -> Tensor:
    return tensor(self)


def _permute(self: Any, dims: Ints) -> Tensor:
    return tensor(self).permute(list(dims))


def _transpose(self: Any, dim0: int, dim1: int) -> Tensor:
    return tensor(self).transpose(dim0, dim1)


def _t(self: Any) -> Tensor:
    x = tensor(self)
    if x.ndim > 2:
        raise Refused(f"t() takes a tensor of at most 2 axes, this one has {x.ndim}")
    return x.transpose(0, 1) if x.ndim == 2 else x


def _unsqueeze(self: Any, dim: int) -> Tensor:
    return tensor(self).unsqueeze(dim)


def _squeeze(self: Any, dim: int | Ints | None = None) -> Tensor:
    x = tensor(self)
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis_of(d, x.ndim) for d in dims}
    return x[tuple(0 if k in gone and n == 1 else slice(None) for k, n in enumerate(x.shape))]


def _slice(
    self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    x = tensor(self)
    if step < 1:
        raise Refused("step must be positive")
    return x[at(x.ndim, axis_of(dim, x.ndim), slice(start, end, step))]


def _select(self: Any, dim: int, index: int) -> Tensor:
    x = tensor(self)
    if x.ndim == 0:
        raise Refused("select() takes a tensor of at least 1 axis")
    return x[at(x.ndim, axis_of(dim, x.ndim), int(index))]


def _split_with_sizes(self: Any, split_sizes: Ints, dim: int = 0) -> tuple[Tensor, ...]:
    x = tensor(self)
    axis = axis_of(dim, x.ndim)
    if sum(split_sizes) != x.shape[axis] or min(split_sizes, default=0) < 0:
        raise Refused(f"parts {list(split_sizes)} do not fill an axis of extent {x.shape[axis]}")
    parts, begin = [], 0
    for size in split_sizes:
        parts.append(x[at(x.ndim, axis, slice(begin, begin + size))])
        begin += size
    return tuple(parts)


def _split(self: Any, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    x = tensor(self)
    extent = x.shape[axis_of(dim, x.ndim)]
    if split_size < 0 or (split_size == 0 and extent):
        raise Refused(f"an axis of extent {extent} cannot be split by {split_size}")
    count = max(-(-extent // split_size), 1) if split_size else 1
    sizes = [min(split_size, extent - k * split_size) for k in range(count)] if split_size else [0]
    return _split_with_sizes(x, sizes, dim)


def _unbind(self: Any, dim: int = 0) -> tuple[Tensor, ...]:
    x = tensor(self)
    return tuple(_select(x, dim, k) for k in range(x.shape[axis_of(dim, x.ndim)]))


def _as_strided(self: Any, size: Ints, stride: Ints, storage_offset: int | None = None) -> Tensor:
    return tensor(self).as_strided(list(size), list(stride), storage_offset)


def _diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x = tensor(self)
    a, b = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    if a == b:
        raise Refused(f"dims {dim1} and {dim2} are the same")
    down, right = max(-offset, 0), max(offset, 0)
    length = max(min(x.shape[a] - down, x.shape[b] - right), 0)
    rest = [k for k in range(x.ndim) if k not in (a, b)]
    begin = x.offset + (down * x.strides[a] + right * x.strides[b] if length else 0)
    sizes = [*(x.shape[k] for k in rest), length]
    return x.as_strided(sizes, [*(x.strides[k] for k in rest), x.strides[a] + x.strides[b]], begin)


def _unfold(self: Any, dimension: int, size: int, step: int) -> Tensor:
    x = tensor(self)
    axis = axis_of(dimension, x.ndim)
    extent, stride = (x.shape[axis], x.strides[axis]) if x.ndim else (1, 1)
    if size < 0 or step < 1 or size > extent:
        raise Refused(f"an axis of extent {extent} has no windows of {size} every {step}")
    sizes, strides = [*x.shape, size], [*x.strides, stride]
    if x.ndim:
        sizes[axis], strides[axis] = (extent - size) // step + 1, stride * step
    return x.as_strided(sizes, strides)


_VIEWS: dict[str, Front] = {
    "aten._reshape_alias.default": lambda self, size, stride: _view(self, size),
    "aten._unsafe_view.default": _unsafe_view,
    "aten.alias.default": _same,
    "aten.as_strided.default": _as_strided,
    "aten.detach.default": _same,
    "aten.diagonal.default": _diagonal,
    "aten.expand.default": _expand,
    "aten.lift_fresh.default": _same,
    "aten.linalg_diagonal.default": lambda A, offset=0, dim1=-2, dim2=-1: _diagonal(A, offset, dim1, dim2),
    "aten.permute.default": _permute,
    "aten.reshape.default": _reshape,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_with_sizes,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.swapaxes.default": lambda self, axis0, axis1: _transpose(self, dim0=axis0, dim1=axis1),
    "aten.swapdims.default": _transpose,
    "aten.t.default": _t,
    "aten.transpose.int": _transpose,
    "aten.unbind.int": _unbind,
    "aten.unfold.default": _unfold,
    "aten.unsafe_split.Tensor": _split,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.view.default": _view,
}
VIEWS: dict[str, Front] = dict(sorted((_VIEWS | VIEWS_MORE).items()))


# ---- indexing: indexed axes of `self` first, no masks and no gaps ------------------------------------------------


@dataclass(frozen=True)
class _Indexed:
    """x with its indexed axes first; `order`: those axes, then the rest; `shape`: of the broadcast indices; `before`:
    how many of the rest stand before the index axes in PyTorch's result."""

    x: Tensor
    indices: list[Tensor]
    order: list[int]
    shape: tuple[int, ...]
    before: int

    @property
    def result(self) -> list[int]:
        """The permutation from `[*index shape, *rest]` to PyTorch's result."""
        n, rest = len(self.shape), self.x.ndim - len(self.indices)
        return [*(n + k for k in range(self.before)), *range(n), *(n + k for k in range(self.before, rest))]


def _indexed(self: Any, indices: Sequence[Any]) -> _Indexed | None:
    """None when nothing is indexed."""
    x = tensor(self)
    dims: list[int] = []
    found: list[Tensor] = []
    axis = 0
    for given in indices:
        if given is None:
            axis += 1
            continue
        index = tensor(given)
        if index.dtype in ("bool", "u8"):
            parts = _positions(index, x.shape[axis : axis + index.ndim])
        elif index.dtype in ("i32", "i64"):
            parts = [index]
        else:
            raise Refused(f"a tensor of {index.dtype} is no index")
        found += parts
        dims += range(axis, axis + len(parts))
        axis += len(parts)
    if axis > x.ndim:
        raise Refused(f"too many indices: {axis} for rank {x.ndim}")
    if not dims:
        return None
    if len({i.dtype for i in found}) > 1:
        found = [i.to("i64") for i in found]
    order = [*dims, *(k for k in range(x.ndim) if k not in dims)]
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    shape = broadcast([i.shape for i in found])
    return _Indexed(
        x.permute(order), [i.expand(shape) for i in found], order, shape, dims[0] if together else 0
    )


def _positions(mask: Tensor, extents: Ints) -> list[Tensor]:
    """The indices that a mask stands for, one per axis of it."""
    if mask.ndim == 0:
        raise Refused("a mask of rank 0 is no index")
    if tuple(mask.shape) != tuple(extents):
        raise Refused(f"a mask of shape {mask.shape} does not cover axes of extents {list(extents)}")
    places = run("nonzero", mask)
    return [places[:, k] for k in range(mask.ndim)]


def _index(self: Any, indices: Sequence[Any]) -> Call:
    found = _indexed(self, indices)
    if found is None:
        return Call("aten.clone.default", {"self": self})
    return Call(
        "aten.index.Tensor",
        {"self": found.x, "indices": found.indices},
        lambda y: y.permute(found.result),
    )


def _index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Call:
    found = _indexed(self, indices)
    if found is None:
        raise Refused("there is no index")
    want = [*found.shape, *found.x.shape[len(found.indices) :]]
    v = tensor(values).expand([want[d] for d in found.result]).permute(inverse(found.result))
    return Call(
        "aten.index_put.default",
        {"self": found.x, "indices": found.indices, "values": v, "accumulate": accumulate},
        lambda y: y.permute(inverse(found.order)),
    )


def _index_copy(self: Any, dim: int, index: Any, source: Any, accumulate: bool = False) -> Call:
    """Rows of `self` along an axis, replaced by (or added to) rows of `source`."""
    x, s, i = tensor(self), tensor(source), tensor(index)
    if x.ndim == 0:
        call = _index_copy(x.reshape([1]), dim, i.reshape([1]), s.reshape([1]), accumulate)
        return replace(call, finish=lambda y: y.reshape([]))
    if s.ndim != x.ndim:
        raise Refused(f"source has rank {s.ndim}, self {x.ndim}")
    axis = axis_of(dim, x.ndim)
    rows = (*x.shape[:axis], i.size, *x.shape[axis + 1 :])
    if tuple(s.shape) != rows:  # `index_put` would broadcast it
        raise Refused(f"`source` has shape {tuple(s.shape)}, {rows} is wanted: a row for each index")
    return _index_put(x, [*([None] * axis), i.reshape([i.size])], s, accumulate)


def _index_add(self: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Call:
    rows = source if alpha == 1 else run("mul", source, alpha)
    return _index_copy(self, dim, index, rows, True)


def _index_fill(self: Any, dim: int, index: Any, value: Any) -> Call:
    x, i = tensor(self), tensor(index)
    if x.ndim == 0:
        call = _index_fill(x.reshape([1]), dim, i, value)
        return replace(call, finish=lambda y: y.reshape([]))
    number = value if isinstance(value, bool | int | float | complex) else tensor(value).item()
    return _index_put(x, [*([None] * axis_of(dim, x.ndim)), i], full((), number, x.dtype))


_INTEGERS = ("u8", "i8", "i16", "i32", "i64")


def _gather(self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Call | Tensor:
    """Of rank 0 as of one element; any integers are positions; an empty index may have any rank."""
    x, i = tensor(self), tensor(index)
    if i.dtype not in _INTEGERS:
        raise Refused(f"`index` must be integers, it is {i.dtype}")
    if not i.size:
        return empty(list(i.shape), x.dtype)
    i = i if i.dtype in ("i32", "i64") else i.to("i64")
    flat = Call(
        "aten.gather.default",
        {"self": x if x.ndim else x.reshape([1]), "dim": dim, "index": i if i.ndim else i.reshape([1])},
    )
    return flat if i.ndim else Call(flat.to, flat.arguments, lambda y: y.reshape([]))


def _index_select(self: Any, dim: int, index: Any) -> Call:
    x, i = tensor(self), tensor(index)
    rows = {"dim": dim, "index": i if i.ndim else i.reshape([1])}
    if x.ndim:
        return Call("aten.index_select.default", {"self": x, **rows})
    return Call("aten.index_select.default", {"self": x.reshape([1]), **rows}, lambda y: y.reshape([]))


def _cat(tensors: Sequence[Any], dim: int = 0) -> Call:
    """PyTorch passes over tensors of shape [0] among those of another rank."""
    xs = [tensor(x) for x in tensors]
    real = [x for x in xs if tuple(x.shape) != (0,)]
    return Call("aten.cat.default", {"tensors": real if any(x.ndim != 1 for x in real) else xs, "dim": dim})


def _place(overload: str, self: Any, dim: int | None = None, keepdim: bool = False) -> Call:
    """Without `dim`, the place among all elements in order."""
    x = tensor(self)
    if dim is not None:
        return Call(overload, {"self": x, "dim": dim, "keepdim": keepdim})
    whole = {"self": x.reshape([x.size]), "dim": 0, "keepdim": False}
    return Call(overload, whole, (lambda y: y.reshape([1] * x.ndim)) if keepdim else None)


def _about(x: Any) -> tuple[str, tuple[int, ...]] | None:
    if x is None or isinstance(x, bool | int | float | complex):
        return None
    t = tensor(x)
    return t.dtype, tuple(t.shape)


def _ruled(overload: str) -> Front:
    """The overload itself, its arguments as its rule has them."""
    rule = partial(RULES[overload], _about)

    def prepare(*args: Any, **kwargs: Any) -> Call:
        return Call(overload, rule(*args, **kwargs))

    prepare.__signature__ = signature(rule)  # type: ignore[attr-defined]
    return prepare


# ---- the overload itself, its arguments in another order ------------------------------------------------------------

_OWN: dict[str, Front] = {
    "aten._unsafe_index.Tensor": _index,
    "aten._unsafe_index_put.default": _index_put,
    "aten.argmax.default": partial(_place, "aten.argmax.default"),
    "aten.argmin.default": partial(_place, "aten.argmin.default"),
    "aten.cat.default": _cat,
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten.index_select.default": _index_select,
    "aten.masked_scatter.default": masked_scatter,
}
PREPARE: dict[str, Front] = dict(sorted((_OWN | SAMPLED | {name: _ruled(name) for name in RULES}).items()))


# ---- the same by another operator --------------------------------------------------------------------------------


def _to_copy(self: Any, dtype: Any = None) -> Call:
    x = tensor(self)
    if dtype is None or dtype_name(dtype) == x.dtype:
        return Call("aten.clone.default", {"self": x})
    return Call("cast", {"x": x, "dtype": dtype_name(dtype)})


def _copy(self: Any, src: Any) -> Call:
    """src as self's dtype and extents, in memory of its own."""
    x, s = tensor(self), tensor(src)
    call = _to_copy(s, x.dtype)
    return Call(call.to, {name: v.expand(x.shape) if v is s else v for name, v in call.arguments.items()})


def _constant_pad(self: Any, pad: Ints, value: float = 0) -> Call:
    """Amounts from the last axis backwards, in pairs → one list before and one after, by axis."""
    x = tensor(self)
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise Refused(f"{len(pad)} amounts do not pad a tensor of rank {x.ndim}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    return Call("constant_pad", {"x": x, "before": before, "after": after, "value": value})


def _flip(self: Any, dims: Ints) -> Call:
    x = tensor(self)
    chosen = {axis_of(d, x.ndim) for d in dims}
    if len(chosen) != len(dims):
        raise Refused(f"an axis appears twice in {list(dims)}")
    return Call("flip", {"x": x, "flags": [int(k in chosen) for k in range(x.ndim)]})


def _repeat(self: Any, repeats: Ints) -> Call:
    x = tensor(self)
    if len(repeats) < x.ndim:
        raise Refused(f"{len(repeats)} repeats for a tensor of rank {x.ndim}")
    return Call(
        "repeat", {"x": x.reshape([1] * (len(repeats) - x.ndim) + list(x.shape)), "times": list(repeats)}
    )


def _slice_scatter(
    self: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Call:
    x, s = tensor(self), tensor(src)
    window = _slice(x, dim, start, end, step)
    return Call(
        "slice_scatter",
        {"x": x, "s": s.expand(window.shape), "dim": dim, "start": start or 0, "step": step},
    )


def _select_scatter(self: Any, src: Any, dim: int, index: int) -> Call:
    x = tensor(self)
    s = tensor(src).expand(_select(x, dim, index).shape).unsqueeze(axis_of(dim, x.ndim))
    return Call("slice_scatter", {"x": x, "s": s, "dim": dim, "start": index})


def _masked_fill(self: Any, mask: Any, value: Any) -> Call:
    v = tensor(value)
    if v.ndim:
        raise Refused(f"`value` must have rank 0, its shape is {list(v.shape)}")
    return Call("aten.masked_fill.Scalar", {"self": self, "mask": mask, "value": v.item()})


def _full(value: complex, size: Ints, dtype: Any = None) -> Call:
    return Call("full", {"size": list(size), "value": value, "dtype": dtype_name(dtype or "f32")})


def _new_full(self: Any, size: Ints, fill_value: Any, dtype: Any = None) -> Call:
    return _full(fill_value, size, dtype or tensor(self).dtype)


def _filled(value: complex, self: Any, dtype: Any = None) -> Call:
    return _new_full(self, tensor(self).shape, value, dtype)


def _fill(self: Any, value: Any) -> Call:
    return _filled(value if isinstance(value, bool | int | float | complex) else tensor(value).item(), self)


def _mv(self: Any, vec: Any) -> Call:
    return Call("aten.mm.default", {"self": self, "mat2": tensor(vec).unsqueeze(-1)}, lambda y: y[:, 0])


def _dot(self: Any, tensor: Any) -> Call:
    a, b = _same(self).unsqueeze(0), _same(tensor).unsqueeze(-1)
    return Call("aten.mm.default", {"self": a, "mat2": b}, lambda y: y[0, 0])


def _addmv(self: Any, mat: Any, vec: Any, beta: Any = 1, alpha: Any = 1) -> Call:
    c = tensor(self)
    return Call(
        "aten.addmm.default",
        {
            "self": c.unsqueeze(-1) if c.ndim else c,
            "mat1": mat,
            "mat2": tensor(vec).unsqueeze(-1),
            "beta": beta,
            "alpha": alpha,
        },
        lambda y: y[:, 0],
    )


_COMPOSE: dict[str, Front] = {
    "aten._to_copy.default": _to_copy,
    "aten.addmv.default": _addmv,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.copy.default": _copy,
    "aten.dot.default": _dot,
    "aten.empty.memory_format": partial(_full, 0),  # zeros, so that a run is the same every time
    "aten.empty_like.default": partial(_filled, 0),
    "aten.fill.Scalar": _fill,
    "aten.fill.Tensor": _fill,
    "aten.flip.default": _flip,
    "aten.index_add.default": _index_add,
    "aten.index_copy.default": _index_copy,
    "aten.index_fill.int_Scalar": _index_fill,
    "aten.index_fill.int_Tensor": _index_fill,
    "aten.lift_fresh_copy.default": _to_copy,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.mv.default": _mv,
    "aten.new_empty.default": lambda self, size, dtype=None: _new_full(self, size, 0, dtype),
    "aten.new_full.default": _new_full,
    "aten.new_ones.default": lambda self, size, dtype=None: _new_full(self, size, 1, dtype),
    "aten.new_zeros.default": lambda self, size, dtype=None: _new_full(self, size, 0, dtype),
    "aten.ones.default": partial(_full, 1),
    "aten.ones_like.default": partial(_filled, 1),
    "aten.repeat.default": _repeat,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.zeros.default": partial(_full, 0),
    "aten.zeros_like.default": partial(_filled, 0),
}
_TABLES = (
    COMPOSITES,
    ARRANGEMENTS,
    MATRICES,
    PRODUCTS,
    STATISTICS,
    SPECIAL,
    DRAWS,
    COPIES,
    BACKWARD,
    SPELLINGS,
    SIGNALS,
    HISTOGRAMS,
)
COMPOSE: dict[str, Front] = dict(sorted(reduce(or_, _TABLES, copies_of(VIEWS) | _COMPOSE).items()))
