"""ATen overloads that arrange what is there: flatten, stack, chunk, roll, pad, meshgrid, unfold, repeat, take …

`VIEWS_MORE` is a part of `fronts.VIEWS` and `ARRANGEMENTS` of `fronts.COMPOSE`; the rules of fronts.py hold.

May import: `.fronting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .fronting import (
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    at,
    axis_of,
    broadcast,
    conjugate,
    dtype_name,
    empty,
    full,
    ints,
    joined,
    run,
    tensor,
)

__all__ = ["ARRANGEMENTS", "VIEWS_MORE", "masked_scatter"]

# ---- views -------------------------------------------------------------------------------------------------------


def _flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    x = tensor(self)
    a, b = axis_of(start_dim, x.ndim), axis_of(end_dim, x.ndim)
    if a > b:
        raise Refused("start_dim comes after end_dim")
    if x.ndim == 0:
        return x.reshape([1])
    return x.reshape([*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]])


def _unflatten(self: Any, dim: int, sizes: Ints) -> Tensor:
    x = tensor(self)
    a, parts = axis_of(dim, x.ndim), list(sizes)
    if -1 in parts:
        rest = math.prod(s for s in parts if s != -1)
        parts[parts.index(-1)] = x.shape[a] // rest if rest else 0
    if math.prod(parts) != x.shape[a]:
        raise Refused(f"{list(sizes)} do not fill an axis of extent {x.shape[a]}")
    return x.reshape([*x.shape[:a], *parts, *x.shape[a + 1 :]])


def _expand_as(self: Any, other: Any) -> Tensor:
    return tensor(self).expand(list(other.shape))


def _broadcast_to(self: Any, size: Ints) -> Tensor:
    return tensor(self).expand(list(size))


def _reshape_as(self: Any, other: Any) -> Tensor:
    return tensor(self).reshape(list(other.shape))


def _reversed(self: Any) -> Tensor:
    x = tensor(self)
    return x.permute(list(range(x.ndim))[::-1])


def _transposed(self: Any) -> Tensor:
    x = tensor(self)
    if x.ndim < 2:
        raise Refused("a matrix is wanted")
    return x.transpose(-1, -2)


def _adjoint(self: Any) -> Tensor:
    return conjugate(_transposed(self))


def _movedim(self: Any, source: int | Ints, destination: int | Ints) -> Tensor:
    x = tensor(self)
    pairs = [[v] if isinstance(v, int) else list(v) for v in (source, destination)]
    there, here = ([axis_of(d, x.ndim) for d in dims] for dims in pairs)
    if len(there) != len(here) or len(set(there)) != len(there) or len(set(here)) != len(here):
        raise Refused(f"axes {source} cannot move to {destination}")
    rest = iter(k for k in range(x.ndim) if k not in there)
    where = dict(zip(here, there, strict=True))
    return x.permute([where[k] if k in where else next(rest) for k in range(x.ndim)])


def _sections(x: Tensor, axis: int, ends: Sequence[int]) -> tuple[Tensor, ...]:
    begins = [0, *ends]
    return tuple(
        x[at(x.ndim, axis, slice(a, max(a, b)))] for a, b in zip(begins, [*ends, x.shape[axis]], strict=True)
    )


def _chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    x = tensor(self)
    axis = axis_of(dim, x.ndim)
    if chunks < 1 or x.ndim == 0:
        raise Refused(f"{chunks} chunks of a tensor of rank {x.ndim}")
    n = x.shape[axis]
    size = max(-(-n // chunks), 1)
    return _sections(x, axis, list(range(size, n, size)) if n else [0] * (chunks - 1))


def _tensor_split(self: Any, sections: int, dim: int = 0) -> tuple[Tensor, ...]:
    x = tensor(self)
    axis = axis_of(dim, x.ndim)
    sections = sections if isinstance(sections, int) else int(tensor(sections).item())
    if sections < 1 or x.ndim == 0:
        raise Refused(f"{sections} sections of a tensor of rank {x.ndim}")
    n = x.shape[axis]
    small, more = divmod(n, sections)
    return _sections(x, axis, [k * small + min(k, more) for k in range(1, sections)])


def _tensor_split_at(self: Any, indices: Ints, dim: int = 0) -> tuple[Tensor, ...]:
    x = tensor(self)
    axis = axis_of(dim, x.ndim)
    n = x.shape[axis]
    return _sections(x, axis, [min(max(k + n if k < 0 else k, 0), n) for k in indices])


def _tensor_split_by(self: Any, tensor_indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    given = tensor(tensor_indices_or_sections)
    if given.dtype != "i64" or given.ndim > 1:
        raise Refused("one i64, or a vector of them, is wanted")
    if not given.ndim:
        return _tensor_split(self, int(given.item()), dim)
    return _tensor_split_at(self, [int(given[k].item()) for k in range(given.shape[0])], dim)


def _narrow_from(self: Any, dim: int, start: Any, length: int) -> Tensor:
    at = tensor(start)
    if at.ndim or at.dtype not in ("u8", "i8", "i16", "i32", "i64"):
        raise Refused(f"`start` must be one integer of rank 0, it is {at.dtype}{list(at.shape)}")
    return _narrow(self, dim, int(tensor(start).item()), length)


def _along(axis_of_rank: dict[int, int], self: Any, cut: int | Ints) -> tuple[Tensor, ...]:
    x = tensor(self)
    axis = axis_of_rank.get(x.ndim, axis_of_rank[0])
    return _tensor_split(x, cut, axis) if isinstance(cut, int) else _tensor_split_at(x, cut, axis)


def _hsplit(self: Any, sections: int | Ints) -> tuple[Tensor, ...]:
    return _along({1: 0, 0: 1}, self, sections)


def _vsplit(self: Any, sections: int | Ints) -> tuple[Tensor, ...]:
    return _along({0: 0}, self, sections)


def _dsplit(self: Any, sections: int | Ints) -> tuple[Tensor, ...]:
    return _along({0: 2}, self, sections)


def _at_least(rank: int, self: Any) -> Tensor:
    x = tensor(self)
    shape = list(x.shape)
    if rank == 3 and x.ndim == 2:
        return x.reshape([*shape, 1])
    if rank == 3 and x.ndim == 1:
        return x.reshape([1, *shape, 1])
    return x.reshape([1] * (rank - x.ndim) + shape) if x.ndim < rank else x


def _narrow(self: Any, dim: int, start: int, length: int) -> Tensor:
    x = tensor(self)
    axis = axis_of(dim, x.ndim)
    n = x.shape[axis]
    begin = start + n if start < 0 else start
    if not 0 <= begin <= n or length < 0 or begin + length > n:
        raise Refused(f"{length} from {start} of an axis of extent {n}")
    return x[at(x.ndim, axis, slice(begin, begin + length))]


def _broadcast_tensors(tensors: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(joined(*tensors))


def _meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> tuple[Tensor, ...]:
    xs = [tensor(x).reshape([tensor(x).size]) for x in tensors]
    shape = [x.size for x in xs]
    out = [
        x.reshape([x.size if j == k else 1 for j in range(len(xs))]).expand(shape) for k, x in enumerate(xs)
    ]
    if indexing == "xy" and len(xs) > 1:
        return tuple(x.transpose(0, 1) for x in out)
    if indexing not in ("ij", "xy"):
        raise Refused(f"indexing is ij or xy, not {indexing}")
    return tuple(out)


VIEWS_MORE: dict[str, Front] = {
    "aten.broadcast_tensors.default": _broadcast_tensors,
    "aten.broadcast_to.default": _broadcast_to,
    "aten.chunk.default": _chunk,
    "aten.dsplit.array": _dsplit,
    "aten.dsplit.int": _dsplit,
    "aten.expand_as.default": _expand_as,
    "aten.flatten.using_ints": _flatten,
    "aten.hsplit.array": _hsplit,
    "aten.hsplit.int": _hsplit,
    "aten.mT.default": _transposed,
    "aten.meshgrid.default": _meshgrid,
    "aten.meshgrid.indexing": _meshgrid,
    "aten.movedim.int": _movedim,
    "aten.movedim.intlist": _movedim,
    "aten.narrow.Tensor": _narrow_from,
    "aten.narrow.default": _narrow,
    "aten.numpy_T.default": _reversed,
    "aten.ravel.default": _flatten,
    "aten.reshape_as.default": _reshape_as,
    "aten.tensor_split.tensor_indices_or_sections": _tensor_split_by,
    "aten.tensor_split.indices": _tensor_split_at,
    "aten.tensor_split.sections": _tensor_split,
    "aten.unflatten.int": _unflatten,
    "aten.unsafe_chunk.default": _chunk,
    "aten.view_as.default": _reshape_as,
    "aten.vsplit.array": _vsplit,
    "aten.vsplit.int": _vsplit,
}


# ---- what is copied ----------------------------------------------------------------------------------------------


def _copy(x: Tensor, finish: Any = None) -> Call:
    return Call("contiguous", {"x": x}, finish)


def _cat(xs: Sequence[Tensor], dim: int) -> Call:
    return Call("aten.cat.default", {"tensors": list(xs), "dim": dim})


def _stack(tensors: Sequence[Any], dim: int = 0) -> Call:
    xs = [tensor(x) for x in tensors]
    axis = axis_of(dim, xs[0].ndim + 1)
    return Call("aten.cat.default", {"tensors": [x.unsqueeze(axis) for x in xs], "dim": axis})


def _hstack(tensors: Sequence[Any]) -> Call:
    xs = [_at_least(1, x) for x in tensors]
    return _cat(xs, 0 if xs[0].ndim == 1 else 1)


def _vstack(tensors: Sequence[Any]) -> Call:
    return _cat([_at_least(2, x) for x in tensors], 0)


def _dstack(tensors: Sequence[Any]) -> Call:
    return _cat([_at_least(3, x) for x in tensors], 2)


def _column_stack(tensors: Sequence[Any]) -> Call:
    return _hstack([x if (x := tensor(t)).ndim >= 2 else x.reshape([x.size, 1]) for t in tensors])


def _repeat_each(self: Any, repeats: int, dim: int | None = None, output_size: int | None = None) -> Call:
    x = tensor(self)
    if dim is None:
        x, dim = x.reshape([x.size]), 0
    axis = axis_of(dim, x.ndim)
    shape = list(x.shape)
    wide = x.unsqueeze(axis + 1).expand([*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return _copy(wide, lambda y: y.reshape([*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]]))


def _repeat_by(self: Any, repeats: Any, dim: int | None = None, output_size: int | None = None) -> Call:
    x, r = tensor(self), tensor(repeats)
    if dim is None:
        x, dim = x.reshape([x.size]), 0
    axis = axis_of(dim, x.ndim)
    places = run("repeat_interleave", r.reshape([r.size]).expand([x.shape[axis]]))
    return Call("aten.index_select.default", {"self": x, "dim": axis, "index": places})


def _tile(self: Any, dims: Ints) -> Call:
    x = tensor(self)
    times = [1] * (x.ndim - len(dims)) + list(dims)
    return Call("repeat", {"x": x.reshape([1] * (len(times) - x.ndim) + list(x.shape)), "times": times})


def _roll(self: Any, shifts: int | Ints, dims: int | Ints = ()) -> Call:
    x = tensor(self)
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    over = [dims] if isinstance(dims, int) else list(dims)
    if not over:
        if len(by) != 1:
            raise Refused("without dims, there is one shift")
        shape = list(x.shape)
        return Call("roll", {"x": x.reshape([x.size]), "shifts": by}, lambda y: y.reshape(shape))
    if len(by) != len(over):
        raise Refused(f"{len(by)} shifts for {len(over)} dims")
    if x.ndim == 0:
        raise Refused(f"`dims` names {over}, a tensor of rank 0 has no axis")
    total = [0] * x.ndim
    for s, d in zip(by, over, strict=True):
        total[axis_of(d, x.ndim)] += s
    return Call("roll", {"x": x, "shifts": total})


def _rot90(self: Any, k: int = 1, dims: Ints = (0, 1)) -> Call:
    x = tensor(self)
    a, b = (axis_of(d, x.ndim) for d in dims)
    if a == b:
        raise Refused("two different dims are wanted")
    turned = {1: [b], 2: [a, b], 3: [a]}.get(k % 4, [])
    flipped = run("flip", x, flags=[int(d in turned) for d in range(x.ndim)])
    return _copy(flipped.transpose(a, b) if k % 2 else flipped)


def _flip_one(axis: int, self: Any) -> Call:
    x = tensor(self)
    if x.ndim <= axis:
        raise Refused(f"a tensor of at least {axis + 1} axes is wanted")
    return Call("flip", {"x": x, "flags": [int(k == axis) for k in range(x.ndim)]})


def _pixel_shuffle(self: Any, upscale_factor: int) -> Call:
    x, r = tensor(self), upscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-3] % (r * r):
        raise Refused(f"a factor of {r} for a tensor of shape {list(x.shape)}")
    *batch, c, h, w = x.shape
    n = len(batch)
    parts = x.reshape([*batch, c // (r * r), r, r, h, w])
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return _copy(parts.permute(order), lambda y: y.reshape([*batch, c // (r * r), h * r, w * r]))


def _pixel_unshuffle(self: Any, downscale_factor: int) -> Call:
    x, r = tensor(self), downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise Refused(f"a factor of {r} for a tensor of shape {list(x.shape)}")
    *batch, c, h, w = x.shape
    n = len(batch)
    parts = x.reshape([*batch, c, h // r, r, w // r, r])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return _copy(parts.permute(order), lambda y: y.reshape([*batch, c * r * r, h // r, w // r]))


def _channel_shuffle(self: Any, groups: int) -> Call:
    x = tensor(self)
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        raise Refused(f"{groups} groups of a tensor of shape {list(x.shape)}")
    n, c, *rest = x.shape
    parts = x.reshape([n, groups, c // groups, *rest])
    return _copy(parts.transpose(1, 2), lambda y: y.reshape([n, c, *rest]))


def _diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Call:
    x = tensor(self)
    a, b = axis_of(dim1, x.ndim + 1), axis_of(dim2, x.ndim + 1)
    if a == b or x.ndim == 0:
        raise Refused(f"dims {dim1} and {dim2} of a tensor of rank {x.ndim}")
    rest = iter(range(x.ndim - 1))
    order = [x.ndim - 1 if k == a else x.ndim if k == b else next(rest) for k in range(x.ndim + 1)]
    return Call("diag_embed", {"x": x, "offset": offset}, lambda y: y.permute(order))


def _diag(self: Any, diagonal: int = 0) -> Call:
    x = tensor(self)
    if x.ndim == 1:
        return _diag_embed(x, diagonal)
    if x.ndim != 2:
        raise Refused(f"a vector or a matrix is wanted, not rank {x.ndim}")
    down, right = max(-diagonal, 0), max(diagonal, 0)
    n = max(min(x.shape[0] - down, x.shape[1] - right), 0)
    begin = x.offset + (down * x.strides[0] + right * x.strides[1] if n else 0)
    return _copy(x.as_strided([n], [x.strides[0] + x.strides[1]], begin))


def _diagflat(self: Any, offset: int = 0) -> Call:
    x = tensor(self)
    return _diag_embed(x.reshape([x.size]), offset)


def _triangle_indices(op: str, row: int, col: int, offset: int = 0, dtype: Any = None) -> Tensor:
    """Positions of a triangle, row by row, rows first."""
    marked = run(op, run("full", size=[row, col], value=True, dtype="bool"), diagonal=offset)
    places = run("contiguous", run("nonzero", marked).transpose(0, 1))
    return places if dtype is None else places.to(dtype_name(dtype))


def _tril_indices(row: int, col: int, offset: int = 0, dtype: Any = None) -> Tensor:
    return _triangle_indices("tril", row, col, offset, dtype)


def _triu_indices(row: int, col: int, offset: int = 0, dtype: Any = None) -> Tensor:
    return _triangle_indices("triu", row, col, offset, dtype)


def _eye(n: int, dtype: Any = None) -> Call:
    return Call("aten.eye.m", {"n": n, "m": n, "dtype": dtype})


def _block_diag(tensors: Sequence[Any]) -> Call:
    xs = [_at_least(2, x) for x in tensors]
    width = sum(x.shape[1] for x in xs)
    rows, before = [], 0
    for x in xs:
        after = width - before - x.shape[1]
        rows.append(run("constant_pad", x, before=[0, before], after=[0, after]))
        before += x.shape[1]
    return _cat(rows, 0)


def _cartesian_prod(tensors: Sequence[Any]) -> Call:
    xs = [tensor(x) for x in tensors]
    if len(xs) == 1:
        return _copy(xs[0])
    grids = _meshgrid(xs)
    return _stack([run("contiguous", g).reshape([g.size]) for g in grids], 1)


def _masked_select(self: Any, mask: Any) -> Call:
    x, m = joined(self, mask)
    if x.ndim == 0:
        x, m = x.reshape([1]), m.reshape([1])
    places = run("nonzero", m)
    return Call("index", {"x": x, "i": [places[:, k] for k in range(x.ndim)]})


def _flat(x: Any) -> Tensor:
    t = tensor(x)
    return t.reshape([t.size])


def masked_scatter(self: Any, mask: Any, source: Any) -> Call:
    """The operator goes along one axis."""
    x, m = joined(self, mask)
    shape = list(x.shape)
    return Call(
        "masked_scatter", {"x": _flat(x), "m": _flat(m), "src": _flat(source)}, lambda y: y.reshape(shape)
    )


def _take(self: Any, index: Any) -> Call:
    return Call("index", {"x": _flat(self), "i": [tensor(index)]})


def _put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Call:
    shape = list(self.shape)
    return Call(
        "index_put",
        {"x": _flat(self), "i": [_flat(index)], "v": _flat(source), "accumulate": accumulate},
        lambda y: y.reshape(shape),
    )


def _take_along_dim(self: Any, indices: Any, dim: int | None = None) -> Call:
    if dim is None:
        return Call("aten.gather.default", {"self": _flat(self), "dim": 0, "index": _flat(indices)})
    x, i = tensor(self), tensor(indices)
    axis = axis_of(dim, x.ndim)
    if x.ndim != i.ndim:
        raise Refused(f"indices of rank {i.ndim} for a tensor of rank {x.ndim}")
    rest = broadcast([[n for k, n in enumerate(t.shape) if k != axis] for t in (x, i)]) if x.ndim > 1 else ()
    shape = list(rest)
    wide = [t.expand([*shape[:axis], t.shape[axis], *shape[axis:]]) for t in (x, i)]
    wide[1] = run("where", run("lt", wide[1], 0), run("add", wide[1], x.shape[axis]), wide[1])
    return Call("gather", {"x": wide[0], "i": wide[1], "dim": axis})


def _index_reduce(
    self: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Call:
    x, s, i = tensor(self), tensor(source), tensor(index)
    if x.ndim == 0:
        x, s = x.reshape([1]), s.reshape([1])
    axis = axis_of(dim, x.ndim)
    places = i.reshape([i.size if k == axis else 1 for k in range(x.ndim)]).expand(list(s.shape))
    given = {"x": x, "dim": axis, "i": places, "src": s, "reduce": reduce, "include_self": include_self}
    shape = list(self.shape)
    return Call("scatter_reduce", given, lambda y: y.reshape(shape))


def _one_hot(self: Any, num_classes: int = -1) -> Call:
    x = tensor(self)
    if x.dtype != "i64":
        raise Refused("i64 positions are wanted")
    n = num_classes
    if n == -1:
        if not x.size:
            raise Refused("nothing tells how many classes there are")
        n = int(run("amax", x).item()) + 1
    if x.size and not 0 <= int(run("amin", x).item()) <= int(run("amax", x).item()) < n:
        raise Refused(f"positions must be from 0 and below {n}")
    same = run("eq", x.unsqueeze(-1), run("arange", end=n, dtype="i64"))
    return Call("cast", {"x": same, "dtype": "i64"})


def _bucket(
    sorted_sequence: Any,
    self: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Call:
    s, x = tensor(sorted_sequence), tensor(self)
    if sorter is not None:
        s = run("gather", s, tensor(sorter), dim=-1)
    shape = list(x.shape)
    if s.ndim == 1:
        x = x.reshape([x.size])
    elif list(s.shape[:-1]) != shape[:-1]:
        raise Refused(f"rows of {list(s.shape)} for values of {shape}")

    def finish(y: Any) -> Any:
        return (y.to("i32") if out_int32 else y).reshape(shape)

    return Call("searchsorted", {"s": s, "x": x, "right": right or side == "right"}, finish)


def _bucket_scalar(sorted_sequence: Any, self: Any, *more: Any, **named: Any) -> Call:
    s = tensor(sorted_sequence)
    return _bucket(s, _number_among(s, self), *more, **named)


def _number_among(others: Tensor, number: Any) -> Tensor:
    """Of their dtype, or a float of its own beside integers."""
    whole = others.dtype in ("u8", "i8", "i16", "i32", "i64", "bool")
    return full((), number, "f32" if whole and isinstance(number, float) else others.dtype)


def _bincount(self: Any, weights: Any = None, minlength: int = 0) -> Call:
    if weights is None:
        return Call("bincount", {"x": self, "minlength": minlength})
    w = tensor(weights)
    wide = w if w.dtype in ("f32", "f64") else run("cast", w, dtype="f64")
    return Call("bincount_weighted", {"x": self, "w": wide, "minlength": minlength})


def _histc(self: Any, bins: int = 100, min: float = 0, max: float = 0) -> Call:
    return Call("histc", {"x": self, "bins": bins, "lo": float(min), "hi": float(max)})


def _unique2(
    self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    y, inverse, counts = run("unique", _flat(self))
    none = empty([0], "i64")
    shaped = inverse.reshape(list(self.shape))
    return y, shaped if return_inverse else none, counts if return_counts else none


def _unique_consecutive(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    if dim is not None and tensor(self).ndim != 1:
        raise Refused("`dim` must be None")
    y, inverse, counts = run("unique_consecutive", _flat(self))
    none = empty([0], "i64")
    shaped = inverse.reshape(list(self.shape))
    all_of_it = dim is not None  # along a dim PyTorch gives everything
    return y, shaped if return_inverse or all_of_it else none, counts if return_counts or all_of_it else none


# ---- dtypes, single values, parts of complex numbers --------------------------------------------------------------


def _to(self: Any, dtype: Any = None, non_blocking: bool = False, copy: bool = False) -> Call | Tensor:
    """The tensor itself where it has the dtype already."""
    x = tensor(self)
    if dtype is None or dtype_name(dtype) == x.dtype:
        return _copy(x) if copy else x
    return Call("cast", {"x": x, "dtype": dtype_name(dtype)})


def _to_options(self: Any, dtype: Any = None, copy: bool = False) -> Call | Tensor:
    return _to(self, dtype, copy=copy)


def _to_device(
    self: Any, device: Any, dtype: Any = None, non_blocking: bool = False, copy: bool = False
) -> Call | Tensor:
    return _to(self, dtype, copy=copy)


def _type_as(self: Any, other: Any) -> Call | Tensor:
    return _to(self, tensor(other).dtype)


def _contiguous(self: Any) -> Call | Tensor:
    x = tensor(self)
    steps, step = [], 1
    for n in reversed(x.shape):
        steps.append(step)
        step *= n
    plain = all(n == 1 or s == want for n, s, want in zip(x.shape, x.strides, steps[::-1], strict=True))
    return x if plain or not x.size else _copy(x)


def _item(self: Any) -> Any:
    x = tensor(self)
    if x.size != 1:
        raise Refused(f"{x.size} values are no single one")
    return x.item()


def _part(op: str, self: Any) -> Call | Tensor:
    x = tensor(self)
    if x.dtype in ("c64", "c128"):
        return Call(op, {"x": x})
    if op == "imag":
        raise Refused("reals have no imaginary part")
    return x


# ---- borders and windows -----------------------------------------------------------------------------------------


def _amounts(x: Tensor, pad: Ints, n: int | None = None) -> dict[str, Any]:
    """Amounts from the last axis backwards, in pairs → one list before and one after, by axis."""
    if len(pad) % 2 or len(pad) > 2 * x.ndim or (n is not None and len(pad) != 2 * n):
        raise Refused(f"{len(pad)} amounts do not pad a tensor of rank {x.ndim}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    return {"x": x, "before": before, "after": after}


def _border(op: str, n: int | None = None) -> Front:
    def one(self: Any, padding: Ints) -> Call:
        return Call(op, _amounts(tensor(self), padding, n))

    return one


def _pad(self: Any, pad: Ints, mode: str = "constant", value: float | None = None) -> Call:
    x = tensor(self)
    if mode == "constant":
        return Call("constant_pad", {**_amounts(x, pad), "value": value or 0})
    op = {"reflect": "reflection_pad", "replicate": "replication_pad", "circular": "circular_pad"}.get(mode)
    if op is None:
        raise Refused(f"mode {mode} is not known")
    return Call(op, _amounts(x, pad))


def _im2col(
    self: Any, kernel_size: int | Ints, dilation: int | Ints, padding: int | Ints, stride: int | Ints
) -> Call:
    """Windows of planes as columns."""
    given = tensor(self)
    x = given if given.ndim == 4 else given.unsqueeze(0)
    if x.ndim != 4:
        raise Refused(f"planes of rank 3 or 4 are wanted, not {given.ndim}")
    k, d, p, s = (ints(v, 2) for v in (kernel_size, dilation, padding, stride))
    padded = run("constant_pad", x, before=[0, 0, *p], after=[0, 0, *p])
    n, c, h, w = padded.shape
    count = [(e - d[j] * (k[j] - 1) - 1) // s[j] + 1 for j, e in enumerate((h, w))]
    if min(count) < 1:
        raise Refused(f"windows of {k} do not fit into {[h, w]}")
    t = padded.strides
    steps = [t[0], t[1], t[2] * d[0], t[3] * d[1], t[2] * s[0], t[3] * s[1]]
    shape = [n, c * k[0] * k[1], count[0] * count[1]]
    windows = padded.as_strided([n, c, *k, *count], steps, padded.offset)
    return _copy(windows, lambda y: y.reshape(shape if given.ndim == 4 else shape[1:]))


def _col2im(
    self: Any,
    output_size: int | Ints,
    kernel_size: int | Ints,
    dilation: int | Ints,
    padding: int | Ints,
    stride: int | Ints,
) -> Call:
    given = tensor(self)
    x = given if given.ndim == 3 else given.unsqueeze(0)
    o, k, d, p, s = (ints(v, 2) for v in (output_size, kernel_size, dilation, padding, stride))
    count = [(o[j] + 2 * p[j] - d[j] * (k[j] - 1) - 1) // s[j] + 1 for j in range(2)]
    n, rows, columns = x.shape
    if rows % (k[0] * k[1]) or count[0] * count[1] != columns:
        raise Refused(f"columns of shape {list(given.shape)} do not fill {o} with windows of {k}")
    parts = x.reshape([n, rows // (k[0] * k[1]), *k, *count])
    attrs = {"out": o, "dilation": d, "padding": p, "stride": s}
    return Call("fold", {"x": parts, **attrs}, None if given.ndim == 3 else lambda y: y[0])


# ---- scattered, masked and laid back -----------------------------------------------------------------------------


def _scatter_by(self: Any, dim: int, index: Any, src: Any, reduce: str) -> Call:
    """`scatter` with one of its two reductions; a number stands for as many as there are indices."""
    kinds = {"add": "sum", "multiply": "prod"}
    if reduce not in kinds:
        raise Refused(f"`reduce` must be add or multiply, it is {reduce}")
    x, i = tensor(self), tensor(index)
    s = full(list(i.shape), src, x.dtype) if isinstance(src, bool | int | float | complex) else tensor(src)
    if not x.ndim:
        given = {"x": x.reshape([1]), "i": i.reshape([1]), "src": s.reshape([1])}
        return Call("scatter_reduce", {**given, "dim": 0, "reduce": kinds[reduce]}, lambda y: y.reshape([]))
    return Call("scatter_reduce", {"x": x, "dim": dim, "i": i, "src": s, "reduce": kinds[reduce]})


def _scatter_number(self: Any, dim: int, index: Any, value: Any, reduce: str) -> Call:
    return _scatter_by(self, dim, index, value, reduce)


def _bucketize(self: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Tensor:
    b = tensor(boundaries)
    x = _number_among(b, self) if isinstance(self, bool | int | float) else tensor(self)
    out = run("bucketize", x, b, right=right)
    return tensor(out.to("i32") if out_int32 else out)


def _max_unpool(n: int, self: Any, indices: Any, output_size: Ints, *more: Any, **named: Any) -> Tensor:
    """Every number where its index says, of planes (or volumes) of zeros."""
    x, i = tensor(self), tensor(indices)
    if x.ndim not in (n + 1, n + 2) or tuple(i.shape) != tuple(x.shape) or len(output_size) != n:
        raise Refused(f"values {list(x.shape)}, places {list(i.shape)} and {n} extents do not fit")
    lead, room = list(x.shape[: x.ndim - n]), math.prod(output_size)
    if i.size and not 0 <= int(run("amin", i).item()) <= int(run("amax", i).item()) < room:
        raise Refused(f"`indices` must lie from 0 to {room - 1}")
    flat = [math.prod(lead), math.prod(x.shape[x.ndim - n :])]
    zeros = full((flat[0], room), 0, x.dtype)
    out = run("scatter", zeros, run("contiguous", i).reshape(flat), run("contiguous", x).reshape(flat), dim=1)
    return tensor(out.reshape([*lead, *output_size]))


def _at_least_each(rank: int, tensors: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(_at_least(rank, x) for x in tensors)


ARRANGEMENTS: dict[str, Front] = {
    **{f"aten.atleast_{n}d.Sequence": partial(_at_least_each, n) for n in (1, 2, 3)},
    "aten.bucketize.Scalar": _bucketize,
    "aten.bucketize.Tensor": _bucketize,
    "aten.max_unpool2d.default": partial(_max_unpool, 2),
    "aten.max_unpool3d.default": partial(_max_unpool, 3),
    "aten.scatter.reduce": _scatter_by,
    "aten.scatter.value_reduce": _scatter_number,
    "aten._local_scalar_dense.default": _item,
    "aten.contiguous.default": _contiguous,
    "aten.imag.default": lambda self: _part("imag", self),
    "aten.item.default": _item,
    "aten.real.default": lambda self: _part("real", self),
    "aten.to.device": _to_device,
    "aten.to.dtype": _to,
    "aten.to.dtype_layout": _to_options,
    "aten.to.other": lambda self, other, non_blocking=False, copy=False: _to(
        self, tensor(other).dtype, copy=copy
    ),
    "aten.type_as.default": _type_as,
    **{f"aten.{name}.default": _adjoint for name in ("adjoint", "mH", "matrix_H")},
    "aten._pad_circular.default": lambda self, pad: _pad(self, pad, "circular"),
    "aten._unique2.default": _unique2,
    "aten.atleast_1d.default": lambda self: _at_least(1, self),
    "aten.atleast_2d.default": lambda self: _at_least(2, self),
    "aten.atleast_3d.default": lambda self: _at_least(3, self),
    "aten.bincount.default": _bincount,
    "aten.block_diag.default": _block_diag,
    "aten.cartesian_prod.default": _cartesian_prod,
    "aten.channel_shuffle.default": _channel_shuffle,
    "aten.col2im.default": _col2im,
    "aten.column_stack.default": _column_stack,
    "aten.diag.default": _diag,
    "aten.diag_embed.default": _diag_embed,
    "aten.diagflat.default": _diagflat,
    "aten.dstack.default": _dstack,
    "aten.eye.default": _eye,
    "aten.fliplr.default": lambda self: _flip_one(1, self),
    "aten.flipud.default": lambda self: _flip_one(0, self),
    "aten.histc.default": _histc,
    "aten.hstack.default": _hstack,
    "aten.im2col.default": _im2col,
    "aten.index_reduce.default": _index_reduce,
    "aten.masked_select.default": _masked_select,
    "aten.one_hot.default": _one_hot,
    "aten.pad.default": _pad,
    "aten.pixel_shuffle.default": _pixel_shuffle,
    "aten.pixel_unshuffle.default": _pixel_unshuffle,
    "aten.put.default": _put,
    "aten.reflection_pad1d.default": _border("reflection_pad", 1),
    "aten.reflection_pad2d.default": _border("reflection_pad", 2),
    "aten.reflection_pad3d.default": _border("reflection_pad", 3),
    "aten.repeat_interleave.Tensor": lambda repeats, output_size=None: Call(
        "repeat_interleave", {"r": repeats}
    ),
    "aten.repeat_interleave.self_Tensor": _repeat_by,
    "aten.repeat_interleave.self_int": _repeat_each,
    "aten.replication_pad1d.default": _border("replication_pad", 1),
    "aten.replication_pad2d.default": _border("replication_pad", 2),
    "aten.replication_pad3d.default": _border("replication_pad", 3),
    "aten.roll.default": _roll,
    "aten.rot90.default": _rot90,
    "aten.searchsorted.Scalar": _bucket_scalar,
    "aten.searchsorted.Tensor": _bucket,
    "aten.stack.default": _stack,
    "aten.take.default": _take,
    "aten.take_along_dim.default": _take_along_dim,
    "aten.tile.default": _tile,
    "aten.tril_indices.default": _tril_indices,
    "aten.triu_indices.default": _triu_indices,
    "aten.unique_consecutive.default": _unique_consecutive,
    "aten.vstack.default": _vstack,
}
