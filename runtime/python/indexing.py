"""Subscripts of a Tensor that are no views, and assignments: positions, masks, and both beside ints and slices.

As PyTorch has them: ints and slices make a view first; the tensors index what is left, broadcast together; their axes
stand where they stood when they were neighbours, else in front.  Unlike there, integers of 8 bits are positions, not
masks.  Reading is the operator `index`, writing `index_put` (or `where`), which read all of what is written to.

May import: `.aliases`, `.aten`, `.exceptions`, `.load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .aliases import ORDER
from .aten import call_aten
from .exceptions import OpIndexError, OpTypeError, OpValueError
from .load import core

__all__ = ["getitem", "setitem"]

Tensor = core.Tensor


def getitem(x: Any, key: Any) -> Any:
    """`x[key]`, where `key` holds more than ints, slices, None and `...`."""
    view, indices = _split(x, key)
    with _in_range(view, indices):
        return call_aten("aten.index.Tensor", view, indices)


def setitem(x: Any, key: Any, value: Any) -> None:
    """`x[key] = value`: numbers are converted to the tensor's dtype, shapes broadcast."""
    view, indices = _split(x, key)
    if not any(i is not None for i in indices):
        view.copy_(_fitting(value, x.dtype, view.ndim))
        return
    masks = [i for i in indices if i is not None]
    number = isinstance(value, bool | int | float | complex)
    if number and len(masks) == 1 and masks[0].dtype == "bool" and indices[0] is masks[0]:
        (mask,) = masks
        if tuple(mask.shape) != tuple(view.shape[: mask.ndim]):
            raise OpIndexError(f"a mask of shape {mask.shape} does not cover a tensor of shape {view.shape}")
        wide = mask.reshape([*mask.shape, *([1] * (view.ndim - mask.ndim))])
        view.copy_(call_aten("aten.where.self", wide, core.full((), value, view.dtype), view))
        return
    put = _fitting(value, x.dtype, None)
    put = put if number else _short(put, view, indices)
    with _in_range(view, indices):
        made = call_aten("aten.index_put.default", view, indices, put)
    view.copy_(made)


@contextmanager
def _in_range(view: Any, indices: list[Any]) -> Iterator[None]:
    """Says which position is out of range, where the operator says only that one is."""
    try:
        yield
    except OpValueError as error:
        axis = 0
        for index in indices:
            if index is None or index.dtype == "bool":
                axis += 1 if index is None else index.ndim
                continue
            n = view.shape[axis]
            for position in index.reshape(-1).tolist():
                if not -n <= position < n:
                    raise OpIndexError(
                        f"index {position} is out of range for extent {n} (axis {axis} of what ints and slices left)"
                    ) from error
            axis += 1
        raise


def _fitting(value: Any, dtype: str, rank: int | None) -> Any:
    """A tensor in this dtype, without leading axes of extent 1 beyond `rank`."""
    t = (
        value
        if isinstance(value, Tensor)
        else core.tensor(value)
        if _plain(value)
        else core.from_dlpack(value)
    )
    while rank is not None and t.ndim > rank and t.shape[0] == 1:
        t = t[0]
    if ORDER[t.dtype] == 3 > ORDER[dtype]:
        raise OpTypeError(f"a {t.dtype} value cannot be assigned to elements of {dtype}")
    return t if t.dtype == dtype else _convert(t, dtype)


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | list | tuple)


def _short(t: Any, view: Any, indices: list[Any]) -> Any:
    """Without leading axes of extent 1 that what is written has not."""
    ranks = [i.ndim if i.dtype != "bool" else 1 for i in indices if i is not None]
    used = sum(i.ndim if i.dtype == "bool" else 1 for i in indices if i is not None)
    rank = max(ranks) + view.ndim - used
    while t.ndim > rank and t.shape[0] == 1:
        t = t[0]
    return t


_convert = Tensor.to  # the core's own: of a dtype


def _split(x: Any, key: Any) -> tuple[Any, list[Any]]:
    """The view of ints, slices and None, and a tensor or None for each of its axes (a mask stands for several)."""
    parts = [_part(p) for p in (key if isinstance(key, tuple) else (key,))]
    used = sum(_axes(p) for p in parts)
    dots = sum(p is Ellipsis for p in parts)  # not `count`: a tensor's == is elementwise
    if dots > 1:
        raise OpIndexError("an index holds ... more than once")
    if used > x.ndim:
        raise OpIndexError(f"too many indices: {used} for rank {x.ndim}")
    if not dots:
        parts.append(Ellipsis)
    basic: list[Any] = []
    indices: list[Any] = []
    for part in parts:
        if isinstance(part, Tensor):
            if part.ndim == 0 and part.dtype == "bool":  # an axis of one or no element more
                basic.append(None)
                indices.append(core.tensor([0] if part.item() else [], "i64"))
                continue
            basic += [slice(None)] * _axes(part)
            indices.append(part if part.dtype in ("bool", "i32", "i64") else _convert(part, "i64"))
        elif part is Ellipsis:
            basic += [slice(None)] * (x.ndim - used)
            indices += [None] * (x.ndim - used)
        else:
            basic.append(part)
            if part is None or isinstance(part, slice):
                indices.append(None)
    while indices and indices[-1] is None:
        indices.pop()
    return x[tuple(basic)], indices


def _axes(part: Any) -> int:
    """How many axes of the tensor it takes."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype == "bool" else 1


def _part(part: Any) -> Any:
    """None, Ellipsis, a slice, an int, or a tensor of positions or of bools."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, bool):
        return core.tensor(part)
    if isinstance(part, list | range):
        found = core.tensor(list(part))
        part = _convert(found, "i64") if not found.size else found
    elif not isinstance(part, Tensor):
        if hasattr(part, "__index__") and not hasattr(part, "shape"):
            return part.__index__()
        try:
            part = core.from_dlpack(part)
        except (OpTypeError, TypeError):
            raise OpTypeError(f"{type(part).__name__} is no index of a Tensor") from None
    if part.dtype in ("f16", "bf16", "f32", "f64", "c64", "c128"):
        raise OpTypeError(f"a tensor of {part.dtype} is no index: positions are integers, masks bool")
    return part.item() if part.ndim == 0 and part.dtype != "bool" else part
