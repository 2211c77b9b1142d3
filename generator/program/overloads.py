"""What single overloads need beyond the aten table: views, canonical arguments, calls that no map can say.

May import: ir, views, aten, intexpr, torch_compat, captured.  To add a view: a line in `VIEWS`; an overload whose
arguments need another order before the table sees them: a line in `PREPARE`, or, where dtypes and shapes say all, in
runtime/python/arguments.py; one that no map can say: a line in `COMPOSE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..types import DType
from . import torch_compat as compat
from . import views
from .captured import CaptureError, Item, Prepared, Real, Ref, RowRefused, inverse_of, text_of
from .intexpr import IntExpr, product
from .ir import (
    Arg,
    Assert,
    AttrValue,
    Cond,
    Read,
    Value,
)
from .views import Layout

if TYPE_CHECKING:
    from .convert import Converter

__all__ = ["COMPOSE", "DROPPED", "PREPARE", "SPECIAL", "VIEWS"]
MAX_INT = 2**62


DROPPED = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
        "aten._assert_async.default",
        "profiler._record_function_enter_new.default",
        "profiler._record_function_exit._RecordFunction",
    }
)

_Special: TypeAlias = "Callable[[Converter, Any, Mapping[str, Any]], Item]"
_View: TypeAlias = "Callable[[Converter, Ref, Mapping[str, Any], Any], Item]"


def _cat(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """PyTorch passes over an empty tensor of rank 1 among others of any rank: what a cache is before its first use."""
    tensors = [c.item(t) for t in bound["tensors"]]
    kept = [t for t in tensors if t.layout.rank != 1 or t.layout.shape[0].value != 0]
    if not kept or len(kept) == len(tensors):
        return c.call(node, bound)
    dtype = compat.dtype_of(node.meta["val"].dtype)
    return c.cast(kept[0], dtype) if len(kept) == 1 else c.call(node, {**bound, "tensors": kept})


def _same_tensor(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    return c.item(bound.get("self", bound.get("input")))  # type: ignore[no-any-return]


def _to_copy(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    x = c.item(bound["self"])
    assert isinstance(x, Ref)
    return c.cast(x, compat.dtype_of(node.meta["val"].dtype))


def _copy(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """`copy(self, src)`: src as self's dtype and extents."""
    src = c.item(bound["src"])
    assert isinstance(src, Ref)
    src = c.cast(src, compat.dtype_of(node.meta["val"].dtype))
    return Ref(src.base, src.dtype, views.expand(src.layout, c.shape(node.meta["val"])))


def _assert_scalar(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    value = bound["self"]
    val = value.meta["val"] if hasattr(value, "meta") else value
    cond = compat.cond_of(val)
    if not isinstance(cond, bool):
        cond = c.plainly(_renamed(c, cond))
        if not c.certain(cond) and all(not isinstance(n, Assert) or n.cond != cond for n in c.nodes):
            c.nodes.append(Assert(cond, c.assertion(cond, str(bound.get("assert_msg", "")))))
    elif not cond:
        raise CaptureError(f"the model's own assertion fails: {bound.get('assert_msg')}")
    return None


def _renamed(c: Converter, cond: Cond) -> Cond:
    return (cond[0], *(c.rename(x) if isinstance(x, IntExpr) else _renamed(c, x) for x in cond[1:]))


def _assert_async(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    x = c.item(bound["self"])
    assert isinstance(x, Ref)
    id = c.fresh("n")
    c.values[id] = Value(
        id,
        DType.BOOL if x.dtype.kind == "bool" else DType.F64 if x.dtype.is_float else DType.I64,
        kind="scalar",
    )
    c.nodes.append(Read(c.materialise(x), id))
    c.nodes.append(
        Assert(("ne", IntExpr.of(id), IntExpr.of(0)), str(bound.get("assert_msg", "assertion of the model")))
    )
    return None


def _slice_scatter(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """`src` in the place of a slice of `self`: what lies before, `src`, and what lies after, joined."""
    a = {k: c.item(v) for k, v in bound.items()}
    if _expr(a["step"]).value != 1 or not isinstance(a["self"], Ref) or not isinstance(a["src"], Ref):
        return c.call(node, bound)
    x, src = a["self"], a["src"]
    dim = views.wrap_dim(a["dim"], x.layout.rank)
    size, length = x.layout.shape[dim], src.layout.shape[dim]
    start = _expr(0 if a["start"] is None else a["start"])
    if start.value is not None and start.value < 0:
        start = start + size
    end = start + length
    src = c.cast(src, x.dtype)
    parts: list[Ref] = []
    if start.value != 0:
        parts.append(Ref(x.base, x.dtype, views.slice_dim(x.layout, dim, IntExpr.of(0), start, length=start)))
    parts.append(src)
    if end != size:
        parts.append(Ref(x.base, x.dtype, views.slice_dim(x.layout, dim, end, size, length=size - end)))
    if len(parts) == 1:
        return src
    inputs = (tuple(c.arg(p) for p in parts),)
    return c.made_call(node, "cat", inputs, {"dim": dim}, [0], [node.meta["val"]], False, Prepared(a))


def _filled(c: Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """A tensor of a number that varies with extents is that number, cast and spread."""
    value = c.item(bound.get("s", bound.get("fill_value")))
    if not isinstance(value, Real):
        return c.call(node, bound)
    fake = node.meta["val"]
    x = c.cast(value.ref, compat.dtype_of(fake.dtype))
    return Ref(x.base, x.dtype, views.expand(x.layout, c.shape(fake)))


SPECIAL: dict[str, _Special] = {
    "aten.full.default": _filled,
    "aten.full_like.default": _filled,
    "aten.scalar_tensor.default": _filled,
    "aten.clone.default": _same_tensor,
    "aten.alias.default": _same_tensor,
    "aten.detach.default": _same_tensor,
    "aten.lift_fresh_copy.default": _same_tensor,
    "aten.lift_fresh.default": _same_tensor,
    "aten.contiguous.default": _same_tensor,
    "aten._to_copy.default": _to_copy,
    "aten.copy.default": _copy,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.cat.default": _cat,
    "aten._assert_scalar.default": _assert_scalar,
    "aten._assert_async.msg": _assert_async,
}


def _expr(x: Any) -> IntExpr:
    return x if isinstance(x, IntExpr) else IntExpr.of(int(x))


def _slice(c: Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    dim = views.wrap_dim(a["dim"], x.layout.rank)
    size = x.layout.shape[dim]
    start, end = (
        _expr(0 if a["start"] is None else a["start"]),
        _expr(MAX_INT if a["end"] is None else a["end"]),
    )
    if end.value is not None and end.value >= MAX_INT:
        end = size
    step = _expr(a["step"]).value
    if step is None:
        return None
    length = c.extent(val.shape[dim])
    return Ref(x.base, x.dtype, views.slice_dim(x.layout, dim, start, end, step, length=length))


def _split(c: Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    dim = views.wrap_dim(a["dim"], x.layout.rank)
    sizes = [c.extent(v.shape[dim]) for v in val]
    return tuple(Ref(x.base, x.dtype, p) for p in views.split(x.layout, dim, sizes))


def _unbind(c: Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    return tuple(
        Ref(x.base, x.dtype, views.select(x.layout, a["dim"], IntExpr.of(k))) for k in range(len(val))
    )


def _as_strided(c: Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    """Elements of torch's storage: the same as ours where the tensor was contiguous from its storage's start, there
    and (after a copy at most) here."""
    offset = 0 if a["storage_offset"] is None else a["storage_offset"]
    source = c.current.args[0].meta["val"]
    if not source.is_contiguous() or compat.extent_of(source.storage_offset()).value != 0:
        return None
    if not views.is_contiguous(x.layout) or x.layout.offset.value != 0:
        x = c.contiguous(x)
    layout = views.as_strided([_expr(n) for n in a["size"]], [_expr(n) for n in a["stride"]], _expr(offset))
    base = c.values[x.base]
    return Ref(x.base, x.dtype, layout) if product(base.shape) == x.layout.numel else None


def _by_layout(rule: Callable[[Converter, Layout, Mapping[str, Any]], Layout]) -> _View:
    return lambda c, x, a, val: Ref(x.base, x.dtype, rule(c, x.layout, a))


def _reshape(c: Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    return c.reshape(x, c.shape(val))


def _expand(c: Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    return Ref(x.base, x.dtype, views.expand(x.layout, c.shape(val)))


VIEWS: dict[str, _View] = {
    "aten.view.default": _reshape,
    "aten._unsafe_view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten.expand.default": _expand,
    "aten.slice.Tensor": _slice,
    "aten.split_with_sizes.default": _split,
    "aten.split.Tensor": _split,
    "aten.unbind.int": _unbind,
    "aten.as_strided.default": _as_strided,
    "aten.permute.default": _by_layout(lambda c, x, a: views.permute(x, a["dims"])),
    "aten.transpose.int": _by_layout(lambda c, x, a: views.transpose(x, a["dim0"], a["dim1"])),
    "aten.t.default": _by_layout(lambda c, x, a: views.transpose(x, 0, 1) if x.rank == 2 else x),
    "aten.unsqueeze.default": _by_layout(lambda c, x, a: views.unsqueeze(x, a["dim"])),
    "aten.squeeze.default": _by_layout(lambda c, x, a: views.squeeze(x)),
    "aten.squeeze.dim": _by_layout(lambda c, x, a: views.squeeze(x, [a["dim"]])),
    "aten.squeeze.dims": _by_layout(lambda c, x, a: views.squeeze(x, a["dim"])),
    "aten.select.int": _by_layout(lambda c, x, a: views.select(x, a["dim"], _expr(a["index"]))),
    "aten.diagonal.default": _by_layout(lambda c, x, a: views.diagonal(x, a["offset"], a["dim1"], a["dim2"])),
    "aten.unfold.default": _by_layout(lambda c, x, a: views.unfold(x, a["dimension"], a["size"], a["step"])),
}


def _indexed(c: Converter, x: Ref, indices: Sequence[Any]) -> tuple[Ref, list[Ref], list[int], bool]:
    """`x` with its indexed dims first, the indices as views of one shape, the dims, and whether they lie together."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if any(not isinstance(i, Ref) or i.dtype not in (DType.I64, DType.I32) for i in tensors):
        raise RowRefused("an index is a mask: the size of its result depends on data")
    if not dims:
        raise RowRefused("there is no index")
    shape = _broadcast([i.layout.shape for i in tensors])
    expanded = [Ref(i.base, i.dtype, views.expand(i.layout, shape)) for i in tensors]
    rest = [d for d in range(x.layout.rank) if d not in dims]
    first = Ref(x.base, x.dtype, views.permute(x.layout, dims + rest))
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    return first, expanded, dims, together


def _broadcast(shapes: Sequence[tuple[IntExpr, ...]]) -> tuple[IntExpr, ...]:
    rank = max(len(s) for s in shapes)
    out: list[IntExpr] = []
    for k in range(rank):
        extents = [s[k - rank + len(s)] for s in shapes if k - rank + len(s) >= 0]
        out.append(next((n for n in extents if n.value != 1), extents[0]))
    return tuple(out)


def _result_order(x: Ref, indices: list[Ref], dims: list[int], together: bool) -> tuple[int, ...] | None:
    """The permutation from `[*index shape, *rest]` to where PyTorch puts the index dims; None when it is the same."""
    n = indices[0].layout.rank
    before = dims[0] if together else 0
    if before == 0:
        return None
    rest = x.layout.rank - len(dims)
    return tuple([n + k for k in range(before)] + list(range(n)) + [n + k for k in range(before, rest)])


def _index(c: Converter, args: dict[str, Any], val: Any) -> Prepared:
    x, indices, dims, together = _indexed(c, args["self"], args["indices"])
    order = _result_order(x, indices, dims, together)
    shape = indices[0].layout.shape + x.layout.shape[len(dims) :]
    return Prepared(args | {"self": x, "indices": indices}, shape, order)


def _index_put(c: Converter, args: dict[str, Any], val: Any) -> Prepared:
    x, indices, dims, together = _indexed(c, args["self"], args["indices"])
    order = _result_order(x, indices, dims, together)
    rest = x.layout.shape[len(dims) :]
    want = indices[0].layout.shape + rest
    at = want if order is None else tuple(want[d] for d in order)
    values = Ref(args["values"].base, args["values"].dtype, views.expand(args["values"].layout, at))
    if order is not None:
        values = Ref(values.base, values.dtype, views.permute(values.layout, inverse_of(order)))
    front = dims + [d for d in range(x.layout.rank) if d not in dims]
    back = inverse_of(front)
    same = list(back) == list(range(len(back)))
    return Prepared(
        args | {"self": x, "indices": indices, "values": values}, x.layout.shape, None if same else back
    )


def _place(c: Converter, args: dict[str, Any], fake: Any) -> Prepared:
    """Without `dim`, the place among all elements in order."""
    if args["dim"] is not None:
        return Prepared(args)
    if args["keepdim"]:
        raise RowRefused("`keepdim` of a place among all elements")
    x = _tensor(args["self"])
    size = IntExpr.of(1)
    for n in x.layout.shape:
        size = size * n
    return Prepared(args | {"self": c.reshape(x, (size,)), "dim": 0})


def _of_the_face(c: Converter, args: dict[str, Any], fake: Any) -> Prepared:
    """The face's own front puts them in order (expand.py)."""
    raise RowRefused("")


def _with_axes(c: Converter, args: dict[str, Any], fake: Any) -> Prepared:
    """Where a tensor has no axis, the face's own front gives it one."""
    if any(isinstance(x, Ref) and not x.layout.rank for x in args.values()):
        raise RowRefused("")
    return Prepared(args)


#: Overloads whose arguments are put into a canonical order before the table sees them: indexed dims of `self` first,
#: no missing indices, all of one shape; the result is a view in PyTorch's order.
PREPARE: dict[str, Callable[[Converter, dict[str, Any], Any], Prepared]] = {
    "aten.index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index.Tensor": _index,
    "aten._unsafe_index_put.default": _index_put,
    "aten.argmax.default": _place,
    "aten.argmin.default": _place,
    "aten.gather.default": _with_axes,
    "aten.index_select.default": _with_axes,
    "aten.masked_scatter.default": _of_the_face,
}


_Composed: TypeAlias = "tuple[str, tuple[Arg, ...], dict[str, AttrValue]]"


def _tensor(x: Any) -> Ref:
    if not isinstance(x, Ref):
        raise RowRefused(f"{text_of(x)} is no tensor")
    return x


def _constant_pad(c: Converter, a: Mapping[str, Any]) -> _Composed:
    """Amounts from the last dim backwards, in pairs → one list before and one after, by dim."""
    x = _tensor(a["self"])
    pad = [_expr(n) for n in a["pad"]]
    before, after = [IntExpr.of(0)] * x.layout.rank, [IntExpr.of(0)] * x.layout.rank
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    return (
        "constant_pad",
        (c.arg(x),),
        {"before": c.raw_attr(before), "after": c.raw_attr(after), "value": c.raw_attr(a["value"])},
    )


def _flip(c: Converter, a: Mapping[str, Any]) -> _Composed:
    x = _tensor(a["self"])
    dims = {views.wrap_dim(d, x.layout.rank) for d in a["dims"]}
    return "flip", (c.arg(x),), {"flags": tuple(int(d in dims) for d in range(x.layout.rank))}


def _repeat(c: Converter, a: Mapping[str, Any]) -> _Composed:
    x = _tensor(a["self"])
    layout = x.layout
    for _ in range(len(a["repeats"]) - layout.rank):
        layout = views.unsqueeze(layout, 0)
    return "repeat", (c.arg(Ref(x.base, x.dtype, layout)),), {"times": c.raw_attr(a["repeats"])}


def _empty(c: Converter, a: Mapping[str, Any]) -> _Composed:
    """Memory that the model goes on to fill: zeros, so that a run is the same every time."""
    dtype = compat.dtype_of(c.current.meta["val"].dtype).value
    return "full", (), {"size": c.raw_attr(a["size"]), "value": 0, "dtype": dtype}


#: Overloads whose arguments no map says, as a call of an operator that means the same.  A row of the table comes first.
COMPOSE: dict[str, Callable[[Converter, Mapping[str, Any]], _Composed]] = {
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.empty.memory_format": _empty,
    "aten.flip.default": _flip,
    "aten.repeat.default": _repeat,
}
